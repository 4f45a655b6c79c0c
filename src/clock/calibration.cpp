#include "clock/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/student.h"
#include "clock/op_times.h"

namespace fsdpbench::clock {
namespace {

using config::CalibrationLine;

constexpr std::size_t kOffQuantiles = 16;
constexpr std::size_t kResidualQuantiles = 64;
constexpr std::uint64_t kSeed = 20261122;

int rank_count_of(const schedule::Op& op, const plan::Groups& groups) {
  return op.is_collective() ? groups.size(op.group()) : 0;
}

/// As work_of(), with a fixed part of its own for matrix products as well.
OpWork calibrated_work(const schedule::Op& op, const schedule::Schedule& schedule, const schedule::Training& training) {
  OpWork work = work_of(op, schedule, training.plan.groups, training.sizes);
  if (work.unit == OpWork::Unit::flops) work.fixed = 1;
  return work;
}

/// Those of `values` at (i + 1/2) / count, ascending; all of fewer; {1} of none.
std::vector<double> quantiles(std::vector<double> values, std::size_t count) {
  if (values.empty()) return {1};
  std::ranges::sort(values);
  count = std::min(count, values.size());
  std::vector<double> some;
  for (std::size_t i = 0; i < count; ++i) some.push_back(values[(2 * i + 1) * values.size() / (2 * count)]);
  return some;
}

/// Standard error of the median of `ns` in `steps` steps, as if normal: ranks of one step are not independent.
double error_of_median(std::vector<double> ns, std::size_t steps) {
  std::ranges::sort(ns);
  const auto quarter = [&](std::size_t q) { return ns[(ns.size() - 1) * q / 4]; };
  constexpr double kSigmaOfQuartiles = 1 / 1.349, kMedianOverMean = 1.2533;
  return (quarter(3) - quarter(1)) * kSigmaOfQuartiles * kMedianOverMean / std::sqrt(static_cast<double>(steps));
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The steps of the last one's schedule.
std::vector<std::size_t> steps_like_last(const MeasuredTimes& run) {
  std::vector<std::size_t> steps;
  for (std::size_t step = 0; step < run.steps(); ++step) {
    if (&run.schedule_of(step) == &run.schedule_of(run.steps() - 1)) steps.push_back(step);
  }
  return steps;
}

/// Those of `of` that are neither among the third whose ops took least nor most, in order.
std::vector<std::size_t> middle_third(const MeasuredTimes& run, const std::vector<std::size_t>& of) {
  std::vector<std::pair<double, std::size_t>> steps;
  for (const std::size_t step : of) {
    double sum = 0;
    for (std::size_t rank = 0; rank < run.ranks(); ++rank) {
      for (const std::int64_t ns : run.ns(step, rank)) sum += static_cast<double>(ns);
    }
    steps.emplace_back(sum, step);
  }
  std::ranges::sort(steps);
  const std::size_t left_out = (steps.size() - 1) / 3;
  std::vector<std::size_t> middle;
  for (std::size_t i = left_out; i < steps.size() - left_out; ++i) middle.push_back(steps[i].second);
  std::ranges::sort(middle);
  return middle;
}

double off(const LineFit& fit, const LineSample& sample) {
  const double ns = fit.ns(sample.fixed, sample.amount);
  return ns > 0 ? sample.ns / ns : 1;
}

double ns_of(const CalibrationLine& line, const OpWork& work) {
  return line.fixed_ns * work.fixed + line.ns_per_amount * work.amount;
}

/// The lines of a kind, that of the nearest number of ranks first; its number in the calibration.
std::vector<std::size_t> nearest_lines(const config::Calibration& calibration, const schedule::Op& op,
                                       OpWork::Unit unit, int ranks) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < calibration.lines.size(); ++i) {
    const CalibrationLine& line = calibration.lines[i];
    if (line.kind == to_string(op.kind) && line.unit == to_string(unit)) found.push_back(i);
  }
  std::ranges::stable_sort(found, {}, [&](std::size_t i) { return std::abs(calibration.lines[i].ranks - ranks); });
  return found;
}

Reach reach_of(const CalibrationLine& line, int ranks, double amount) {
  constexpr double kSame = 0.01;
  if (line.ranks != ranks) return Reach::extrapolated;
  for (const double known : {line.least, line.most}) {
    if (std::abs(amount - known) <= kSame * known) return Reach::measured;
  }
  return std::clamp(amount, line.least, line.most) == amount ? Reach::interpolated : Reach::extrapolated;
}

/// Ratios of ops of one line and size to what it says, by draw: another fit of the line, the distance of an op
/// from it, and, where it is the line of another number of ranks, up to as much as the next line differs.
std::vector<double> ratios_of(const CalibrationLine& line, const CalibrationLine* next, const OpWork& work,
                              Sequence random) {
  const double ns = ns_of(line, work);
  if (!(ns > 0)) return std::vector<double>(Uncertainty::kDraws, 1.0);
  double apart = 0;
  if (next != nullptr && ns_of(*next, work) > 0) apart = std::log(ns_of(*next, work) / ns);
  std::vector<double> ratios;
  for (std::size_t draw = 0; draw < Uncertainty::kDraws; ++draw) {
    const CalibrationLine::Refit& refit = line.refits[draw % line.refits.size()];
    const double refitted = refit.fixed_ns * work.fixed + refit.ns_per_amount * work.amount;
    ratios.push_back(refitted / ns * line.off[random.below(line.off.size())] *
                     std::exp(apart * (2 * random.uniform() - 1)));
  }
  return ratios;
}

HostCosts host_of(const config::Calibration::Host& host) {
  return {.issue_ns = std::nearbyint(host.issue_ns),
          .launch_ns = std::nearbyint(host.launch_ns),
          .gap_ns = std::nearbyint(host.gap_ns),
          .wake_ns = std::nearbyint(host.wake_ns)};
}

/// Costs that each draw adds to the host's.
std::vector<HostCosts> host_draws(const config::Calibration& calibration) {
  std::vector<HostCosts> draws;
  const config::Calibration::Host& host = calibration.host;
  for (std::size_t draw = 0; draw < Uncertainty::kDraws; ++draw) {
    const config::Calibration::Host& refit = calibration.host_refits[draw % calibration.host_refits.size()];
    draws.push_back({.issue_ns = refit.issue_ns - host.issue_ns,
                     .launch_ns = refit.launch_ns - host.launch_ns,
                     .gap_ns = refit.gap_ns - host.gap_ns,
                     .wake_ns = refit.wake_ns - host.wake_ns});
  }
  return draws;
}

/// Medians over runs.
config::Calibration::Host middle_of(const std::vector<HostCosts>& runs) {
  const auto of = [&](double HostCosts::*member) {
    std::vector<double> values;
    for (const HostCosts& costs : runs) values.push_back(costs.*member);
    return lower_median(std::move(values));
  };
  return {of(&HostCosts::issue_ns), of(&HostCosts::launch_ns), of(&HostCosts::gap_ns), of(&HostCosts::wake_ns)};
}

}  // namespace

void Calibrator::add(const MeasuredTimes& run, const HostCosts& host) {
  const std::size_t number = hosts_.size();
  hosts_.push_back(host);
  const std::size_t last = run.steps() - 1;
  const schedule::Schedule& schedule = run.schedule_of(last);
  const std::vector<std::size_t> steps = steps_like_last(run), middle = middle_third(run, steps);
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const schedule::Op& op = schedule.ops[i];
    if (!op.has_work()) continue;
    const OpWork work = calibrated_work(op, schedule, run.run());
    std::vector<double> all, typical, residuals;
    for (std::size_t rank = 0; rank < run.ranks(); ++rank) {
      if (run.ns(last, rank)[i] == MeasuredTimes::kNone) continue;  // nor in any other step
      std::vector<double> mine;
      for (const std::size_t step : steps) {
        mine.push_back(static_cast<double>(run.ns(step, rank)[i]));
        if (std::ranges::binary_search(middle, step)) typical.push_back(mine.back());
      }
      all.insert(all.end(), mine.begin(), mine.end());
      const double mean = mean_of(mine);
      for (const double ns : mine) {
        if (mine.size() > 1 && ns > 0) residuals.push_back(ns / mean);
      }
    }
    if (all.empty()) continue;
    const auto [low, high] = std::ranges::minmax(all);
    LineSamples& seen = seen_[{op.kind, work.unit, rank_count_of(op, run.run().plan.groups)}];
    seen.residuals.insert(seen.residuals.end(), residuals.begin(), residuals.end());
    seen.samples.push_back({{work.fixed, work.amount, mean_of(typical), (high - low) / 2},
                            error_of_median(std::move(all), steps.size()),
                            number});
  }
}

std::vector<CalibrationLine::Refit> Calibrator::refits(const LineFit& fit, const std::vector<Sample>& samples) {
  std::map<std::size_t, std::vector<double>> by_run;
  for (const Sample& sample : samples) by_run[sample.run].push_back(off(fit, sample.line));
  std::vector<CalibrationLine::Refit> refits;
  for (int draw = 0; draw < Uncertainty::kDraws; ++draw) {
    Sequence random(kSeed + static_cast<std::uint64_t>(draw));
    std::map<std::size_t, const std::vector<double>*> instead;
    for (const auto& [run, offs] : by_run) {
      instead[run] = &std::next(by_run.begin(), static_cast<std::ptrdiff_t>(random.below(by_run.size())))->second;
    }
    std::vector<LineSample> drawn;
    for (const Sample& sample : samples) {
      const std::vector<double>& offs = *instead[sample.run];
      LineSample line = sample.line;
      line.ns = fit.ns(line.fixed, line.amount) * offs[random.below(offs.size())];
      line.ns = std::max(0.0, line.ns + sample.error_ns * random.normal());
      drawn.push_back(line);
    }
    const LineFit other = fit_line(drawn);
    refits.push_back({other.fixed_ns, other.ns_per_amount});
  }
  return refits;
}

config::Calibration Calibrator::result() const {
  config::Calibration c;
  c.host = middle_of(hosts_);
  for (int draw = 0; draw < Uncertainty::kDraws; ++draw) {
    Sequence random(kSeed + static_cast<std::uint64_t>(draw));
    std::vector<HostCosts> instead;
    for (std::size_t run = 0; run < hosts_.size(); ++run) instead.push_back(hosts_[random.below(hosts_.size())]);
    c.host_refits.push_back(middle_of(instead));
  }
  for (const auto& [key, seen] : seen_) {
    std::vector<LineSample> samples;
    for (const Sample& sample : seen.samples) samples.push_back(sample.line);
    const LineFit fit = fit_line(samples);
    const auto& [kind, unit, ranks] = key;
    CalibrationLine line;
    line.kind = to_string(kind);
    line.unit = to_string(unit);
    line.ranks = ranks;
    line.fixed_ns = fit.fixed_ns;
    line.ns_per_amount = fit.ns_per_amount;
    const auto [least, most] = std::ranges::minmax(samples, {}, &LineSample::amount);
    line.least = least.amount;
    line.most = most.amount;
    line.samples = static_cast<int>(samples.size());
    std::vector<double> offs, spread;
    for (const LineSample& s : samples) {
      offs.push_back(off(fit, s));
      spread.push_back(s.ns > 0 ? 100 * std::abs(fit.ns(s.fixed, s.amount) / s.ns - 1) : 0);
    }
    line.spread_pct = lower_median(std::move(spread));
    line.refits = refits(fit, seen.samples);
    line.off = quantiles(std::move(offs), kOffQuantiles);
    line.residuals = quantiles(seen.residuals, kResidualQuantiles);
    c.lines.push_back(std::move(line));
  }
  return c;
}

double crowding(const config::Calibration& calibration, int ranks) {
  if (calibration.cores <= 0) return 1;
  const auto on_a_core = [&](int number) { return std::max(1.0, static_cast<double>(number) / calibration.cores); };
  return on_a_core(ranks) / on_a_core(calibration.ranks);
}

CalibratedTimes calibrated_times(const config::Calibration& calibration, const schedule::Training& training) {
  CalibratedTimes result;
  result.crowded = crowding(calibration, training.plan.groups.ranks());
  OpTimes& times = result.times;
  times.host = host_of(calibration.host);
  for (const CalibrationLine& line : calibration.lines) times.measured_scatter.push_back(line.residuals);
  Uncertainty& uncertainty = result.uncertainty;
  uncertainty.host = host_draws(calibration);
  std::vector<double> steps, exposed;
  for (const config::Calibration::Miss& miss : calibration.misses) {
    steps.push_back(miss.step);
    exposed.push_back(miss.exposed);
  }
  if (!steps.empty()) {
    uncertainty.step_miss = next_within(steps);
    uncertainty.exposed_miss = next_within(exposed);
  }
  std::map<std::tuple<std::size_t, int, double, double>, int> sources;  // by line, ranks, parts and amount
  double sum = 0, spread = 0;
  for (const schedule::Schedule& schedule : training.schedules.steps) {
    const bool steady = &schedule == &training.schedules.steady();
    StepCosts& costs = times.steps.emplace_back();
    std::vector<int>& source = uncertainty.source.emplace_back();
    for (const schedule::Op& op : schedule.ops) {
      OpCost& cost = costs.emplace_back();
      source.push_back(-1);
      if (!op.has_work()) continue;
      const int ranks = rank_count_of(op, training.plan.groups);
      const OpWork work = calibrated_work(op, schedule, training);
      const std::vector<std::size_t> lines = nearest_lines(calibration, op, work.unit, ranks);
      if (lines.empty()) {
        throw ConfigError(
            fmt::format("the calibration of {} says nothing of {} ops by {}; calibrate with a run that has some",
                        calibration.machine, to_string(op.kind), to_string(work.unit)));
      }
      const CalibrationLine& line = calibration.lines[lines.front()];
      const double fixed = line.fixed_ns * work.fixed, flowing = line.ns_per_amount * work.amount;
      cost.run_ns = std::nearbyint(op.is_collective() ? fixed : fixed + flowing);
      cost.link_ns = op.is_collective() ? std::nearbyint(flowing) : 0;
      cost.scatter = static_cast<int>(lines.front());
      const auto [at, added] =
          sources.try_emplace({lines.front(), ranks, work.fixed, work.amount}, static_cast<int>(sources.size()));
      source.back() = at->second;
      if (added) {
        const bool other_ranks = line.ranks != ranks;
        const CalibrationLine* next = other_ranks && lines.size() > 1 ? &calibration.lines[lines[1]] : nullptr;
        uncertainty.leaves_ranks_out |= other_ranks && next == nullptr;
        uncertainty.ratios.push_back(ratios_of(line, next, work, Sequence(kSeed ^ sources.size() << 32)));
      }
      if (!steady) continue;
      ++uncertainty.reach[result.crowded != 1 ? Reach::extrapolated : reach_of(line, ranks, work.amount)];
      sum += fixed + flowing;
      spread += (fixed + flowing) * line.spread_pct;
    }
  }
  // Between as long as measured and as much longer as there are more ranks to a core, or shorter, all ops together.
  for (std::vector<double>& ratios : uncertainty.ratios) {
    for (std::size_t draw = 0; draw < ratios.size(); ++draw) {
      ratios[draw] *= std::pow(result.crowded, static_cast<double>(draw) / static_cast<double>(ratios.size() - 1));
    }
  }
  result.spread_pct = sum > 0 ? spread / sum : 0;
  return result;
}

}  // namespace fsdpbench::clock
