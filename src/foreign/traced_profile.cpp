#include "foreign/traced_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "account/statistics.h"
#include "clock/calibration.h"
#include "clock/compute_cost.h"
#include "clock/measured_host.h"
#include "config/write.h"
#include "dialects/make_export.h"
#include "runs/build_info.h"
#include "runs/simulated_machine.h"

namespace fsdpbench::app {
namespace {

std::optional<double> above_zero(double value) { return value > 0 ? std::optional(value) : std::nullopt; }

/// Which of the two is wrong where more was achieved than is possible.
std::string whose_fault(const config::Cluster& cluster, const foreign::JobTrace& job) {
  const std::string first_word = cluster.gpu.name.substr(0, cluster.gpu.name.find(' '));
  for (const foreign::RankRows& rank : job.ranks) {
    if (!rank.device_model.empty() && rank.device_model.find(first_word) == std::string::npos) {
      return fmt::format("the trace is of {}, and {} has {}: the cluster is another one", rank.device_model,
                         cluster.name, cluster.gpu.name);
    }
  }
  return "so the sizes or the times in the trace are not those of what ran";
}

}  // namespace

clock::GroupShape shape_on_nodes(const std::vector<int>& ranks, int gpus_per_node) {
  std::map<int, int> nodes;
  for (const int rank : ranks) ++nodes[rank / std::max(1, gpus_per_node)];
  clock::GroupShape shape{static_cast<int>(ranks.size()), std::max(1, static_cast<int>(nodes.size())), 1};
  for (const auto& [node, of_node] : nodes) shape.per_node = std::max(shape.per_node, of_node);
  return shape;
}

std::optional<double> link_roof_gb_per_s(const config::Cluster& cluster, const foreign::ExplainedCollective& one) {
  if (one.group.size() < 2) return std::nullopt;
  const clock::GroupShape shape = shape_on_nodes(one.group, cluster.gpus_per_node);
  if (shape.nodes == 1) {
    return above_zero(one.kind == to_string(foreign::Communication::all_reduce)
                          ? std::max(cluster.intra.peak_gb_per_s, cluster.intra.nvls_gb_per_s)
                          : cluster.intra.peak_gb_per_s);
  }
  if (cluster.inter.kind == config::InterKind::none) return std::nullopt;
  const double nics = static_cast<double>(cluster.inter.nics_per_node) * shape.per_node / cluster.gpus_per_node;
  return above_zero(std::max(1.0, nics) * cluster.inter.nic_gb_per_s);
}

void add_roofs(const config::Cluster& cluster, const foreign::JobTrace& job, foreign::Explanation& explanation) {
  std::string beyond;
  for (foreign::ExplainedCollective& one : explanation.collectives) {
    one.link_gb_s = link_roof_gb_per_s(cluster, one);
    if (!one.link_gb_s || !one.busbw_gb_s) continue;
    if (*one.busbw_gb_s <= *one.link_gb_s) {
      one.link_share_pct = 100 * *one.busbw_gb_s / *one.link_gb_s;
    } else if (beyond.empty()) {
      beyond = fmt::format("{} {} achieved {:.4g} GB/s, where {} has {:.4g} at most: {}.", one.kind, one.unit,
                           *one.busbw_gb_s, cluster.name, *one.link_gb_s, whose_fault(cluster, job));
    }
  }
  if (!beyond.empty()) explanation.notes.push_back(beyond);
}

namespace {

/// Stretches each line so that the ops of the steady step that it is for take as long in all as they did, mean over
/// ranks and steps.
void keep_totals(const schedule::Training& training, const clock::MeasuredTimes& measured,
                 config::Calibration& calibration) {
  const schedule::Schedule& steady = training.schedules.steady();
  const clock::StepCosts costs = clock::calibrated_times(calibration, training).times.steps.back();
  const auto runs = static_cast<double>(measured.steps() * measured.ranks());
  struct Totals {
    double measured_ns = 0, line_ns = 0;
  };
  std::map<std::tuple<std::string, std::string, int>, Totals> totals;
  for (std::size_t i = 0; i < steady.ops.size(); ++i) {
    const schedule::Op& op = steady.ops[i];
    if (!op.has_work()) continue;
    const clock::OpWork work = clock::work_of(op, steady, training.plan.groups, training.sizes);
    Totals& total = totals[{std::string(to_string(op.kind)), std::string(to_string(work.unit)),
                            op.is_collective() ? training.plan.groups.size(op.group()) : 0}];
    total.line_ns += costs[i].run_ns + costs[i].link_ns;
    for (std::size_t step = 0; step < measured.steps(); ++step) {
      for (std::size_t rank = 0; rank < measured.ranks(); ++rank) {
        total.measured_ns += static_cast<double>(std::max<std::int64_t>(0, measured.ns(step, rank)[i])) / runs;
      }
    }
  }
  for (config::CalibrationLine& line : calibration.lines) {
    const Totals& total = totals[{line.kind, line.unit, line.ranks}];
    if (total.line_ns <= 0 || total.measured_ns <= 0) continue;
    const double stretch = total.measured_ns / total.line_ns;
    line.fixed_ns *= stretch;
    line.ns_per_amount *= stretch;
  }
}

}  // namespace

TracedProfile traced_profile(const foreign::JobTrace& job, const foreign::Recognition& found,
                             const AdoptedJob& adopted) {
  const engine::Setup& setup = adopted.setup;
  const clock::MeasuredTimes measured(setup, adopted.traces, std::nullopt, false);
  clock::Calibrator calibrator;
  calibrator.add(measured, clock::measured_host(setup.schedules, adopted.traces, {}));
  TracedProfile profile{found.name, setup.config, calibrator.result(), found.facts.unit_elements > 0,
                        adopted.metrics.step_ms.median};
  keep_totals(setup, measured, profile.calibration);
  profile.calibration.misses = {miss_of(profile.calibration, setup, adopted.metrics)};
  const std::string& device = job.ranks.front().device_model;
  profile.calibration.machine = fmt::format("{} of {}", device.empty() ? "the device" : device, found.name);
  profile.calibration.revision = build_info().git_revision;
  profile.config.device.backend = config::BackendKind::virtual_;
  return profile;
}

std::string profile_text(const TracedProfile& profile) {
  return fmt::format("# {}, as its trace has it. {}\n# {}\n", profile.program,
                     profile.sized
                         ? "Sizes of the model's parts are such that its units are as large."
                         : "Its trace has no sizes of collectives, so those of the model's parts are made up.",
                     dialects::kNotTold) +
         config::to_toml(profile.config);
}
namespace {

using account::Cause;

/// Causes that no setting of sharding takes away.
bool is_own(Cause cause) {
  return cause == Cause::host_bound || cause == Cause::host_sync || cause == Cause::host_update ||
         cause == Cause::data_loading;
}

}  // namespace

TracedStep traced_step(const foreign::Explanation& explanation, const AdoptedJob& adopted) {
  TracedStep traced;
  traced.step_ms = adopted.causes.step_ms;
  traced.replayed_ms = adopted.causes.typical_ms;
  traced.updated_ms = explanation.causes_ms[Cause::host_update];
  if (explanation.step_ms.n > 1) traced.scatter_ms = (explanation.step_ms.ci_high - explanation.step_ms.ci_low) / 2;
  for (const foreign::ExplainedRank& rank : explanation.ranks) {
    if (rank.steps.empty()) continue;
    double computed = 0, own = 0;
    for (const foreign::ExplainedStep& step : rank.steps) {
      computed += static_cast<double>(step.parts.computation);
      for (const Cause cause : kEnumerators<Cause>) own += is_own(cause) ? static_cast<double>(step.causes[cause]) : 0;
    }
    const double ms_per_step = 1e-6 / static_cast<double>(rank.steps.size());
    traced.computed_ms = std::max(traced.computed_ms, computed * ms_per_step);
    traced.least_ms = std::max(traced.least_ms, (computed + own) * ms_per_step);
  }
  const double shorter_ms = traced.step_ms - traced.replayed_all_ms();
  if (shorter_ms <= std::max(traced.scatter_ms, traced.step_ms / 100)) return traced;
  for (const account::CauseShare& share : explanation.causes) {
    const bool is_in_no_op = share.cause == Cause::straggler || share.cause == Cause::unknown || is_own(share.cause);
    if (!is_in_no_op || share.cause == Cause::host_update || share.ms * 10 < shorter_ms) continue;
    traced.left_out +=
        fmt::format("{}{} {:.3f} ms", traced.left_out.empty() ? "" : ", ", to_string(share.cause), share.ms);
  }
  return traced;
}

void count_from_trace(const TracedStep& step, double least_ms, account::Counterfactual& gain) {
  // For collectives that the trace does not have only others of their kind tell how long they would take.
  const double guessed = gain.adds_collectives ? gain.gain_ms : 0;
  const double doubt = std::hypot(step.miss_ms(), step.scatter_ms, guessed);
  if (doubt > 0 && gain.interval == account::IntervalKind::one_value) gain.interval = account::IntervalKind::range;
  const double below = std::hypot(gain.gain_ms - gain.ci_low, doubt),
               above = std::hypot(gain.ci_high - gain.gain_ms, doubt);
  gain.gain_ms = std::min(gain.gain_ms, std::max(0.0, step.step_ms - least_ms));
  gain.ci_low = gain.gain_ms - below;
  // The host may have less to do, but kernels run all the same.
  gain.ci_high = std::min(gain.gain_ms + above, std::max(0.0, step.step_ms - step.computed_ms));
  gain.step_ms = step.step_ms - gain.gain_ms;
  gain.advised = gain.advised && gain.ci_low > 0;
  gain.more_bytes.reset();  // no trace tells what activations take, and with them when memory peaks
}

void count_from_trace(const TracedStep& step, tune::SearchResult& result) {
  const double replayed_ns = result.start().step_ns;
  for (tune::Tried& tried : result.tried) {
    const double gain_ns = std::min(replayed_ns - tried.step_ns, std::max(0.0, step.step_ms - step.least_ms) * 1e6);
    tried.step_ns = step.step_ms * 1e6 - gain_ns;
  }
}

void count_from_trace(const TracedStep& step, tune::Answer& answer) {
  const double doubt = std::hypot(step.miss_ms(), step.scatter_ms) / step.step_ms;
  const double most = std::max(0.0, 1 - step.least_ms / step.step_ms);
  const double scale = step.replayed_ms / step.step_ms;
  const double low = answer.gain_low.value_or(answer.gain) * scale,
               high = answer.gain_high.value_or(answer.gain) * scale;
  answer.gain = std::min(answer.gain * scale, most);
  answer.gain_low = std::min(answer.gain - std::hypot(answer.gain - std::min(low, answer.gain), doubt), most);
  answer.gain_high = std::min(answer.gain + std::hypot(std::max(high, answer.gain) - answer.gain, doubt), most);
  for (tune::TurnedKnob& knob : answer.turned) {
    for (std::optional<double>* part : {&knob.alone, &knob.last_in}) {
      if (*part) *part = std::min(**part * scale, most);
    }
  }
  answer.keep = answer.keep || *answer.gain_low <= 0;
}

std::string held_up_because(const foreign::JobTrace& job, const foreign::Explanation& explanation) {
  const std::optional<foreign::LateRank>& late = explanation.late;
  if (!late || !late->certain() || late->late_ms.median * 2 <= explanation.exposed_communication_ms) return {};
  return fmt::format("rank {} holds the others up for {:.3f} ms of a step; settings are worth trying once it does not.",
                     job.ranks[late->place].rank, late->late_ms.median);
}

std::string replay_error_sentence(const TracedStep& step) {
  constexpr double kPracticalMiss = 0.03;
  const double miss = step.replayed_all_ms() / step.step_ms - 1;
  const bool steady = std::abs(miss) < kPracticalMiss || std::abs(miss) * step.step_ms > step.scatter_ms;
  return fmt::format(
      "A replay of the job's op times{} takes {:.3f} ms, {:.1f} % {} than the traced step ({:.3f} ms, median){}. That "
      "error is part of each interval below, and no setting makes the step shorter than {:.3f} ms, which one rank "
      "needs "
      "for its own kernels and its host.",
      step.updated_ms > 0 ? fmt::format(" and {:.3f} ms of the host's update", step.updated_ms) : "",
      step.replayed_all_ms(), std::abs(100 * miss), miss < 0 ? "less" : "more", step.step_ms,
      !step.left_out.empty() ? ": no op has what the step waits for beside them, " + step.left_out
      : steady               ? ""
                             : ", which is no more than steps differ by",
      step.least_ms);
}

}  // namespace fsdpbench::app
