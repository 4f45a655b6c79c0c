#include "replay/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "replay/lower_median.h"

namespace fsdpbench::replay {
namespace {

int ranks_of(const schedule::Op& op, const plan::Groups& groups) {
  return op.is_collective() ? groups.size(op.group()) : 0;
}

/// As work_of(), with a fixed part of its own for matrix products as well.
OpWork calibrated_work(const schedule::Op& op, const schedule::Schedule& schedule, const Training& training) {
  OpWork work = work_of(op, schedule, training.groups, training.sizes);
  if (work.unit == OpWork::Unit::flops) work.fixed = 1;
  return work;
}

std::string_view to_string(OpWork::Unit unit) {
  constexpr std::array<std::string_view, 3> kNames{"wire_bytes", "flops", "bytes"};
  return kNames.at(static_cast<std::size_t>(unit));
}

/// The line of a kind whose group is nearest in size; null if the kind has none.
const config::CalibrationLine* nearest_line(const config::Calibration& calibration, const schedule::Op& op,
                                            OpWork::Unit unit, int ranks) {
  const config::CalibrationLine* nearest = nullptr;
  for (const config::CalibrationLine& line : calibration.lines) {
    if (line.kind != to_string(op.kind) || line.unit != to_string(unit)) continue;
    if (nearest == nullptr || std::abs(line.ranks - ranks) < std::abs(nearest->ranks - ranks)) nearest = &line;
  }
  return nearest;
}

Reach reach_of(const config::CalibrationLine& line, int ranks, double amount) {
  constexpr double kSame = 0.01;
  if (line.ranks != ranks) return Reach::extrapolated;
  for (const double known : {line.least, line.most}) {
    if (std::abs(amount - known) <= kSame * known) return Reach::measured;
  }
  return amount > line.least && amount < line.most ? Reach::interpolated : Reach::extrapolated;
}

}  // namespace

std::string_view to_string(Reach reach) {
  constexpr std::array<std::string_view, kReachCount> kNames{"measured", "interpolated", "extrapolated"};
  return kNames.at(static_cast<std::size_t>(reach));
}

void Calibrator::add(const MeasuredTimes& run, const HostCosts& host) {
  hosts_.push_back(host);
  const std::size_t last = run.steps() - 1;
  const schedule::Schedule& schedule = run.schedule_of(last);
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const schedule::Op& op = schedule.ops[i];
    if (!op.has_work()) continue;
    std::vector<double> ns;
    for (std::size_t step = 0; step < run.steps(); ++step) {
      if (&run.schedule_of(step) != &schedule) continue;
      for (std::size_t rank = 0; rank < run.ranks(); ++rank) {
        const std::int64_t took = run.ns(step, rank)[i];
        if (took != MeasuredTimes::kNone) ns.push_back(static_cast<double>(took));
      }
    }
    if (ns.empty()) continue;
    const OpWork work = calibrated_work(op, schedule, run.run());
    const auto [low, high] = std::ranges::minmax(ns);
    samples_[{op.kind, work.unit, ranks_of(op, run.run().groups)}].push_back(
        {work.fixed, work.amount, lower_median(ns), (high - low) / 2});
  }
}

config::Calibration Calibrator::result() const {
  config::Calibration c;
  const auto host = [&](double HostCosts::*member) {
    std::vector<double> values;
    for (const HostCosts& costs : hosts_) values.push_back(costs.*member);
    return lower_median(values);
  };
  c.issue_ns = host(&HostCosts::issue_ns);
  c.launch_ns = host(&HostCosts::launch_ns);
  c.gap_ns = host(&HostCosts::gap_ns);
  c.wake_ns = host(&HostCosts::wake_ns);
  for (const auto& [key, samples] : samples_) {
    const LineFit fit = fit_line(samples);
    const auto& [kind, unit, ranks] = key;
    config::CalibrationLine line;
    line.kind = to_string(kind);
    line.unit = to_string(unit);
    line.ranks = ranks;
    line.fixed_ns = fit.fixed_ns;
    line.ns_per_amount = fit.ns_per_amount;
    const auto [least, most] = std::ranges::minmax(samples, {}, &LineSample::amount);
    line.least = least.amount;
    line.most = most.amount;
    line.samples = static_cast<int>(samples.size());
    std::vector<double> off;
    for (const LineSample& s : samples)
      off.push_back(s.ns > 0 ? 100 * std::abs(fit.ns(s.fixed, s.amount) / s.ns - 1) : 0);
    line.spread_pct = lower_median(off);
    c.lines.push_back(std::move(line));
  }
  return c;
}

CalibratedTimes calibrated_times(const config::Calibration& calibration, const Training& training) {
  CalibratedTimes result;
  OpTimes& times = result.times;
  times.host.issue_ns = std::nearbyint(calibration.issue_ns);
  times.host.launch_ns = std::nearbyint(calibration.launch_ns);
  times.host.gap_ns = std::nearbyint(calibration.gap_ns);
  times.host.wake_ns = std::nearbyint(calibration.wake_ns);
  double sum = 0, spread = 0;
  for (const schedule::Schedule& schedule : training.schedules.steps) {
    const bool steady = &schedule == &training.schedules.steady();
    StepCosts& costs = times.steps.emplace_back();
    for (const schedule::Op& op : schedule.ops) {
      OpCost& cost = costs.emplace_back();
      if (!op.has_work()) continue;
      const int ranks = ranks_of(op, training.groups);
      const OpWork work = calibrated_work(op, schedule, training);
      const config::CalibrationLine* line = nearest_line(calibration, op, work.unit, ranks);
      if (line == nullptr) {
        throw ConfigError(
            fmt::format("the calibration of {} says nothing of {} ops by {}; calibrate with a run that has some",
                        calibration.machine, to_string(op.kind), to_string(work.unit)));
      }
      const double fixed = line->fixed_ns * work.fixed, flowing = line->ns_per_amount * work.amount;
      cost.run_ns = std::nearbyint(op.is_collective() ? fixed : fixed + flowing);
      cost.link_ns = op.is_collective() ? std::nearbyint(flowing) : 0;
      if (!steady) continue;
      ++result.reach[static_cast<std::size_t>(reach_of(*line, ranks, work.amount))];
      sum += fixed + flowing;
      spread += (fixed + flowing) * line->spread_pct;
    }
  }
  result.spread_pct = sum > 0 ? spread / sum : 0;
  return result;
}

}  // namespace fsdpbench::replay
