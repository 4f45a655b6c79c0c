#include "clock/cluster_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <span>
#include <variant>
#include <vector>

#include "base/error.h"
#include "clock/collective_kinds.h"
#include "clock/compute_cost.h"
#include "clock/contention.h"
#include "clock/host_issue.h"
#include "clock/nccl_tuning.h"
#include "plan/module_work.h"

namespace fsdpbench::clock {
namespace {

CollectiveCost cost_of_collective(const schedule::Op& op, const plan::Plan& plan, const config::Cluster& cluster,
                                  const ClusterUse& use) {
  const GroupShape shape =
      shape_of(plan.groups.members(op.group(), 0), plan.groups.ranks(), cluster.gpus_per_node, use.placement);
  const auto bytes = static_cast<double>(message_of(op, plan.groups).bytes);
  const double part = bytes / shape.ranks / static_cast<double>(size_of(std::get<schedule::Collective>(op.work).dtype));
  const bool copied = use.algorithm == Algorithm::symmetric && nccl_copies(cluster, part);
  return collective_cost(cluster, schedule::collective_kind(op.kind), bytes, shape,
                         copied ? Algorithm::copy_engine : use.algorithm);
}

/// Seconds of a copy over PCIe, or of the host's computation on its memory.
double host_seconds(const schedule::Schedule& schedule, const schedule::Op& op, const config::Cluster& cluster) {
  const auto* copy = std::get_if<schedule::Transfer>(&op.work);
  const double bytes = copy != nullptr ? static_cast<double>(copy->bytes) : buffer_bytes(schedule, op);
  const double rate = copy != nullptr ? cluster.host.pcie_gb_per_s : cluster.host.memory_gb_per_s;
  if (rate == 0) {
    throw ConfigError(
        fmt::format("cluster '{}' has no host.{}, which fsdp.cpu_offload needs; copy its file, add the "
                    "key and name the copy in simulate.cluster.",
                    cluster.name, copy != nullptr ? "pcie_gb_per_s" : "memory_gb_per_s"));
  }
  return bytes / (rate * 1e9);
}

/// The bus bandwidth at which the largest messages of a group go.
double bus_rate(const plan::Plan& plan, const config::Cluster& cluster, const ClusterUse& use, plan::Group group) {
  const GroupShape shape =
      shape_of(plan.groups.members(group, 0), plan.groups.ranks(), cluster.gpus_per_node, use.placement);
  if (shape.ranks == 1) return 0;
  constexpr double kLarge = 1 << 30;
  const CollectiveCost cost = collective_cost(cluster, Collective::all_gather, kLarge, shape, use.algorithm);
  return kLarge * (shape.ranks - 1) / shape.ranks / cost.transfer_s;
}

/// Loads that collectives put on a GPU, each by the rate of its group. Those of one group that hold as many
/// multiprocessors have one load.
class Loads {
 public:
  Loads(const schedule::Schedule& schedule, const std::vector<plan::ModuleWork>& work, const ComputeCost& compute)
      : schedule_(schedule), work_(work), compute_(compute), of_op_(schedule.ops.size()) {}

  /// `ctas`: of CollectiveCost.
  void add(std::size_t op, int ctas, const plan::Plan& plan, const config::Cluster& cluster, const ClusterUse& use) {
    const plan::Group group = schedule_.ops[op].group();
    of_op_[op] = {group, ctas};
    if (slowdowns_.contains(of_op_[op])) return;
    GpuLoad beside = beside_collective(cluster, bus_rate(plan, cluster, use, group));
    if (ctas >= 0) beside.sms = ctas;
    slowdowns_[of_op_[op]] = slowdown_beside_collective(schedule_, work_, compute_, beside);
  }

  /// How many times as long `op` takes: of several at once that which takes most. Collectives take what they take.
  double slowdown(std::size_t op, std::span<const std::size_t> beside) const {
    if (schedule_.ops[op].is_collective()) return 1;
    double most = 1;
    for (const std::size_t other : beside) most = std::max(most, slowdowns_.at(of_op_[other])[op]);
    return most;
  }

 private:
  using Kind = std::pair<plan::Group, int>;

  const schedule::Schedule& schedule_;
  const std::vector<plan::ModuleWork>& work_;
  const ComputeCost& compute_;
  std::vector<Kind> of_op_;
  std::map<Kind, std::vector<double>> slowdowns_;
};

/// Seconds of products beside an exchange of ranks that split layers, op `exchange`, which is between two parts of a
/// module's pass. In backward the gather of a column product's input hides behind its input's gradient, and the scatter
/// of that behind the weight's gradient; other gathers hide behind the product of a rank's own rows (nanotron,
/// parallel/tensor_parallel/functional.py @2411b022, from Megatron-LM). Gradients of input and weight take as long.
double seconds_beside(const schedule::Schedule& schedule, std::size_t exchange, const std::vector<double>& seconds,
                      const std::vector<plan::ModuleWork>& work, int ranks) {
  const schedule::Op& op = schedule.ops[exchange];
  const bool gathers = op.kind == schedule::OpKind::tensor_all_gather;
  if (!gathers && op.kind != schedule::OpKind::tensor_reduce_scatter) return 0;
  const auto of_module = [&](const schedule::Op& o) { return o.module == op.module && o.lane == Lane::compute; };
  const auto here = schedule.ops.begin() + static_cast<std::ptrdiff_t>(exchange);
  const auto before = std::find_if(std::make_reverse_iterator(here), schedule.ops.rend(), of_module);
  const auto after = std::find_if(here, schedule.ops.end(), of_module);
  const bool back = before->kind == schedule::OpKind::backward;
  if (!gathers) return back ? seconds[schedule.ops.rend() - before - 1] / 2 : 0;
  const double half_after = seconds[after - schedule.ops.begin()] / 2;
  const bool block = work[op.module].kind == plan::ModuleKind::block;
  return back && (!block || schedule::part_of(*before) % 3 == 1) ? half_after : half_after / ranks;
}

}  // namespace

std::int64_t library_bytes(const config::Cluster& cluster) {
  // 32 MiB a thread since Hopper, before that 2 x 4 MiB and 8 x 16 KiB (at::cuda's parseChosenWorkspaceSize).
  return 2 * (cluster.gpu.fp8_gemm_fraction > 0 ? 33554432 : 8519680);
}

OpTimes cluster_times(const schedule::Training& training, const config::Cluster& cluster, const ClusterUse& use) {
  const config::RunConfig& config = training.config;
  const plan::Plan& plan = training.plan;
  const schedule::Schedules& schedules = training.schedules;
  const DType dtype = config.fsdp.param_dtype;
  GpuRates rates = gpu_rates(cluster, dtype);
  config::Model model = config.model;
  if (use.measured) rates.measured = cluster.measured;
  const bool nanotron = config.simulate.framework == config::Simulate::Framework::nanotron;
  if (nanotron) model.norm = config::Norm::layer;  // as LayerNorm: one kernel
  if (config::MeasuredGpu& measured = rates.measured;
      measured.eager_fraction > 0 && config.simulate.framework != config::Simulate::Framework::own) {
    rates.apart_fraction = measured.eager_fraction;
    measured.odd_output_tflops = measured.eager_odd_output_tflops;
    measured.odd_input_tflops = measured.eager_odd_input_tflops;
    // PyTorch's RMSNorm is one kernel, as LayerNorm is, since 2.9.
    if (config.simulate.framework != config::Simulate::Framework::transformers) model.norm = config::Norm::layer;
  }
  const bool decoder = config.model.kind == config::ModelKind::decoder;
  const std::vector<plan::ModuleWork> work =
      plan::module_work(plan::tensor_part(model, plan.mesh.tensor), config.train.batch_per_rank,
                        decoder ? config.train.seq_len : 1, config.mesh.sequence_parallel ? plan.mesh.tensor : 1,
                        plan::expert_split(config), config.fsdp.checkpoint_keeps, config.mesh.context);
  const ComputeCost compute(rates, use.framework, dtype, config.fsdp.fp8_products, config.fsdp.fp8_recipe);
  OpTimes times;
  times.workspace_bytes = library_bytes(cluster);
  const bool contention = use.contention && plan.groups.ranks() > 1;  // one rank needs no walks for it
  Loads loads(schedules.steady(), work, compute);
  for (const schedule::Schedule& schedule : schedules.steps) {
    const std::vector<double> seconds = compute_seconds(schedule, work, compute, {}, config.fsdp.recompute_share);
    StepCosts& costs = times.steps.emplace_back();
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
      const schedule::Op& op = schedule.ops[i];
      if (op.is_transfer() || (op.lane == Lane::host_compute && op.has_work())) {
        costs.push_back({std::nearbyint(host_seconds(schedule, op, cluster) * 1e9)});
        continue;
      }
      if (!op.is_collective()) {
        double own = seconds[i];
        if (nanotron && op.kind == schedule::OpKind::copy_out) {
          const plan::Unit& unit = plan.units[op.unit];
          const int copies = static_cast<int>(unit.members.parameters.size()) * plan.groups.size(unit.group);
          own += copies * compute.stream_seconds(1);  // a kernel for each rank's part of a parameter
        }
        costs.push_back({std::nearbyint(own * 1e9)});
        continue;
      }
      CollectiveCost cost = cost_of_collective(op, plan, cluster, use);
      if (nanotron && op.lane == Lane::tensor) {
        const double beside = seconds_beside(schedule, i, seconds, work, plan.mesh.tensor);
        cost.transfer_s = std::max(0.0, cost.transfer_s - std::max(0.0, beside - cost.latency_s));
        cost.latency_s = std::max(0.0, cost.latency_s - beside);
      }
      costs.push_back(
          {std::nearbyint(cost.latency_s * 1e9), std::nearbyint(cost.transfer_s * 1e9), static_cast<int>(cost.fabric)});
      if (&schedule != &schedules.steady()) continue;
      if (contention) loads.add(i, cost.ctas, plan, cluster, use);
      times.choices.resize(schedule.ops.size());
      times.choices[i] =
          fmt::format("{}, {}, {}", to_string(cost.algorithm), to_string(cost.protocol), to_string(cost.fabric));
    }
  }
  times.own_issue = host_issue(training, cluster, work, compute, times);
  if (contention) {
    add_contention(
        training,
        [&](const schedule::Schedule&, std::size_t op, std::span<const std::size_t> beside) {
          return loads.slowdown(op, beside);
        },
        times);
  }
  return times;
}

}  // namespace fsdpbench::clock
