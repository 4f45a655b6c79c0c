#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "backend/kernels.h"
#include "plan/shard_layout.h"

namespace fsdpbench::engine {

/// The copies between a unit's buffers, from its layout alone. Offsets are elements.

/// Where a unit lies in a rank-major buffer: from `offset` in each rank's part, which is `stride` long.
struct InBucket {
  std::int64_t offset = 0;
  std::int64_t stride = 0;  ///< 0: the unit's own shard is the part
};

/// Gathered (rank-major) to unsharded (per_param: parameter-major; flat: as it is).
std::vector<backend::CopyRun> copy_out_runs(const plan::ShardLayout& layout, InBucket in = {});
/// Unsharded gradients to the reduce-scatter's input (rank-major), padding zeroed.
std::vector<backend::CopyRun> reduce_copy_in_runs(const plan::ShardLayout& layout, InBucket in = {});
/// Unsharded parameters to part `index` of `group`, a layout of the same unsharded buffer over fewer ranks.
std::vector<backend::CopyRun> keep_group_runs(const plan::ShardLayout& group, int index);
/// Ranges of a buffer of `numel` elements that belong to none of `placements`: (first element, count).
std::vector<std::pair<std::int64_t, std::int64_t>> gaps_between(const std::vector<plan::ParameterPlacement>& placements,
                                                                std::int64_t numel);

}  // namespace fsdpbench::engine
