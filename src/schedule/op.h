#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/lane.h"
#include "plan/groups.h"
#include "schedule/buffer.h"

namespace fsdpbench::schedule {

using EventId = int;
inline constexpr EventId kNoEvent = -1;

enum class OpKind : std::uint8_t {
  load_batch,       ///< tokens to the device
  cast_replicated,  ///< replicated parameters to the compute dtype
  cast_shard,       ///< flat: shard to the compute dtype, before its gather
  copy_in,          ///< per_param: shard into this rank's slice of the all-gather output
  all_gather,
  copy_out,  ///< per_param: all-gather output into parameters
  release,   ///< frees an all-gather output once it was copied out; no work
  forward,
  recompute,  ///< forward again, for activation checkpointing
  backward,
  keep_group_shard,      ///< copies this rank's part of the unsharded parameters before they are freed
  reshard,               ///< frees unsharded parameters; no work
  post_backward,         ///< marks that a unit's gradients are complete; no work
  accumulate_gradients,  ///< unsharded gradients are added up
  reduce_cast,           ///< gradients to the reduce dtype and pre-division
  reduce_copy_in,        ///< per_param: gradients into the reduce-scatter's layout
  reduce_scatter,
  all_reduce,
  finish_gradient,  ///< reduced gradients into the fp32 gradient, post-division
  gradient_norm,    ///< adds up squares of one unit's gradients
  gather_norm,      ///< all ranks' sums of squares
  clip,             ///< clip factor from the norm
  optimizer,        ///< one unit's update
  host_wait,        ///< the host blocks until the events are complete
  host_sync,        ///< the host blocks until the device is idle (injected)
};

std::string_view to_string(OpKind kind);

enum class Phase : std::uint8_t { forward, backward, optimizer };
std::string_view to_string(Phase phase);

using plan::Group;
using plan::kGroupCount;
using plan::to_string;

/// Why a wait is there. Only `limit` waits may be taken out without a race.
enum class WaitReason : std::uint8_t {
  data,   ///< the op reads what the event's op wrote
  reuse,  ///< the op overwrites or frees what the event's op read
  limit,  ///< bounds memory or fixes an order; the result is right without it
};

struct Wait {
  EventId event = kNoEvent;
  WaitReason reason = WaitReason::data;
  bool operator==(const Wait&) const = default;
};

/// One element of a schedule, in the order in which the host issues. On its lane it runs after `waits`.
/// Allocations happen on the op's lane before it, frees on the op's lane after it.
struct Op {
  OpKind kind = OpKind::forward;
  Lane lane = Lane::compute;
  Phase phase = Phase::forward;
  int unit = -1;
  int module = -1;
  int micro = 0;
  bool prefetch = false;      ///< a gather issued before it is needed
  Group group = Group::none;  ///< collectives
  std::int64_t count = 0;     ///< collectives: elements a rank contributes (all-gather), keeps (reduce-scatter),
                              ///< or holds (all-reduce)
  DType dtype = DType::f32;   ///< collectives
  float scale = 1.0F;         ///< collectives: of the sum; reduce_cast, finish_gradient: factor
  bool first = true;          ///< accumulations: overwrite instead of add
  std::vector<Wait> waits;
  EventId record = kNoEvent;  ///< recorded on the lane after the op
  std::vector<BufferId> allocates;
  std::vector<BufferId> reads;
  std::vector<BufferId> writes;
  std::vector<BufferId> frees;

  bool operator==(const Op&) const = default;
  bool is_host() const { return kind == OpKind::host_wait || kind == OpKind::host_sync; }
  bool is_collective() const { return group != Group::none; }
  /// Nothing to run on the lane: only waits, frees or a mark.
  bool has_work() const {
    return !is_host() && kind != OpKind::release && kind != OpKind::reshard && kind != OpKind::post_backward;
  }
};

}  // namespace fsdpbench::schedule
