#include "runs/simulated_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "account/run_view.h"
#include "account/statistics.h"
#include "account/step_breakdown.h"
#include "base/error.h"
#include "clock/collective_cost.h"
#include "clock/collective_kinds.h"
#include "clock/forecast.h"
#include "clock/op_times.h"
#include "config/presets.h"
#include "engine/setup.h"
#include "engine/simulate.h"
#include "model/model.h"

namespace fsdpbench::app {

SteadyStep steady_step(const engine::Setup& setup, const clock::OpTimes& times) {
  const int ranks = setup.plan.groups.ranks();
  const bool all = times.ranks_differ() && ranks <= engine::kMostRecordedRanks;
  const clock::Forecast step = clock::forecast(setup, times, clock::SteadyStep::first, all ? ranks : 1);
  SteadyStep result;
  result.ms = step.slowest_ns() * 1e-6;
  const account::RunView run(setup.schedules, step.traces);
  for (int place = 0; place < run.ranks(); ++place) {
    const account::StepBreakdown parts = account::break_down(run.steps().front(), place);
    result.exposed_ms += static_cast<double>(parts.exposed_communication) * 1e-6 / run.ranks();
  }
  return result;
}

config::Calibration::Miss miss_of(const config::Calibration& calibration, const engine::Setup& setup,
                                  const account::RunMetrics& measured) {
  const SteadyStep says = steady_step(setup, engine::calibrated_times(setup, calibration).times);
  return {measured.step_ms.median / says.ms - 1, (measured.exposed_comm_ms - says.exposed_ms) / says.ms};
}
namespace {

using config::ErrorKind;

bool within(const config::AccuracyRows& rows, const std::string& cluster, int ranks, double bytes, double tokens) {
  return std::ranges::find(rows.clusters, cluster) != rows.clusters.end() && ranks >= rows.least_ranks &&
         ranks <= rows.most_ranks && bytes >= rows.least_bytes && bytes <= rows.most_bytes &&
         tokens >= rows.least_tokens && tokens <= rows.most_tokens;
}

clock::GroupShape shape_of(const schedule::Training& training, const config::Cluster& cluster, const schedule::Op& op) {
  const plan::Groups& groups = training.plan.groups;
  const auto placement = static_cast<clock::Placement>(training.config.simulate.placement);
  return clock::shape_of(groups.members(op.group(), 0), groups.ranks(), cluster.gpus_per_node, placement);
}

/// Small messages in a node are only beyond the rows of larger ones there: what scatters is the latency between nodes.
ErrorKind error_kind_of(const schedule::Training& training, const config::Cluster& cluster, const schedule::Op& op,
                        double bytes) {
  if (shape_of(training, cluster, op).nodes == 1) return ErrorKind::in_node;
  return bytes < config::Accuracy::kLargeBytes ? ErrorKind::small : ErrorKind::between_nodes;
}

/// Whether the clock takes NCCL's symmetric kernels or copy engines for the op. Seven rows of one source measured the
/// kernels, on one cluster, and no kind of errors is theirs: whatever their size, they are beyond the rows of others.
bool symmetric(const schedule::Training& training, const config::Cluster& cluster, const schedule::Op& op) {
  const config::RunConfig& config = training.config;
  if (config.nccl.register_buffers != config::NcclRegister::window ||
      config.simulate.collectives != config::Simulate::Collectives::automatic) {
    return false;
  }
  return clock::can_run(clock::Algorithm::symmetric, clock::Collective::all_gather, cluster,
                        shape_of(training, cluster, op));
}

/// Beyond what rows were measured of, errors count double: that they grow is known, how fast is not.
constexpr double kBeyondRows = 2;

void shuffle(std::vector<double>& draws, clock::Sequence& random) {
  for (std::size_t left = draws.size(); left > 1; --left) std::swap(draws[left - 1], draws[random.below(left)]);
}

/// Standard deviation of what a pass takes over what measured kernels say: those of products of 24 shapes on the H100
/// lie within 4 % of them (root of the mean square), and the sums of a step's kernels within 3 %.
constexpr double kMeasuredSpread = 0.03;

/// In a random order.
std::vector<double> lognormal_draws(double sigma, clock::Sequence& random) {
  std::vector<double> draws = clock::Jitter::lognormal(sigma, clock::Uncertainty::kDraws);
  shuffle(draws, random);
  return draws;
}

/// The quantiles of the rows' errors, in an order that is another one for each kind: kinds err for themselves.
/// `power`: of each ratio.
std::vector<double> draws_of(const config::AccuracyRows& rows, ErrorKind kind, double power) {
  const int sources = rows.distinct_sources();
  std::vector<double> draws;
  for (int draw = 1; draw <= clock::Uncertainty::kDraws; ++draw) {
    const double p = draw / (clock::Uncertainty::kDraws + 1.0);
    draws.push_back(std::pow(clock::quantile_of_next(rows.time_ratios, sources, p), power));
  }
  clock::Sequence random(static_cast<std::uint64_t>(kind) + 1);
  shuffle(draws, random);
  return draws;
}

/// Draws for collectives over so many nodes, where a curve says between which parts of its rate measurements lay: as
/// often below it as above, and there by any part of the way. What a step sends in many messages scatters less than
/// one that is measured alone; none of those was larger than the curve's. `large`: twice as large, or more, which is
/// beyond what was measured.
std::vector<double> draws_of(const config::InterFabric& inter, int nodes, bool large) {
  const double longest = -std::log(config::at_nodes(inter, large ? inter.curve_low : inter.steps_low, nodes)),
               shortest = -std::log(config::at_nodes(inter, large ? inter.curve_high : inter.steps_high, nodes));
  std::vector<double> draws;
  for (int draw = 1; draw <= clock::Uncertainty::kDraws; ++draw) {
    const double p = 2.0 * draw / (clock::Uncertainty::kDraws + 1.0) - 1;
    draws.push_back(std::exp((large ? kBeyondRows : 1) * (p < 0 ? -p * shortest : p * longest)));
  }
  clock::Sequence random(kEnumCount<ErrorKind> + 2);
  shuffle(draws, random);
  return draws;
}

}  // namespace

clock::Uncertainty published_uncertainty(const schedule::Training& training, const config::Cluster& cluster,
                                         const config::Accuracy& accuracy, const clock::OpTimes& times) {
  const config::RunConfig& config = training.config;
  const config::EfficiencyUsed efficiency = config::efficiency_used(config, cluster, accuracy);
  clock::Uncertainty uncertainty;
  // By kind: within its rows, and beyond them; of kernels that were measured, and of a measured curve.
  constexpr std::size_t kMeasured = 2 * kEnumCount<ErrorKind>;
  const bool curve = !cluster.inter.curve_nodes.empty();
  uncertainty.ratios.resize(kMeasured + 3);
  // Several groups at once are as slow as the slowest: their nodes are all nodes of the training.
  const int nodes = (training.plan.groups.ranks() + cluster.gpus_per_node - 1) / cluster.gpus_per_node;
  for (const bool large : {false, true}) {
    if (curve) uncertainty.ratios[kMeasured + 1 + large] = draws_of(cluster.inter, nodes, large);
  }
  clock::Sequence random(kEnumCount<ErrorKind> + 1);
  uncertainty.own_issue = lognormal_draws(config::host_times(config).spread, random);
  uncertainty.ratios[kMeasured] = lognormal_draws(kMeasuredSpread, random);
  const plan::Groups& groups = training.plan.groups;
  const auto tokens = static_cast<double>(config.train.batch_per_rank * config.train.seq_len / config.mesh.context);
  for (std::size_t step = 0; step < times.steps.size(); ++step) {
    const schedule::Schedule& schedule = training.schedules.steps[step];
    std::vector<int>& source = uncertainty.source.emplace_back();
    for (const schedule::Op& op : schedule.ops) {
      source.push_back(-1);
      const bool collective = op.is_collective();
      const int ranks = collective ? groups.size(op.group()) : groups.ranks();
      if (!op.has_work() || (collective && ranks == 1)) continue;
      const double bytes = collective ? static_cast<double>(clock::message_of(op, groups).bytes) : 0;
      if (!collective && efficiency.measured) {
        source.back() = kMeasured;
        if (&schedule == &training.schedules.steady()) ++uncertainty.reach[clock::Reach::interpolated];
        continue;
      }
      ErrorKind kind = collective ? error_kind_of(training, cluster, op, bytes) : efficiency.kind;
      if (collective && curve && shape_of(training, cluster, op).nodes > 1) {
        source.back() = kMeasured + 1 + (op.lane == Lane::tensor && bytes >= 2 * clock::kCurveBytes);
        if (&schedule == &training.schedules.steady()) ++uncertainty.reach[clock::Reach::interpolated];
        continue;
      }
      // A rate that was measured there leaves what the model's form misses, as within a node.
      const bool asked = kind == ErrorKind::between_nodes && cluster.inter.asked;
      if (asked) kind = ErrorKind::in_node;
      // The model of computation is one for all trainings: how far it reaches, all of their rows say.
      const config::AccuracyRows& range = accuracy.rows[collective ? kind : ErrorKind::typical];
      const bool known = (asked || within(range, cluster.name, ranks, bytes, collective ? 0 : tokens)) &&
                         !(collective && symmetric(training, cluster, op));
      source.back() = 2 * static_cast<int>(kind) + (known ? 0 : 1);
      std::vector<double>& draws = uncertainty.ratios[source.back()];
      if (draws.empty()) draws = draws_of(accuracy.rows[kind], kind, known ? 1 : kBeyondRows);
      if (&schedule != &training.schedules.steady()) continue;
      ++uncertainty.reach[known ? clock::Reach::interpolated : clock::Reach::extrapolated];
    }
  }
  return uncertainty;
}

std::vector<plan::ModuleSizes> ModelSizes::of(const config::RunConfig& config) const {
  const std::lock_guard lock(mutex_);
  std::vector<plan::ModuleSizes>& known = known_[{config.train.batch_per_rank, config.train.seq_len,
                                                  config.fsdp.param_dtype, config.mesh.context, config.mesh.expert}];
  if (known.empty()) known = model::make_model(config, plan::model_shapes(config.model))->sizes();
  return known;
}

SimulatedMachine::SimulatedMachine(const config::RunConfig& config, bool with_luck) : with_luck_(with_luck) {
  if (!config.simulate.calibration.empty()) {
    calibration_ = config::read_calibration(config.simulate.calibration);
    basis_ = fmt::format("the calibration of {}", calibration_->machine);
    return;
  }
  if (!config.simulate.cluster.empty()) {
    cluster_ = config::load_cluster(config.simulate.cluster);
    config::check_fits(*cluster_, config.mesh.ranks);
    accuracy_ = config::published_accuracy();
    basis_ = "published rates";
    const config::EfficiencyUsed used = config::efficiency_used(config, *cluster_, *accuracy_);
    if (used.kind != ErrorKind::typical || !config.simulate.efficiency.of.empty()) {
      basis_ += fmt::format(", efficiency {:.3g}: {}", used.value, used.from);
    }
    return;
  }
  if (!config.emulate.compute_tflops || (config.mesh.ranks > 1 && !config.emulate.link_gb_per_s)) {
    throw ConfigError(
        "nothing says how fast this training's ranks and links are: name a machine (--cluster), a calibration (--set "
        "simulate.calibration=FILE), rates (emulate.compute_tflops and emulate.link_gb_per_s), or a finished run "
        "(--from).");
  }
  basis_ = "given rates";
}

std::vector<plan::ModuleSizes> SimulatedMachine::sizes(const config::RunConfig& config) const {
  return sizes_.of(config);
}

SimulatedTimes SimulatedMachine::times(const schedule::Training& training, bool uncertainty,
                                       const clock::Changes& changes) const {
  clock::Changes possible;
  possible.link_scale = changes.link_scale;
  possible.compute_scale = changes.compute_scale;
  possible.issue_ns = changes.issue_ns;
  possible.draw = changes.draw;
  if (changes != possible) throw std::logic_error("SimulatedMachine: a change that only a finished run can tell");
  SimulatedTimes simulated;
  if (calibration_) {
    clock::CalibratedTimes calibrated = engine::calibrated_times(training, *calibration_);
    simulated = {std::move(calibrated.times), std::move(calibrated.uncertainty), calibrated.spread_pct,
                 calibrated.crowded};
  } else {
    simulated.times = engine::simulated_times(training, cluster());
    if (uncertainty && accuracy_) {
      simulated.uncertainty = published_uncertainty(training, *cluster_, *accuracy_, simulated.times);
    }
  }
  clock::OpTimes& times = simulated.times;
  times.host.issue_ns += changes.issue_ns;
  if (changes.link_scale == 1 && changes.compute_scale == 1) return simulated;
  for (std::size_t step = 0; step < times.steps.size(); ++step) {
    const std::vector<schedule::Op>& ops = training.schedules.steps[step].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      clock::OpCost& cost = times.steps[step][i];
      cost.link_ns = std::nearbyint(cost.link_ns / changes.link_scale);
      if (ops[i].module >= 0) cost.run_ns = std::nearbyint(cost.run_ns / changes.compute_scale);
    }
  }
  return simulated;
}

clock::Forecast SimulatedMachine::forecast(const schedule::Training& training, const clock::Changes& changes) const {
  SimulatedTimes simulated = times(training, changes.draw >= 0, changes);
  if (changes.draw >= 0 && simulated.uncertainty) {
    simulated.times = clock::drawn(std::move(simulated.times), *simulated.uncertainty, changes.draw);
  }
  if (!with_luck_) return clock::forecast(training, simulated.times);
  const config::RunConfig& config = training.config;
  const clock::OpTimes times =
      engine::with_draws(config.simulate, training.plan.groups.ranks(), std::move(simulated.times));
  const std::size_t warmup = config.train.warmup, steps = warmup + config.train.steps;
  std::vector<double> slowest_ns;
  clock::forecast_run(training, times, steps, 0, {}, [&](std::size_t step, const std::vector<double>& lengths_ns) {
    if (step >= warmup) slowest_ns.push_back(std::ranges::max(lengths_ns));
    return step + 1 < steps;
  });
  return {{account::median(std::move(slowest_ns))}, {}};
}

std::optional<double> SimulatedMachine::doubt(const schedule::Training& /*training*/, double gain) const {
  // 53 of the 55 published pairs of trainings of one model on one GPU that differ in settings are within 13 % of
  // the predicted ratio, whatever it is; of small gains so much is known that most are there (docs/published.md).
  constexpr double kMost = 0.13, kOfGain = 0.6;
  return accuracy_ ? std::min(kMost, kOfGain * std::abs(gain)) : 0;
}

clock::LeastTimes SimulatedMachine::least_times(const schedule::Training& training) const {
  if (calibration_) {
    return {engine::calibrated_times(training, *calibration_, false).times.steps.back()};
  }
  clock::OpTimes times = engine::simulated_times(training, cluster(), false);
  clock::LeastTimes least{std::move(times.steps.back())};
  if (cluster() != nullptr && !times.own_issue.empty()) {
    const std::vector<double>& issue = times.own_issue.back();
    least.issue_ns = std::accumulate(issue.begin(), issue.end(), 0.0);
  }
  return least;
}

std::unique_ptr<SimulatedMachine> machine_of_run(const config::RunConfig& config) {
  const bool simulated = config.device.backend == config::BackendKind::virtual_;
  const bool known = !config.simulate.cluster.empty() || !config.simulate.calibration.empty();
  const bool lucky = engine::draws(config.simulate) || config.inject.jitter_us > 0;
  return simulated && known ? std::make_unique<SimulatedMachine>(config, lucky) : nullptr;
}

account::EvenRows even_rows(const schedule::Training& training, const clock::OpTimes& times) {
  config::RunConfig config = training.config;
  if (plan::expert_split(config).imbalance == plan::even_expert_split(config).imbalance) return {};
  config.mesh.expert_imbalance = 1;
  const engine::Setup even = engine::set_up(config);
  const clock::OpTimes even_times = SimulatedMachine(config).times(even, false).times;
  const clock::StepCosts& is = even_times.steps.back();
  const clock::StepCosts& was = times.steps.back();
  account::EvenRows shares;
  for (std::size_t i = 0; i < was.size(); ++i) {
    const double ns = was[i].run_ns + was[i].link_ns;
    shares.push_back(ns > 0 ? (is[i].run_ns + is[i].link_ns) / ns : 1);
  }
  return shares;
}

}  // namespace fsdpbench::app
