#include "replay/cluster_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/intervals.h"
#include "replay/collective_message.h"
#include "replay/replay.h"

namespace fsdpbench::replay {
namespace {

using schedule::OpKind;

Collective collective_of(OpKind kind) {
  switch (kind) {
    case OpKind::reduce_scatter: return Collective::reduce_scatter;
    case OpKind::all_reduce:
    case OpKind::tensor_all_reduce: return Collective::all_reduce;
    case OpKind::all_to_all: return Collective::all_to_all;
    default: return Collective::all_gather;
  }
}

CollectiveCost cost_of_collective(const schedule::Op& op, const plan::Plan& plan, const config::Cluster& cluster,
                                  const ClusterUse& use) {
  const GroupShape shape =
      shape_of(plan.groups.members(op.group(), 0), plan.groups.ranks(), cluster.gpus_per_node, use.placement);
  const auto bytes = static_cast<double>(message_of(op, plan.groups).bytes);
  return collective_cost(cluster, collective_of(op.kind), bytes, shape, use.algorithm);
}

/// The bus bandwidth at which the shard group's largest messages go.
double bus_rate(const plan::Plan& plan, const config::Cluster& cluster, const ClusterUse& use) {
  const GroupShape shape =
      shape_of(plan.groups.members(plan::Group::shard, 0), plan.groups.ranks(), cluster.gpus_per_node, use.placement);
  if (shape.ranks == 1) return 0;
  constexpr double kLarge = 1 << 30;
  const CollectiveCost cost = collective_cost(cluster, Collective::all_gather, kLarge, shape, use.algorithm);
  return kLarge * (shape.ranks - 1) / shape.ranks / cost.transfer_s;
}

/// When one rank had a collective under way in its last step.
IntervalSet communication(const schedule::Schedule& schedule, const std::vector<trace::Record>& records) {
  std::vector<Interval> transfers;
  for (const trace::Record& record : records) {
    const schedule::Op& op = schedule.ops[static_cast<std::size_t>(record.op)];
    if (op.is_collective()) transfers.push_back({std::max(record.begin_ns, record.peers_arrived_ns), record.end_ns});
  }
  return unite(std::move(transfers));
}

/// Lengthens the steady step's computation by what ran beside collectives, until the step no longer changes.
void add_contention(const schedule::Schedules& schedules, const plan::Groups& groups,
                    const std::vector<double>& slowdown, OpTimes& times) {
  constexpr int kMostWalks = 8;
  const schedule::Schedule& steady = schedules.steady();
  StepCosts& costs = times.steps.back();
  const StepCosts alone = costs;
  double last_step = 0;
  for (int walk = 0; walk < kMostWalks; ++walk) {
    const auto replay = make_replay(schedules, groups, times);
    for (std::size_t step = 0; step < schedules.steps.size(); ++step) replay->step({});
    trace::RankTrace trace;
    replay->step({&trace, 1});
    const auto step = static_cast<double>(trace.steps.back().end_ns - trace.steps.back().begin_ns);
    if (std::abs(step - last_step) < 1e-3 * step) return;
    last_step = step;
    const IntervalSet transfers = communication(steady, trace.records);
    for (const trace::Record& record : trace.records) {
      const auto i = static_cast<std::size_t>(record.op);
      if (slowdown[i] <= 1 || steady.ops[i].is_collective() || record.end_ns <= record.begin_ns) continue;
      const auto beside = static_cast<double>(length_within({record.begin_ns, record.end_ns}, transfers)) /
                          static_cast<double>(record.end_ns - record.begin_ns);
      costs[i].run_ns = std::nearbyint(alone[i].run_ns / (1 - beside * (1 - 1 / slowdown[i])));
    }
  }
}

}  // namespace

OpTimes cluster_times(const schedule::Schedules& schedules, const plan::Plan& plan, const config::RunConfig& config,
                      const config::Cluster& cluster, const ClusterUse& use) {
  const bool decoder = config.model.kind == config::ModelKind::decoder;
  const std::vector<plan::ModuleWork> work =
      plan::module_work(plan::tensor_part(config.model, plan.mesh.tensor), config.train.batch_per_rank,
                        decoder ? config.train.seq_len : 1);
  const DType dtype = config.fsdp.param_dtype;
  const ComputeCost compute(gpu_rates(cluster, dtype), use.framework, dtype, config.fsdp.fp8_products);
  OpTimes times;
  for (const schedule::Schedule& schedule : schedules.steps) {
    const std::vector<double> seconds = compute_seconds(schedule, work, compute, {}, config.fsdp.recompute_share);
    StepCosts& costs = times.steps.emplace_back();
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      const schedule::Op& op = schedule.ops[i];
      if (!op.is_collective()) {
        costs.push_back({std::nearbyint(seconds[i] * 1e9), 0, 0});
        continue;
      }
      const CollectiveCost cost = cost_of_collective(op, plan, cluster, use);
      costs.push_back(
          {std::nearbyint(cost.latency_s * 1e9), std::nearbyint(cost.transfer_s * 1e9), static_cast<int>(cost.fabric)});
      if (&schedule != &schedules.steady()) continue;
      times.choices.resize(schedule.ops.size());
      times.choices[i] =
          fmt::format("{}, {}, {}", to_string(cost.algorithm), to_string(cost.protocol), to_string(cost.fabric));
    }
  }
  if (use.contention && plan.groups.ranks() > 1) {
    const Beside beside = beside_collective(cluster, bus_rate(plan, cluster, use));
    add_contention(schedules, plan.groups, slowdown_beside_collective(schedules.steady(), work, compute, beside),
                   times);
  }
  return times;
}

}  // namespace fsdpbench::replay
