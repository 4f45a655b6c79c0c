#include "schedule/step_builder.h"

#include <algorithm>
#include <utility>

namespace fsdpbench::schedule {

Schedule only(const Schedule& schedule, StepPart part) {
  Schedule left = schedule;
  if (part == StepPart::whole) return left;
  for (Op& op : left.ops) {
    if (!op.has_work() || op.is_collective() == (part == StepPart::communication)) continue;
    op.kind = OpKind::left_out;
    op.work = {};
  }
  return left;
}

StepBuilder::StepBuilder(const plan::Plan& plan_, const Policy& policy_, const std::vector<plan::ModuleSizes>& sizes_)
    : plan(plan_),
      policy(policy_),
      sizes(sizes_),
      offloads_(policy.fsdp.cpu_offload != config::CpuOffload::none &&
                std::ranges::any_of(plan.units, &plan::Unit::has_sharded)) {
  add_persistent_buffers();
  persistent_count_ = schedule_.buffers.size();
}

void StepBuilder::add_persistent_buffers() {
  const auto add = [&](BufferRole role, DType dtype, std::int64_t bytes, int unit,
                       MemorySpace space = MemorySpace::device) {
    const BufferId id = new_buffer(role, dtype, bytes, unit, kNone, space);
    if (id == kNoBuffer) return;
    schedule_.buffers.back().persistent = true;
    persistent_[{role, unit}] = id;
  };
  const bool adamw = policy.optimizer == config::Optimizer::adamw;
  const std::int64_t state = size_of(plan.state_dtype);
  const MemorySpace space = offloads() ? MemorySpace::host : MemorySpace::device;
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    const plan::ShardLayout& layout = plan.units[u].layout;
    const std::int64_t shard = layout.shard_numel * state;
    const std::int64_t replicated = layout.replicated_numel * state;
    add(BufferRole::master_shard, plan.state_dtype, shard, u, space);
    if (keeps_device_shards()) {
      add(BufferRole::device_shard, plan.param_dtype, layout.shard_numel * size_of(plan.param_dtype), u);
    }
    add(BufferRole::master_replicated, plan.state_dtype, replicated, u);
    if (plan.param_dtype != plan.state_dtype) {
      add(BufferRole::replicated_parameters, plan.param_dtype, layout.replicated_numel * size_of(plan.param_dtype), u);
    }
    if (adamw) {
      const plan::ShardLayout& trained = plan.units[u].gradient_layout;
      for (const BufferRole moment : {BufferRole::first_moment, BufferRole::second_moment}) {
        add(moment, plan.state_dtype, trained.shard_numel * state, u, space);
      }
      for (const BufferRole moment : {BufferRole::first_moment_replicated, BufferRole::second_moment_replicated}) {
        add(moment, plan.state_dtype, trained.replicated_numel * state, u);
      }
    }
    if (plan.units[u].stays_gathered) {
      add(BufferRole::unsharded, plan.param_dtype, layout.unsharded_numel * size_of(plan.param_dtype), u);
    }
  }
  add(BufferRole::loss, DType::f32, 4 * policy.accumulate, kNone);
}

void StepBuilder::begin_step() {
  schedule_.ops.clear();
  schedule_.buffers.resize(persistent_count_);
  recorded_.assign(recorded_.size(), false);
  marks_ = 0;
}

EventId StepBuilder::event(EventRole role, int unit) { return event({role, unit, phase, micro}); }

EventId StepBuilder::event(const EventName& name) {
  recorded_.resize(std::max(recorded_.size(), events_.size() + 1));
  return events_.try_emplace(name, static_cast<EventId>(events_.size())).first->second;
}

bool StepBuilder::recorded(EventId event) const { return recorded_[event]; }

void StepBuilder::wait(Lane lane, EventId event, WaitReason reason) {
  std::vector<Wait>& waits = pending_[index_of(lane)];
  const auto same = std::find_if(waits.begin(), waits.end(), [&](const Wait& w) { return w.event == event; });
  if (same == waits.end()) {
    waits.push_back({event, reason});
  } else {
    same->reason = std::min(same->reason, reason);  // data before reuse before limit
  }
}

void StepBuilder::append(OpKind kind, const At& at, Work work, Lifetimes lifetimes) {
  std::erase(lifetimes.allocates, kNoBuffer);
  std::erase(lifetimes.frees, kNoBuffer);
  schedule_.ops.push_back({.kind = kind,
                           .lane = at.lane,
                           .phase = phase,
                           .unit = at.unit,
                           .module = at.module,
                           .micro = micro,
                           .prefetch = at.prefetch,
                           .work = std::move(work),
                           .waits = std::exchange(pending_[index_of(at.lane)], {}),
                           .allocates = std::move(lifetimes.allocates),
                           .frees = std::move(lifetimes.frees),
                           .others = at.others});
}

EventId StepBuilder::record(EventRole role, int unit) {
  Op& op = schedule_.ops.back();
  op.record = event(role, unit);
  recorded_[op.record] = true;
  return op.record;
}

EventId StepBuilder::mark(Lane lane) {
  const auto last = std::find_if(schedule_.ops.rbegin(), schedule_.ops.rend(),
                                 [&](const Op& op) { return op.lane == lane && !op.is_host(); });
  if (last == schedule_.ops.rend()) return kNoEvent;
  if (last->record == kNoEvent) {
    last->record = event(EventRole::mark, marks_++);
    recorded_[last->record] = true;
  }
  return last->record;
}

void StepBuilder::host_wait(EventId event, WaitReason reason, int unit) {
  schedule_.ops.push_back(
      {.kind = OpKind::host_wait, .phase = phase, .unit = unit, .micro = micro, .waits = {{event, reason}}});
}

void StepBuilder::transfer(BufferId from, BufferId to, int unit, bool prefetch, Lifetimes lifetimes) {
  const Buffer& source = schedule_.buffers[from];
  const bool down = source.space == MemorySpace::device;
  append(down ? OpKind::device_to_host : OpKind::host_to_device,
         {.lane = down ? Lane::device_to_host : Lane::host_to_device, .unit = unit, .prefetch = prefetch},
         Transfer{.from = from, .to = to, .bytes = source.bytes}, std::move(lifetimes));
}

BufferId StepBuilder::new_buffer(BufferRole role, DType dtype, std::int64_t bytes, int unit, int module,
                                 MemorySpace space) {
  if (bytes == 0) return kNoBuffer;
  schedule_.buffers.push_back({role, category_of(role), dtype, unit, module, micro, bytes, false, space});
  return static_cast<BufferId>(schedule_.buffers.size()) - 1;
}

BufferId StepBuilder::persistent(BufferRole role, int unit) const {
  const auto found = persistent_.find({role, unit});
  return found == persistent_.end() ? kNoBuffer : found->second;
}

}  // namespace fsdpbench::schedule
