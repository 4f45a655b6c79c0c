#include "tune/bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/enum_table.h"
#include "base/lane_pool.h"
#include "schedule/memory_walk.h"

namespace fsdpbench::tune {

std::string_view to_string(MemoryKind kind) {
  constexpr EnumNames<MemoryKind> kNames{"live", "reserved", "process"};
  return kNames[kind];
}

std::int64_t MemoryBudget::beside(const plan::Plan& plan) const {
  std::int64_t communicators = 0;
  for (std::size_t g = 0; g < plan::kGroupCount; ++g) communicators += plan.groups.exists(static_cast<plan::Group>(g));
  return context_bytes + communicators * communicator_bytes;
}

std::int64_t MemoryBudget::predicted(const MemoryNeed& need, const plan::Plan& plan) const {
  switch (kind) {
    case MemoryKind::live: return need.live;
    case MemoryKind::reserved: return need.reserved;
    case MemoryKind::process: return need.reserved + beside(plan);
  }
  return need.reserved;
}

std::int64_t MemoryBudget::margin(const MemoryNeed& need, const plan::Plan& plan) const {
  const auto held = static_cast<double>(kind == MemoryKind::live ? need.live : need.reserved);
  const double overhead = kind == MemoryKind::process ? static_cast<double>(beside(plan)) : 0.0;
  return std::llround(error * held + overhead_error * overhead);
}

std::int64_t MemoryBudget::capacity(const plan::Plan& plan) const {
  const double overhead = kind == MemoryKind::process ? static_cast<double>(beside(plan)) * (1 + overhead_error) : 0.0;
  return std::max<std::int64_t>(1, std::llround((static_cast<double>(bytes) - overhead) / (1 + error)) - 1);
}

MemoryBudget memory_budget(const config::RunConfig& config, std::int64_t bytes, MemoryKind kind,
                           std::optional<bool> traced_on_gpus) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  MemoryBudget budget{.bytes = bytes, .kind = kind, .made_up = traced_on_gpus.has_value()};
  const bool gpus = config.device.backend == config::BackendKind::cuda || !config.simulate.cluster.empty() ||
                    traced_on_gpus.value_or(false);
  if (!gpus) return budget;
  budget.error = 0.03;
  budget.context_bytes = 3 * kGiB / 2;
  budget.communicator_bytes = kGiB / 2;
  budget.overhead_error = 0.5;
  return budget;
}
namespace {

using schedule::BufferId;
using schedule::BufferRole;
using schedule::OpKind;

/// Ops whose order no policy changes.
bool in_fixed_order(OpKind kind) {
  switch (kind) {
    case OpKind::forward:
    case OpKind::recompute:
    case OpKind::backward:
    case OpKind::gradient_norm:
    case OpKind::clip:
    case OpKind::optimizer: return true;
    default: return false;
  }
}

/// Buffers that live as long under every policy.
bool in_fixed_lifetime(BufferRole role) {
  switch (role) {
    case BufferRole::batch_inputs:
    case BufferRole::batch_targets:
    case BufferRole::saved:
    case BufferRole::boundary:
    case BufferRole::d_stream:
    case BufferRole::workspace: return true;
    default: return false;
  }
}

/// Bytes of the device's memory that a buffer takes.
std::int64_t on_device(const schedule::Buffer& buffer) {
  return buffer.space == MemorySpace::device ? LanePool::rounded(buffer.bytes) : 0;
}

double longest_of_lanes_and_fabrics(const schedule::Schedule& step, const clock::StepCosts& least) {
  std::array<double, kLaneCount> lanes{};
  std::array<double, 8> fabrics{};
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    const schedule::Op& op = step.ops[i];
    if (op.is_host()) continue;
    lanes[index_of(op.lane)] += least[i].run_ns + least[i].link_ns;
    if (op.is_collective()) fabrics.at(static_cast<std::size_t>(least[i].fabric)) += least[i].link_ns;
  }
  return std::max(*std::ranges::max_element(lanes), *std::ranges::max_element(fabrics));
}

double longest_chain(const schedule::Schedule& step, int event_count, const clock::StepCosts& least) {
  std::vector<double> events(event_count, 0.0);
  double computed = 0, longest = 0;
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    const schedule::Op& op = step.ops[i];
    if (op.is_host()) continue;
    double begin = in_fixed_order(op.kind) ? computed : 0;
    for (const schedule::Wait& wait : op.waits) {
      if (wait.reason == schedule::WaitReason::data) {
        begin = std::max(begin, events[wait.event]);
      }
    }
    const double end = begin + least[i].run_ns + least[i].link_ns;
    if (in_fixed_order(op.kind)) computed = end;
    if (op.record != schedule::kNoEvent) events[op.record] = end;
    longest = std::max(longest, end);
  }
  return longest;
}

/// A loss's workspace, too, whose backward is over before units are gathered for the head's.
bool comes_later(const schedule::Schedule& step, const schedule::Op& op, BufferId id) {
  const bool workspace = step.buffers[id].role == BufferRole::workspace;
  return schedule::may_come_later(step, op, id) || (op.kind == OpKind::backward && workspace);
}

std::int64_t least_live(const schedule::Schedule& step) {
  const auto bytes = [&](BufferId id) { return on_device(step.buffers[id]); };
  std::int64_t always = 0, most = 0;
  for (const schedule::Buffer& buffer : step.buffers) {
    if (buffer.persistent) always += on_device(buffer);
  }
  std::vector<bool> counted(step.buffers.size(), false);
  for (const schedule::Op& op : step.ops) {
    std::int64_t later = 0;
    for (const BufferId id : op.allocates) {
      if (comes_later(step, op, id)) later += bytes(id);
      if (in_fixed_lifetime(step.buffers[id].role)) {
        counted[id] = true;
        always += bytes(id);
      }
    }
    std::int64_t own = 0;
    const auto add_own = [&](BufferId id) {
      const schedule::Buffer& buffer = step.buffers[id];
      if (!buffer.persistent && !counted[id]) own += bytes(id);
    };
    if (op.kind == OpKind::forward || op.kind == OpKind::backward) {
      const schedule::Operands operands = op.operands();
      for (const BufferId id : operands.reads) add_own(id);
      for (const BufferId id : operands.writes) {
        if (std::ranges::find(operands.reads, id) == operands.reads.end()) add_own(id);
      }
    }
    most = std::max(most, always + own - later);
    for (const BufferId id : op.frees) {
      if (!counted[id]) continue;
      counted[id] = false;
      always -= bytes(id);
    }
  }
  return most;
}

}  // namespace

std::int64_t live_in_order(const schedule::Schedule& step) {
  const auto bytes = [&](BufferId id) { return on_device(step.buffers[id]); };
  std::int64_t now = 0;
  for (const schedule::Buffer& buffer : step.buffers) {
    if (buffer.persistent) now += on_device(buffer);
  }
  std::int64_t most = now;
  for (const schedule::Op& op : step.ops) {
    std::int64_t later = 0;
    for (const BufferId id : op.allocates) (comes_later(step, op, id) ? later : now) += bytes(id);
    most = std::max(most, now);
    for (const BufferId id : op.frees) now -= bytes(id);
    now += later;
  }
  return std::max(most, now);
}

Bound lower_bound(const schedule::Training& training, const clock::StepCosts& least) {
  const schedule::Schedule& step = training.schedules.steady();
  return {
      std::max(longest_of_lanes_and_fabrics(step, least), longest_chain(step, training.schedules.event_count, least)),
      least_live(step)};
}

}  // namespace fsdpbench::tune
