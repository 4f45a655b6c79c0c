#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "backend/kernels.h"
#include "plan/shard_layout.h"
#include "schedule/op.h"

namespace fsdpbench::engine {

/// The copies between a unit's buffers, from its layout alone. Offsets are elements.

/// Place of a unit in a rank-major buffer: from `offset` in each rank's part, which is `stride` long.
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

/// Memory behind a schedule's buffers on one rank. Persistent buffers live as long as the table.
class BufferTable {
 public:
  /// Allocates the persistent buffers, in schedule order.
  BufferTable(backend::Device& device, const schedule::Schedule& schedule);
  ~BufferTable();
  BufferTable(const BufferTable&) = delete;
  BufferTable& operator=(const BufferTable&) = delete;

  /// Starts a step; its transient buffers are not there yet.
  void begin_step(const schedule::Schedule& schedule);
  /// Gives a transient buffer of this step its memory, for ops of `lane` from now on.
  void allocate(schedule::BufferId id, Lane lane);
  /// Gives it back, once what was issued on `lane` so far is done.
  void free(schedule::BufferId id, Lane lane);

  /// Memory of the device, or of the host as the buffer says; null while a transient buffer has none.
  std::byte* at(schedule::BufferId id) const { return memory_[id]; }
  const schedule::Buffer& info(schedule::BufferId id) const { return schedule_->buffers[id]; }
  /// The persistent buffer of this role and unit; empty if the plan has none.
  std::span<std::byte> persistent(schedule::BufferRole role, int unit) const;

 private:
  std::byte* allocate(const schedule::Buffer& buffer, Lane lane);

  backend::Device& device_;
  const schedule::Schedule* schedule_;
  std::size_t persistent_count_ = 0;
  std::vector<std::byte*> memory_;
};

}  // namespace fsdpbench::engine
