#include "clock/measured_host.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/enum_table.h"
#include "base/student.h"
#include "clock/forecast.h"

namespace fsdpbench::clock {
namespace {

/// Below this a time is mostly rounding: its relative error says nothing.
constexpr double kShort_ns = 1000;

/// Sums over samples, each weighted so that errors count relative to its time.
struct Sums {
  double ff = 0, fa = 0, aa = 0, ft = 0, at = 0;
};

/// `before`: what the samples' times are taken relative to; none: the times themselves.
Sums weigh(std::span<const LineSample> samples, const LineFit* before) {
  Sums sums;
  for (const LineSample& s : samples) {
    const double ns = before != nullptr ? before->ns(s.fixed, s.amount) : s.ns;
    const double weight = 1 / (ns * ns + kShort_ns * kShort_ns);
    sums.ff += weight * s.fixed * s.fixed;
    sums.fa += weight * s.fixed * s.amount;
    sums.aa += weight * s.amount * s.amount;
    sums.ft += weight * s.fixed * s.ns;
    sums.at += weight * s.amount * s.ns;
  }
  return sums;
}

/// To the nanosecond, or within what the repetitions of each differ by.
bool meets(const LineFit& fit, std::span<const LineSample> samples, bool within_spread) {
  return std::ranges::all_of(samples, [&](const LineSample& s) {
    return std::abs(fit.ns(s.fixed, s.amount) - s.ns) <= std::max(1.0, within_spread ? s.spread_ns : 0.0);
  });
}

LineFit line_through(std::span<const LineSample> samples, std::optional<double> fixed_ns, const LineFit* before) {
  LineFit fit;
  fit.samples = static_cast<int>(samples.size());
  const Sums sums = weigh(samples, before);
  const auto slope = [&](double fixed) { return std::max(0.0, (sums.at - fixed * sums.fa) / sums.aa); };  // of 0/0: 0
  if (fixed_ns) {
    fit.fixed_ns = *fixed_ns;
    fit.ns_per_amount = slope(*fixed_ns);
    return fit;
  }
  fit.ns_per_amount = slope(0);
  const double determinant = sums.ff * sums.aa - sums.fa * sums.fa;
  if (sums.aa > 0 && (meets(fit, samples, true) || determinant <= 1e-9 * sums.ff * sums.aa)) return fit;
  const double flat = sums.ft / sums.ff;
  const double fixed = sums.aa > 0 ? (sums.ft * sums.aa - sums.at * sums.fa) / determinant : flat;
  if (!(fixed > 0)) return fit;
  fit.ns_per_amount = slope(fixed);
  fit.fixed_ns = fit.ns_per_amount > 0 ? fixed : flat;
  return fit;
}

}  // namespace

LineFit fit_line(std::span<const LineSample> samples, std::optional<double> fixed_ns) {
  // Errors relative to the measured times would put the line below their mean, by twice their variance: what is short
  // by chance would weigh most. So they are taken relative to the line, which is found in a few rounds.
  constexpr int kRounds = 6;
  LineFit fit = line_through(samples, fixed_ns, nullptr);
  for (int round = 0; round < kRounds && !meets(fit, samples, false); ++round) {
    fit = line_through(samples, fixed_ns, &fit);
  }
  std::vector<double> off;
  for (const LineSample& s : samples) {
    const double ns = fit.ns(s.fixed, s.amount);
    if (std::abs(s.ns - ns) > 1)
      off.push_back((s.ns - ns) / std::max(ns, kShort_ns));
    else
      off.push_back(0);  // a nanosecond is how times are rounded
  }
  if (!off.empty()) fit.within = next_within(off);
  return fit;
}

namespace {

using schedule::Op;
using trace::Record;

/// 0 where nothing was seen, or less than nothing was.
double cost_of(std::vector<double> values) {
  return values.empty() ? 0 : std::max(0.0, lower_median(std::move(values)));
}

/// Times of one sort of start, and how long its lanes waited for a core on top.
struct Starts {
  std::vector<double> took;
  double core_waits = 0;

  void add(double ns, double core_wait) {
    took.push_back(ns);
    core_waits += core_wait;
  }
  double cost() && {
    const double mean = took.empty() ? 0 : core_waits / static_cast<double>(took.size());
    return cost_of(std::move(took)) + mean;
  }
};

/// One rank's step, and when the host had issued it.
struct Step {
  const schedule::Schedule& schedule;
  std::span<const Record> records;
  std::int64_t issued_ns = 0;  ///< all of it; 0: not known

  /// When the host went on after op i; absent: not known.
  std::optional<std::int64_t> issue_end(std::size_t i) const {
    if (i + 1 < records.size()) return records[i + 1].issued_ns;
    return issued_ns > 0 ? std::optional(issued_ns) : std::nullopt;
  }
};

/// Ends of what held op i until it began: its issue, the op before it on its lane, and the event that it waited for.
/// Absent where an op without work or a communicator is in between: they leave no times.
struct Held {
  std::int64_t issued = 0;
  std::int64_t lane = 0;
  std::int64_t event = 0;
};

class Collector {
 public:
  Collector(const Delays& delays, CoreWaits core_waits, int events)
      : delays_(delays), core_waits_(core_waits), recorder_(events) {}

  void add(const Step& step, std::size_t rank) {
    std::ranges::fill(recorder_, -1);
    last_.fill(-1);
    std::ranges::fill(last_on_communicator_, -1);
    for (std::size_t i = 0; i < step.schedule.ops.size(); ++i) {
      const Op& op = step.schedule.ops[i];
      const Record& record = step.records[i];
      if (op.is_host()) continue;
      if (const auto end = step.issue_end(i)) {
        issues_.push_back(static_cast<double>(*end - record.issued_ns));
        if (const auto held = held_until(step, i, *end)) {
          const double core_wait = core_wait_of(record, *held);
          double begin = begin_of(record, op, i, rank);
          if (core_waits_ != CoreWaits::counted) begin -= core_wait;
          if (!op.is_collective()) starts(*held, begin, core_waits_ == CoreWaits::averaged ? core_wait : 0);
          if (starts_ != nullptr) start(step, i, *held, begin, core_wait);
        }
      }
      last_[index_of(op.lane)] = static_cast<int>(i);
      if (op.is_collective()) last_on_communicator_[op.group()] = static_cast<int>(i);
      if (op.record >= 0) recorder_[op.record] = static_cast<int>(i);
    }
  }

  /// From now on what holds lanes up beside `costs` goes there.
  void collect_starts(const HostCosts& costs, LaneStarts& starts) {
    costs_ = costs;
    starts_ = &starts;
  }

  HostCosts take() {
    HostCosts costs;
    costs.issue_ns = cost_of(std::move(issues_));
    costs.launch_ns = std::move(launches_).cost();
    costs.gap_ns = std::move(gaps_).cost();
    // A start that both an event's end and the lane itself would explain says nothing about waking up.
    Starts wakes;
    for (const auto& [held, begin, core_wait] : woken_) {
      if (static_cast<double>(held.event) > static_cast<double>(held.issued) + costs.launch_ns) {
        wakes.add(begin - static_cast<double>(held.event), core_wait);
      }
    }
    costs.wake_ns = std::move(wakes).cost();
    return costs;
  }

 private:
  std::optional<Held> held_until(const Step& step, std::size_t i, std::int64_t issued) const {
    const Op& op = step.schedule.ops[i];
    if (!op.has_work() || step.records[i].begin_ns == 0) return std::nullopt;
    Held held{issued, 0, 0};
    if (const int before = last_[index_of(op.lane)]; before >= 0) {
      if (!step.schedule.ops[before].has_work()) return std::nullopt;
      held.lane = step.records[before].end_ns;
    }
    for (const schedule::Wait& wait : op.waits) {
      const int by = recorder_[wait.event];
      if (by < 0) continue;  // in an earlier step
      if (!step.schedule.ops[by].has_work()) return std::nullopt;
      held.event = std::max(held.event, step.records[by].end_ns);
    }
    return held;
  }

  double begin_of(const Record& record, const Op& op, std::size_t i, std::size_t rank) const {
    std::array<double, 1> delay{0};
    if (delays_.any()) delays_.add(record.step, i, op.lane, rank, delay);
    return static_cast<double>(record.begin_ns) - delay[0];
  }

  /// Wait for a core since the lane had all else.
  static double core_wait_of(const Record& record, const Held& held) {
    const std::int64_t ready = std::max({held.issued, held.lane, held.event});
    return static_cast<double>(std::clamp<std::int64_t>(record.begin_ns - ready, 0, record.core_wait_ns));
  }

  void starts(const Held& held, double begin, double core_wait) {
    if (held.issued > held.lane && held.issued >= held.event) {
      launches_.add(begin - static_cast<double>(held.issued), core_wait);
    } else if (held.event > held.lane && held.event > held.issued) {
      woken_.push_back({held, begin, core_wait});
    } else if (held.lane > held.event && held.lane > held.issued) {
      gaps_.add(begin - static_cast<double>(held.lane), core_wait);
    }
  }

  void start(const Step& step, std::size_t i, const Held& held, double begin, double core_wait) {
    const Op& op = step.schedule.ops[i];
    double ready = held.issued > held.lane ? static_cast<double>(held.issued) + costs_.launch_ns
                                           : static_cast<double>(held.lane) + costs_.gap_ns;
    if (static_cast<double>(held.event) > ready) ready = static_cast<double>(held.event) + costs_.wake_ns;
    if (op.is_collective()) {
      const int before = last_on_communicator_[op.group()];
      if (before >= 0 && static_cast<double>(step.records[before].end_ns) > ready) return;
    }
    starts_->lag_ns[index_of(op.lane)].push_back(begin - ready);
    starts_->core_wait_ns[index_of(op.lane)].push_back(core_wait);
  }

  struct Woken {
    Held held;
    double begin = 0, core_wait = 0;
  };

  const Delays& delays_;
  const CoreWaits core_waits_;
  std::vector<int> recorder_;           // op, by event
  std::array<int, kLaneCount> last_{};  // op, by lane
  EnumTable<plan::Group, int> last_on_communicator_;
  HostCosts costs_;
  LaneStarts* starts_ = nullptr;
  std::vector<double> issues_;
  Starts launches_, gaps_;
  std::vector<Woken> woken_;
};

void add_steps(const schedule::Schedules& schedules, const trace::RankTrace& trace, Collector& collector) {
  std::size_t first = 0;
  for (const trace::StepWindow& window : trace.steps) {
    const schedule::Schedule& schedule = schedules.of_step(trace.records[first].step);
    const auto records = std::span(trace.records).subspan(first, schedule.ops.size());
    collector.add({schedule, records, window.issued_ns}, trace.rank);
    first += schedule.ops.size();
  }
}

}  // namespace

HostCosts measured_host(const schedule::Schedules& schedules, std::span<const trace::RankTrace> traces,
                        const Delays& delays, CoreWaits core_waits) {
  Collector collector(delays, core_waits, schedules.event_count);
  for (const trace::RankTrace& trace : traces) add_steps(schedules, trace, collector);
  return collector.take();
}

std::vector<LaneStarts> measured_starts(const schedule::Schedules& schedules, std::span<const trace::RankTrace> traces,
                                        const HostCosts& costs) {
  const Delays none;
  std::vector<LaneStarts> result(traces.size());
  for (std::size_t place = 0; place < traces.size(); ++place) {
    Collector collector(none, CoreWaits::left_out, schedules.event_count);
    collector.collect_starts(costs, result[place]);
    add_steps(schedules, traces[place], collector);
  }
  return result;
}

}  // namespace fsdpbench::clock
