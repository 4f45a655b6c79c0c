#include "clock/emulated_times.h"

#include <cmath>

#include "clock/collective_kinds.h"

namespace fsdpbench::clock {

using schedule::OpKind;

double flops_of(const schedule::Op& op, const std::vector<plan::ModuleSizes>& sizes) {
  using plan::ModuleSizes;
  const auto of = [&](double ModuleSizes::*all, std::vector<plan::ModulePart> ModuleSizes::*parts) {
    const ModuleSizes& module = sizes[op.module];
    const int part = schedule::part_of(op);
    return part < 0 ? module.*all : (module.*parts)[part].flops;
  };
  switch (op.kind) {
    case OpKind::forward: return of(&ModuleSizes::forward_flops, &ModuleSizes::forward_parts);
    case OpKind::recompute: return of(&ModuleSizes::recompute_flops, &ModuleSizes::recompute_parts);
    case OpKind::backward: return of(&ModuleSizes::backward_flops, &ModuleSizes::backward_parts);
    default: return {};
  }
}

OpTimes emulated_times(const schedule::Training& training, const Rates& rates) {
  OpTimes times;
  for (const schedule::Schedule& schedule : training.schedules.steps) {
    StepCosts& costs = times.steps.emplace_back();
    for (const schedule::Op& op : schedule.ops) {
      OpCost& cost = costs.emplace_back();
      if (op.is_collective()) {
        const CollectiveMessage message = message_of(op, training.plan.groups);
        cost.run_ns = std::nearbyint(message.seconds_of_latency(rates.link) * 1e9);
        cost.link_ns = std::nearbyint(message.seconds_of_bytes(rates.link) * 1e9);
      } else if (const auto* copy = std::get_if<schedule::Transfer>(&op.work)) {
        const double seconds =
            rates.pcie.latency_seconds + static_cast<double>(copy->bytes) / rates.pcie.bytes_per_second;
        cost.run_ns = std::nearbyint(seconds * 1e9);
      } else {
        cost.run_ns = std::nearbyint(flops_of(op, training.sizes) / rates.flops_per_second * 1e9);
      }
    }
  }
  return times;
}

void add_trouble(const config::Inject& inject, std::uint64_t seed, int ranks, OpTimes& times) {
  const auto slow = [&](std::int64_t rank, double factor, std::vector<double>& factors) {
    if (rank < 0 || rank >= ranks || factor == 1.0) return;
    factors.resize(ranks, 1.0);
    factors[rank] *= factor;
  };
  slow(inject.slow_rank, inject.slow_rank_factor, times.compute_factor);
  slow(inject.slow_link_rank, inject.slow_link_factor, times.link_factor);
  times.host.issue_ns += std::nearbyint(inject.host_delay_us * 1e3);
  times.delays.uniform_ns = std::floor(inject.jitter_us * 1e3);
  times.delays.seed = seed;
  for (const Lane lane : kLanes) {
    if (inject.delay_lane != to_string(lane)) continue;
    times.delays.fixed_ns[index_of(lane)] = std::nearbyint(inject.delay_us * 1e3);
    times.delays.rank = static_cast<int>(inject.delay_rank);
  }
}

}  // namespace fsdpbench::clock
