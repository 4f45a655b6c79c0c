#include "metrics/run_metrics.h"

#include <algorithm>

#include "metrics/compare.h"
#include "metrics/max_plus.h"
#include "metrics/step_breakdown.h"

namespace fsdpbench::metrics {
namespace {

constexpr double kNsPerMs = 1e6;

/// Op durations of each rank in recorded step `step`, whose records begin at `first` on every rank.
std::vector<OpDurations> durations(const std::vector<trace::RankTrace>& traces, std::size_t first, std::size_t count) {
  std::vector<OpDurations> result;
  for (const trace::RankTrace& trace : traces) {
    OpDurations& mine = result.emplace_back(count);
    for (std::size_t i = 0; i < count; ++i) {
      const trace::Record& r = trace.records[first + i];
      mine[i] = r.end_ns - std::max(r.begin_ns, r.peers_arrived_ns);
    }
  }
  return result;
}

RankMetrics rank_metrics(const std::vector<StepBreakdown>& steps) {
  const auto of_each = [&](std::int64_t StepBreakdown::*part) {
    std::vector<double> values;
    for (const StepBreakdown& step : steps) values.push_back(static_cast<double>(step.*part) / kNsPerMs);
    return values;
  };
  return {summarize(of_each(&StepBreakdown::step)), median(of_each(&StepBreakdown::computation)),
          median(of_each(&StepBreakdown::exposed_communication)), median(of_each(&StepBreakdown::idle))};
}

}  // namespace

RunMetrics run_metrics(const schedule::Schedules& schedules, const plan::Groups& groups,
                       const std::vector<trace::RankTrace>& traces, double tokens_per_step) {
  std::vector<std::vector<StepBreakdown>> ranks;
  for (const trace::RankTrace& trace : traces) ranks.push_back(break_down(schedules, trace));

  std::vector<double> step, compute, comm, exposed, copies, idle, overlap, ratio;
  std::size_t first = 0;
  for (std::size_t i = 0; i < ranks.front().size(); ++i) {
    const auto slowest = std::max_element(ranks.begin(), ranks.end(),
                                          [i](const auto& a, const auto& b) { return a[i].step < b[i].step; });
    const StepBreakdown& b = (*slowest)[i];
    step.push_back(static_cast<double>(b.step) / kNsPerMs);
    compute.push_back(static_cast<double>(b.computation) / kNsPerMs);
    comm.push_back(static_cast<double>(b.communication) / kNsPerMs);
    exposed.push_back(static_cast<double>(b.exposed_communication) / kNsPerMs);
    copies.push_back(static_cast<double>(b.exposed_copy) / kNsPerMs);
    idle.push_back(static_cast<double>(b.idle) / kNsPerMs);
    if (b.has_communication()) overlap.push_back(b.overlap_percent());

    const auto number = static_cast<std::size_t>(traces.front().records[first].step);
    const schedule::Schedule& schedule = schedules.of_step(number);
    const std::int64_t bound =
        max_plus_bound(schedule, schedules.event_count, groups, durations(traces, first, schedule.ops.size()));
    if (bound > 0) ratio.push_back(static_cast<double>(b.step) / static_cast<double>(bound));
    first += schedule.ops.size();
  }

  RunMetrics m;
  m.step_ms = summarize(step);
  m.steps_ms = step;
  for (const std::vector<StepBreakdown>& steps : ranks) m.ranks.push_back(rank_metrics(steps));
  m.settling = find_settling(step);
  if (const std::optional<double> noise = aa_noise(step)) m.aa_noise_pct = 100 * *noise;
  m.compute_ms = median(compute);
  m.comm_ms = median(comm);
  m.exposed_comm_ms = median(exposed);
  m.exposed_copy_ms = median(copies);
  m.idle_ms = median(idle);
  if (!overlap.empty()) m.overlap_pct = median(overlap);
  m.tokens_per_s = tokens_per_step / (m.step_ms.median / 1000);
  if (!ratio.empty()) m.bound_ratio = median(ratio);
  return m;
}

}  // namespace fsdpbench::metrics
