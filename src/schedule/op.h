#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/lane.h"
#include "plan/communication.h"
#include "plan/plan.h"
#include "schedule/buffer.h"

namespace fsdpbench::schedule {

/// A mark in a lane's order, the same number in every step; recording it again replaces the mark.
using EventId = int;
inline constexpr EventId kNoEvent = -1;

/// Kind of an op, in traces and in order lists; its `work` says what is done to which buffers.
enum class OpKind : std::uint8_t {
  load_batch,       ///< tokens to the device
  cast_replicated,  ///< replicated parameters to the compute dtype
  cast_shard,       ///< flat: shard to the compute dtype, before its gather
  copy_in,          ///< per_param: shard into this rank's slice of the all-gather output
  unshard,          ///< marks that a unit is asked for where it need not be gathered; no work
  all_gather,
  copy_out,        ///< per_param: all-gather output into parameters
  release,         ///< frees an all-gather output once it was copied out; no work
  host_to_device,  ///< a shard from host memory (fsdp.cpu_offload)
  device_to_host,  ///< a reduced gradient to host memory
  forward,
  recompute,  ///< forward again, for activation checkpointing
  backward,
  keep_group_shard,      ///< copies this rank's part of the unsharded parameters before they are freed
  reshard,               ///< frees unsharded parameters; no work
  post_backward,         ///< marks that a unit's gradients are complete; no work
  end_backward,          ///< marks the end of a backward that another microbatch follows; no work
  accumulate_gradients,  ///< unsharded gradients are added up
  reduce_cast,           ///< gradients to the reduce dtype and pre-division
  reduce_copy_in,        ///< per_param: gradients into the reduce-scatter's layout
  reduce_scatter,
  all_reduce,
  tensor_all_reduce,      ///< sums over the ranks that split a layer
  tensor_all_gather,      ///< what each of them has of the same rows; of ranks that split sequences, keys and values
  tensor_reduce_scatter,  ///< sums over them, of which each keeps its rows
  expert_counts,          ///< how many rows go to each of the ranks that split the experts of a block
  expert_dispatch,        ///< rows to the ranks that have their experts
  expert_combine,         ///< rows back from them
  finish_gradient,        ///< reduced gradients into the fp32 gradient, post-division
  gradient_norm,          ///< adds up squares of one unit's gradients
  gather_norm,            ///< all ranks' sums of squares
  clip,                   ///< clip factor from the norm
  optimizer,              ///< one unit's update
  left_out,               ///< something of a step of which only a part is done (step_builder.h); no work
  host_wait,              ///< the host blocks until the events are complete
  host_sync,              ///< the host blocks until the device is idle (injected)
};

/// The enumerator's own name.
std::string_view to_string(OpKind kind);

/// Collective of such an op. `kind` must be a collective's; else throws std::logic_error.
CollectiveKind collective_kind(OpKind kind);

/// The part of a step in which the host issues an op.
enum class Phase : std::uint8_t { forward, backward, optimizer };
/// The enumerator's own name.
std::string_view to_string(Phase phase);

using plan::Group;
using plan::kGroupCount;
using plan::to_string;

/// Reason for a wait. Only `limit` waits may be taken out without a race.
enum class WaitReason : std::uint8_t {
  data,   ///< the op reads what the event's op wrote
  reuse,  ///< the op overwrites or frees what the event's op read
  limit,  ///< bounds memory or fixes an order; the result is right without it
};

/// An op, or the host, goes on only after `event`.
struct Wait {
  EventId event = kNoEvent;
  WaitReason reason = WaitReason::data;
  bool operator==(const Wait&) const = default;
};

// Work of ops, one struct for each family. Operands are named; kNoBuffer where there is none. Counts are
// elements. Dtypes are the buffers' own.

/// The microbatch's samples into their buffers.
struct LoadBatch {
  BufferId inputs = kNoBuffer;
  BufferId targets = kNoBuffer;
  bool operator==(const LoadBatch&) const = default;
};

/// One module's forward, or a part of it; a recomputation has neither output nor loss.
struct Forward {
  BufferId parameters = kNoBuffer;
  BufferId replicated = kNoBuffer;  ///< the unit's replicated parameters
  BufferId experts = kNoBuffer;     ///< parameters of the unit's experts, where those are a unit of their own
  BufferId input = kNoBuffer;       ///< the output of the module before
  BufferId batch_inputs = kNoBuffer;
  BufferId batch_targets = kNoBuffer;
  BufferId saved = kNoBuffer;
  BufferId output = kNoBuffer;
  BufferId workspace = kNoBuffer;
  BufferId loss = kNoBuffer;
  int part = -1;                  ///< between exchanges with the ranks that split the module; -1: all of it
  BufferId exchange = kNoBuffer;  ///< what they exchange, if it is not the output
  bool operator==(const Forward&) const = default;
};

/// One module's backward, or a part of it. `d_stream` is the gradient of its output and becomes that of its input.
struct Backward {
  BufferId parameters = kNoBuffer;
  BufferId replicated = kNoBuffer;
  BufferId experts = kNoBuffer;
  BufferId saved = kNoBuffer;
  BufferId input = kNoBuffer;
  BufferId batch_inputs = kNoBuffer;
  BufferId d_stream = kNoBuffer;
  BufferId gradients = kNoBuffer;
  BufferId gradients_replicated = kNoBuffer;
  BufferId gradients_experts = kNoBuffer;
  BufferId workspace = kNoBuffer;
  bool begins_stream = false;     ///< the last module: nothing has written d_stream yet
  bool begins_gradients = false;  ///< the unit's first: padding of the gradients is cleared before
  bool begins_experts = false;    ///< so of gradients_experts
  int part = -1;                  ///< as Forward's
  BufferId exchange = kNoBuffer;
  bool operator==(const Backward&) const = default;
};

/// to = factor * from. Both may be one buffer.
struct Cast {
  BufferId from = kNoBuffer;
  BufferId to = kNoBuffer;
  std::int64_t count = 0;
  float factor = 1.0F;
  bool operator==(const Cast&) const = default;
};

/// Copies between a unit's sharded, gathered and unsharded buffers, with conversion. Which way is the op's kind:
/// copy_in, copy_out, keep_group_shard, reduce_copy_in.
struct LayoutCopy {
  BufferId from = kNoBuffer;
  BufferId to = kNoBuffer;
  Group over = Group::shard;  ///< which of the unit's layouts: shard, or reshard
  /// In a bucket of several units the rank-major side is shared: this unit begins here in each rank's part …
  std::int64_t offset = 0;
  std::int64_t stride = 0;  ///< … which is so many elements long; 0: the unit lies there alone
  bool operator==(const LayoutCopy&) const = default;
};

/// sum (fp32) = factor * from, plus the old sum unless `overwrite`. The product is fp32 either way.
struct Accumulate {
  BufferId from = kNoBuffer;
  BufferId sum = kNoBuffer;
  std::int64_t count = 0;
  float factor = 1.0F;
  bool overwrite = true;
  /// `from` may be a bucket: rank r of the group that shares the unit reads its elements from offset + r * stride.
  std::int64_t offset = 0;
  std::int64_t stride = 0;
  bool operator==(const Accumulate&) const = default;
};

/// An all-gather, reduce-scatter, all-to-all, all-reduce or send_recv. An all-gather or reduce-scatter with input ==
/// output is in place: this rank's part lies where it belongs among all. An all-reduce always is.
struct Collective {
  Group group = Group::none;
  BufferId input = kNoBuffer;
  BufferId output = kNoBuffer;
  /// Elements a rank contributes (all-gather), keeps (reduce-scatter), sends to each (all-to-all) or to the next one
  /// (send_recv), or holds (all-reduce).
  std::int64_t count = 0;
  DType dtype = DType::f32;  ///< on the wire
  float scale = 1.0F;        ///< of the sum
  /// Bytes of `count` elements: what one rank contributes, keeps, sends to each or holds.
  std::int64_t bytes() const { return count * size_of(dtype); }
  bool operator==(const Collective&) const = default;
};

/// sum (one double) = factor * the gradient's sum of squares, plus the old sum unless `overwrite`.
struct SumOfSquares {
  BufferId gradient = kNoBuffer;
  BufferId sum = kNoBuffer;
  std::int64_t count = 0;
  float factor = 1.0F;
  bool overwrite = true;
  bool replicated = false;    ///< the gradient is that of the unit's replicated parameters
  float whole_factor = 1.0F;  ///< beside `factor`, for parameters that each of the ranks that split layers has whole
  bool operator==(const SumOfSquares&) const = default;
};

/// Factor on gradients, from `count` sums of squares.
struct ClipFactor {
  BufferId sums = kNoBuffer;
  BufferId factor = kNoBuffer;
  std::int64_t count = 0;
  bool operator==(const ClipFactor&) const = default;
};

/// The optimizer's step on fp32 parameters. SGD has no moments; without clipping there is no factor. `rounded`, if
/// there is one, gets the new parameters in its own dtype.
struct Update {
  BufferId gradient = kNoBuffer;
  BufferId parameters = kNoBuffer;
  BufferId rounded = kNoBuffer;
  BufferId first_moment = kNoBuffer;
  BufferId second_moment = kNoBuffer;
  BufferId clip_factor = kNoBuffer;
  std::int64_t count = 0;
  bool operator==(const Update&) const = default;
};

/// The bytes of one buffer to another, as they are, between the memories of device and host.
struct Transfer {
  BufferId from = kNoBuffer;
  BufferId to = kNoBuffer;
  std::int64_t bytes = 0;
  bool operator==(const Transfer&) const = default;
};

/// monostate: nothing to do on the lane, only waits, frees or a mark.
using Work = std::variant<std::monostate, LoadBatch, Forward, Backward, Cast, LayoutCopy, Accumulate, Collective,
                          SumOfSquares, ClipFactor, Update, Transfer>;

/// A few buffers, in order; kNoBuffer is left out.
class BufferList {
 public:
  BufferList(std::initializer_list<BufferId> buffers) {
    for (BufferId id : buffers) {
      if (id != kNoBuffer) ids_.at(size_++) = id;
    }
  }
  const BufferId* begin() const { return ids_.data(); }
  const BufferId* end() const { return ids_.data() + size_; }

 private:
  std::array<BufferId, 11> ids_{};
  std::size_t size_ = 0;
};

/// Buffers that an op's work reads and writes; a buffer updated in place is in both.
struct Operands {
  BufferList reads;
  BufferList writes;
};

/// One element of a schedule, in the order in which the host issues. On its lane it runs after `waits`.
/// Allocations happen on the op's lane before it, frees on the op's lane after it.
struct Op {
  OpKind kind = OpKind::forward;
  Lane lane = Lane::compute;
  Phase phase = Phase::forward;
  int unit = -1;          ///< or -1; of a bucket the first to enter it
  int module = -1;        ///< or -1
  int micro = 0;          ///< microbatch
  bool prefetch = false;  ///< part of a gather issued before it is needed
  Work work = {};
  std::vector<Wait> waits = {};
  EventId record = kNoEvent;  ///< recorded on the lane after the op
  std::vector<BufferId> allocates = {};
  std::vector<BufferId> frees = {};
  std::vector<int> others = {};  ///< further units that a collective is for

  bool operator==(const Op&) const = default;
  /// The host does it itself: it only waits.
  bool is_host() const { return kind == OpKind::host_wait || kind == OpKind::host_sync; }
  /// Over PCIe.
  bool is_transfer() const { return std::holds_alternative<Transfer>(work); }
  bool is_collective() const { return std::holds_alternative<Collective>(work); }
  /// Message of a collective, and its group; null for other ops.
  const Collective* collective() const { return std::get_if<Collective>(&work); }
  /// The group of a collective; none for other ops.
  Group group() const { return is_collective() ? collective()->group : Group::none; }
  /// Whether ranks that split a layer or sequences exchange something here, between two parts of its pass.
  bool exchanges_parts() const {
    return kind == OpKind::tensor_all_reduce || kind == OpKind::tensor_all_gather ||
           kind == OpKind::tensor_reduce_scatter || exchanges_rows();
  }
  /// Whether ranks that split the experts of a block exchange rows, or say how many.
  bool exchanges_rows() const {
    return kind == OpKind::expert_counts || kind == OpKind::expert_dispatch || kind == OpKind::expert_combine;
  }
  /// Something runs on the lane: not only waits, frees or a mark.
  bool has_work() const {
    return !is_host() && kind != OpKind::release && kind != OpKind::unshard && kind != OpKind::reshard &&
           kind != OpKind::post_backward && kind != OpKind::end_backward && kind != OpKind::left_out;
  }
  /// Buffers that `work` touches: the same buffers that an executor hands to its kernels.
  Operands operands() const;
};

/// Which part of a module's pass an op is; -1 if it is all of it, or another op.
int part_of(const Op& op);

/// The complete ordered list of ops that one rank's host issues for one training step. Plain data; all ranks have
/// the same. After the last op the host waits for the device (it reads the loss): that is not in the list.
///
/// Events keep their last recording from one step to the next, so a wait that comes before its event's recording
/// refers to the step before; in the first step it does nothing.
struct Schedule {
  std::vector<Op> ops;
  std::vector<Buffer> buffers;  ///< persistent ones first, the same in every step
  bool operator==(const Schedule&) const = default;
};

/// Schedules of step 0, 1, … of a run; the last one repeats (the steady state).
struct Schedules {
  std::vector<Schedule> steps;
  int event_count = 0;  ///< event ids are below this, in all steps

  /// The schedule of step number `step`, counted from 0 over the whole run.
  const Schedule& of_step(std::size_t step) const { return steps[step < steps.size() ? step : steps.size() - 1]; }
  /// The one that repeats.
  const Schedule& steady() const { return steps.back(); }
};

/// Bytes that a rank sends in a step of this schedule: an all-gather or reduce-scatter of S bytes over N ranks (N-1)/N
/// S, an all-reduce twice that. Padding is sent too, so it counts.
plan::CommunicationVolume communication_volume(const Schedule& schedule, const plan::Groups& groups);

}  // namespace fsdpbench::schedule
