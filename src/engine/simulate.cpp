#include "engine/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backend/communicator.h"
#include "clock/cluster_times.h"
#include "clock/contention.h"
#include "clock/emulated_times.h"
#include "clock/forecast.h"
#include "config/accuracy.h"

namespace fsdpbench::engine {
namespace {

/// Bytes that every rank sends in one step, counted collective by collective.
backend::WireBytes wire_bytes(const schedule::Schedule& schedule, const plan::Groups& groups) {
  backend::WireBytes sum{};
  for (const schedule::Op& op : schedule.ops) {
    if (!op.is_collective()) continue;
    const backend::Collective kind = schedule::collective_kind(op.kind);
    sum[static_cast<std::size_t>(kind)] += backend::ring_bytes(kind, op.collective()->bytes(), groups.size(op.group()));
  }
  return sum;
}

/// The pool as a device would have sampled it: after each op that allocates or frees, when the host came to it.
void sample_memory(const schedule::Schedule& schedule, std::span<const trace::Record> records, std::int64_t reserved,
                   trace::RankTrace& trace) {
  trace::MemorySample sample;
  sample.reserved = reserved;
  for (const schedule::Buffer& buffer : schedule.buffers) {
    if (buffer.persistent && buffer.space == MemorySpace::device)
      sample.live[index_of(buffer.category)] += LanePool::rounded(buffer.bytes);
  }
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const schedule::Op& op = schedule.ops[i];
    if (op.allocates.empty() && op.frees.empty()) continue;
    const auto change = [&](schedule::BufferId id, int sign) {
      const schedule::Buffer& buffer = schedule.buffers[id];
      if (buffer.space != MemorySpace::device) return;
      sample.live[index_of(buffer.category)] += sign * LanePool::rounded(buffer.bytes);
    };
    for (const schedule::BufferId id : op.allocates) change(id, 1);
    for (const schedule::BufferId id : op.frees) change(id, -1);
    sample.time_ns = records[i].issued_ns;
    trace.memory.push_back(sample);
  }
}

/// The rank that was slowest most by the sum of its steps; the first of equals.
int slowest_rank(const Setup& setup, const clock::OpTimes& times) {
  const std::size_t warmup = setup.config.train.warmup;
  const std::size_t steps = setup.config.train.steps;
  std::vector<double> sums;
  clock::forecast_run(setup, times, warmup + steps, 0, {},
                      [&](std::size_t step, const std::vector<double>& lengths_ns) {
                        if (step < warmup) return true;
                        sums.resize(lengths_ns.size());
                        for (std::size_t rank = 0; rank < sums.size(); ++rank) sums[rank] += lengths_ns[rank];
                        return true;
                      });
  return static_cast<int>(std::ranges::max_element(sums) - sums.begin());
}

std::vector<int> recorded_ranks(const Setup& setup, const clock::OpTimes& times) {
  const int ranks = setup.plan.groups.ranks();
  const int wanted = ranks_recorded(setup.config.trace, ranks);
  std::vector<int> chosen;
  for (int rank = 0; rank < wanted; ++rank) chosen.push_back(rank);
  if (wanted == ranks || !times.ranks_differ()) return chosen;
  if (const int slowest = slowest_rank(setup, times); slowest >= wanted) chosen.back() = slowest;
  return chosen;
}

/// Host and injected trouble of the configuration.
void add_conditions(const config::RunConfig& config, clock::OpTimes& times) {
  const config::Simulate& simulate = config.simulate;
  const auto ns = [](double us) { return std::nearbyint(us * 1e3); };
  times.host.start_ns = 1e6;  // a record that begins at 0 is one of an op that did not run
  times.host.issue_ns += ns(simulate.host_issue_us);
  times.host.launch_ns += ns(simulate.launch_us);
  times.host.wake_ns += ns(simulate.wake_us);
  clock::add_trouble(config.inject, config.train.seed, static_cast<int>(config.mesh.ranks), times);
}

clock::ClusterUse use_of(const config::RunConfig& config, const config::Cluster* cluster) {
  const config::Simulate& simulate = config.simulate;
  clock::ClusterUse use;
  use.framework.compiled = simulate.compiled;
  using Loss = config::Simulate::Loss;
  use.framework.fused_loss = simulate.loss == Loss::fused || simulate.loss == Loss::chunked;
  use.framework.eager_loss =
      simulate.loss == Loss::eager || simulate.loss == Loss::referenced || simulate.loss == Loss::referenced_fp32;
  use.framework.fused_optimizer = simulate.fused_optimizer;
  use.framework.attention = static_cast<clock::Attention>(simulate.attention);
  use.framework.efficiency = simulate.efficiency.value;
  if (cluster != nullptr && !simulate.efficiency.of.empty()) {
    const config::EfficiencyUsed used = config::efficiency_used(config, *cluster, config::published_accuracy());
    use.framework.efficiency = used.value;
    use.measured = used.measured;
  }
  use.algorithm = static_cast<clock::Algorithm>(simulate.collectives);
  // NCCL takes them whatever its model says of the others; what is asked for by name is taken.
  const bool registered = config.nccl.register_buffers == config::NcclRegister::window;
  if (registered && use.algorithm == clock::Algorithm::automatic) {
    const bool zero = config.nccl.cta_policy == config::CtaPolicy::zero;
    use.algorithm = zero ? clock::Algorithm::copy_engine : clock::Algorithm::symmetric;
  }
  use.placement = static_cast<clock::Placement>(simulate.placement);
  return use;
}

}  // namespace

int ranks_recorded(const config::Trace& trace, int ranks) {
  if (ranks <= kMostRecordedRanks || trace.ranks == 0) return ranks;
  return static_cast<int>(std::clamp<std::int64_t>(trace.ranks, 2, ranks));
}

bool draws(const config::Simulate& simulate) {
  return simulate.jitter_pct > 0 || simulate.measured_jitter || simulate.pause_chance > 0 ||
         simulate.rank_jitter_pct > 0;
}

clock::OpTimes with_draws(const config::Simulate& simulate, int ranks, clock::OpTimes times) {
  // Lognormal: the standard deviation of the logarithm is that of the value, for the few per cent that are meant.
  const bool measured = simulate.measured_jitter && !times.measured_scatter.empty();
  if (simulate.jitter_pct > 0 || simulate.pause_chance > 0 || measured) {
    std::vector<std::vector<double>> distributions{clock::Jitter::lognormal(simulate.jitter_pct / 100)};
    if (measured) distributions = times.measured_scatter;
    times.jitter = clock::Jitter(simulate.seed, std::move(distributions), simulate.pause_chance,
                                 std::nearbyint(simulate.pause_us * 1e3));
  }
  if (simulate.rank_jitter_pct > 0) {
    std::vector<double> factors(ranks, 1e9);
    clock::Jitter(~simulate.seed, {clock::Jitter::lognormal(simulate.rank_jitter_pct / 100)})
        .apply(0, 0, 0, false, factors);
    times.compute_factor.resize(factors.size(), 1.0);
    for (std::size_t rank = 0; rank < factors.size(); ++rank) times.compute_factor[rank] *= factors[rank] / 1e9;
  }
  return times;
}

Measurement simulate(const Setup& setup, const clock::OpTimes& undrawn, const RunHooks& hooks) {
  const config::Train& train = setup.config.train;
  const clock::OpTimes times = with_draws(setup.config.simulate, setup.plan.groups.ranks(), undrawn);
  Measurement result;
  for (const int rank : recorded_ranks(setup, times)) result.traces.emplace_back().rank = rank;
  const bool some = static_cast<int>(result.traces.size()) < setup.plan.groups.ranks();
  const std::size_t warmup = train.warmup;
  const std::size_t steps = warmup + train.steps;
  backend::WireBytes sent{};
  const auto stops = [&] { return hooks.stop && hooks.stop(); };
  const auto after_step = [&](std::size_t step, const std::vector<double>& lengths_ns) {
    ++result.steps_done;
    if (step >= warmup) {
      const schedule::Schedule& schedule = setup.schedules.of_step(step);
      const backend::WireBytes bytes = wire_bytes(schedule, setup.plan.groups);
      for (std::size_t kind = 0; kind < sent.size(); ++kind) sent[kind] += bytes[kind];
      for (trace::RankTrace& trace : result.traces) {
        const std::span<const trace::Record> records = std::span(trace.records).last(schedule.ops.size());
        sample_memory(schedule, records, setup.memory.reserved, trace);
      }
      if (some) result.slowest_ns.push_back(static_cast<std::int64_t>(*std::ranges::max_element(lengths_ns)));
    }
    if (hooks.progress) hooks.progress(result.steps_done, std::nullopt);
    return step + 1 < steps && !stops();
  };
  if (!stops()) clock::forecast_run(setup, times, steps, warmup, result.traces, after_step);
  result.interrupted = result.steps_done < train.warmup + train.steps;
  result.memory.assign(result.traces.size(), setup.memory);
  result.host_memory.assign(result.traces.size(), setup.host_memory);
  result.wire_bytes.assign(result.traces.size(), sent);
  return result;
}

clock::OpTimes simulated_times(const schedule::Training& training, const config::Cluster* cluster, bool contention) {
  const config::Emulate& emulate = training.config.emulate;
  constexpr double kNoTime = std::numeric_limits<double>::infinity();  // what is not emulated
  clock::ClusterUse use = use_of(training.config, cluster);
  use.contention = contention;
  clock::OpTimes times = cluster != nullptr
                             ? clock::cluster_times(training, *cluster, use)
                             : clock::emulated_times(training, {emulate.compute_tflops.value_or(kNoTime) * 1e12,
                                                                emulate.link().value_or(LinkModel{kNoTime, 0}),
                                                                emulate.pcie().value_or(LinkModel{kNoTime, 0})});
  add_conditions(training.config, times);
  return times;
}

clock::CalibratedTimes calibrated_times(const schedule::Training& training, const config::Calibration& calibration,
                                        bool contention) {
  clock::CalibratedTimes calibrated = clock::calibrated_times(calibration, training);
  const plan::Groups& groups = training.plan.groups;
  const clock::SlowdownOf slowdown = clock::measured_slowdown(calibration.slowdowns, training.config, groups);
  if (slowdown && contention && groups.ranks() > 1) clock::add_contention(training, slowdown, calibrated.times);
  add_conditions(training.config, calibrated.times);
  return calibrated;
}

}  // namespace fsdpbench::engine
