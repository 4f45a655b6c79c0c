#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "plan/module_sizes.h"
#include "plan/plan.h"
#include "schedule/op.h"
#include "schedule/policy.h"

namespace fsdpbench::schedule {

/// Parts of a step that are done, to see what each part takes alone.
enum class StepPart : std::uint8_t {
  whole,
  computation,    ///< all but the collectives
  communication,  ///< the collectives alone
};

/// `schedule` with only that part of its work. Every other op keeps its place, its waits, event, allocations
/// and frees (OpKind::left_out): the same ops in the same places, with the same memory. It is for times: what such a
/// step computes means nothing.
Schedule only(const Schedule& schedule, StepPart part);

/// Moment that an event marks; with unit (or module), phase and microbatch it names the event for the whole run.
enum class EventRole : std::uint8_t {
  forward_done,
  part_done,
  counted,
  exchanged,
  backward_done,
  backward_ended,
  cast,
  copied_in,
  gathered,
  gathered_again,
  copied_out,
  freed,
  accumulated,
  replicated_accumulated,
  gradients_copied_in,
  gradients_cast,
  replicated_cast,
  reduced,
  partial,
  reduced_across,
  replicated_reduced,
  gradient_ready,
  replicated_ready,
  norm,
  norm_gathered,
  group_kept,
  mark,
  step_done,
  copied_to_device,
  copied_to_host,
  norm_part,
  clipped,
};

inline constexpr int kRoot = plan::Plan::kRoot;
inline constexpr int kNone = -1;  ///< in place of a unit or a module

/// Place of an op; phase and microbatch are the builder's.
struct At {
  Lane lane = Lane::compute;
  int unit = kNone;
  int module = kNone;
  bool prefetch = false;
  std::vector<int> others = {};
};

/// Buffers that an op brings to life before it runs, and gives back after. kNoBuffer is left out.
struct Lifetimes {
  std::vector<BufferId> allocates = {};
  std::vector<BufferId> frees = {};
};

/// Writes the op list of one step: buffers, events, and waits that the next op of a lane must carry.
/// Used by Gatherer, Reducer and build_schedules; knows no policy. Plan, policy and sizes must outlive it.
class StepBuilder {
 public:
  /// Starts with the persistent buffers that plan and optimizer need; `sizes` has one entry a module.
  StepBuilder(const plan::Plan& plan, const Policy& policy, const std::vector<plan::ModuleSizes>& sizes);

  const plan::Plan& plan;
  const Policy& policy;
  const std::vector<plan::ModuleSizes>& sizes;

  // Place of the walk; stamped on every op.
  Phase phase = Phase::forward;
  int micro = 0;

  /// Clears ops and step buffers; persistent buffers and event names stay.
  void begin_step();
  /// A copy of the step as written so far.
  Schedule step() const { return schedule_; }
  /// Events named so far, in all steps.
  int event_count() const { return static_cast<int>(events_.size()); }

  /// The id of an event; the same name gives the same id in every step.
  EventId event(EventRole role, int unit);
  /// The event that the last op of every step records.
  EventId step_done() { return event({EventRole::step_done, kNone, Phase::optimizer, 0}); }
  /// fsdp.cpu_offload, and there is something sharded to offload.
  bool offloads() const { return offloads_; }
  /// The device has every shard in the compute dtype all the time.
  bool keeps_device_shards() const {
    if (policy.fsdp.cpu_offload != config::CpuOffload::none) {
      return policy.fsdp.cpu_offload == config::CpuOffload::optimizer;
    }
    return policy.fsdp.cast_in_optimizer && plan.param_dtype != plan.state_dtype;
  }
  /// True once an op of this step has recorded it.
  bool recorded(EventId event) const;

  /// The next op on `lane` waits for `event`.
  void wait(Lane lane, EventId event, WaitReason reason);
  /// Waits that no op has carried yet.
  const std::array<std::vector<Wait>, kLaneCount>& pending_waits() const { return pending_; }
  /// Appends an op, with the waits its lane has collected.
  void append(OpKind kind, const At& at, Work work = {}, Lifetimes lifetimes = {});
  /// Sets and returns the event that the last appended op records.
  EventId record(EventRole role, int unit = kNone);
  /// The event of the last op of this step on `lane`, which from now on it records; kNoEvent if there is none.
  EventId mark(Lane lane);
  /// The host blocks until `event`.
  void host_wait(EventId event, WaitReason reason, int unit);

  /// A buffer of this step, for an op to allocate; kNoBuffer if it would be empty.
  BufferId new_buffer(BufferRole role, DType dtype, std::int64_t bytes, int unit, int module = kNone,
                      MemorySpace space = MemorySpace::device);
  /// Adds `bytes` to a buffer that no op has used yet, or only from its beginning.
  void grow(BufferId buffer, std::int64_t bytes) { schedule_.buffers[buffer].bytes += bytes; }
  /// The one persistent buffer of this role and unit; kNoBuffer if the plan needs none.
  BufferId persistent(BufferRole role, int unit = kNone) const;
  /// Bytes of one buffer to another on the lane that goes from the one's memory to the other's, in whole.
  void transfer(BufferId from, BufferId to, int unit, bool prefetch, Lifetimes lifetimes);
  /// Dtype and elements of a buffer that new_buffer() returned.
  DType dtype_of(BufferId buffer) const { return schedule_.buffers[buffer].dtype; }
  std::int64_t numel_of(BufferId buffer) const { return schedule_.buffers[buffer].bytes / size_of(dtype_of(buffer)); }

 private:
  using EventName = std::tuple<EventRole, int, Phase, int>;  // role, unit or module, phase, microbatch

  void add_persistent_buffers();
  EventId event(const EventName& name);

  Schedule schedule_;
  bool offloads_;
  std::size_t persistent_count_ = 0;
  std::map<EventName, EventId> events_;
  std::vector<bool> recorded_;  // by event: in this step
  int marks_ = 0;               // of this step
  std::array<std::vector<Wait>, kLaneCount> pending_;
  std::map<std::pair<BufferRole, int>, BufferId> persistent_;
};

}  // namespace fsdpbench::schedule
