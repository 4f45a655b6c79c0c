#include "metrics/cause_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "metrics/cause_advice.h"
#include "metrics/step_breakdown.h"
#include "schedule/print_schedule.h"

namespace fsdpbench::metrics {
namespace {

/// Nanoseconds lost to one cause, by op and by late rank.
struct Loss {
  std::int64_t total = 0;
  std::map<std::int32_t, std::int64_t> by_op;
  std::map<int, std::int64_t> by_late_rank;
};

template <typename Map>
auto largest(const Map& map) {
  return std::max_element(map.begin(), map.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
}

void check_partition(const std::vector<Stall>& stalls, const StepBreakdown& b, std::size_t step) {
  std::int64_t sum = 0, end = 0;
  bool disjoint = true;
  for (const Stall& s : stalls) {
    sum += s.time.end - s.time.begin;
    disjoint = disjoint && s.time.begin >= end;
    end = s.time.end;
  }
  if (disjoint && sum == b.exposed_communication + b.exposed_copy + b.idle) return;
  throw Error(fmt::format("rank {}, measured step {}: the causes do not partition the time without computation ({} ns "
                          "of {}); these measurements must not be used",
                          b.rank, step, sum, b.exposed_communication + b.exposed_copy + b.idle),
              ExitCode::check_failed);
}

}  // namespace

CauseReport report_causes(const schedule::Schedules& schedules, const plan::Plan& plan, const schedule::Policy& policy,
                          const std::vector<trace::RankTrace>& traces, const std::optional<LinkModel>& link) {
  const int ranks = plan.mesh.ranks();
  std::vector<std::vector<StepBreakdown>> breakdowns;
  for (const trace::RankTrace& trace : traces) breakdowns.push_back(break_down(schedules, trace));
  const std::size_t steps = breakdowns.front().size();

  const auto slowest_rank = [&](std::size_t step) {
    int slowest = 0;
    for (int r = 1; r < ranks; ++r) {
      if (breakdowns[static_cast<std::size_t>(r)][step].step > breakdowns[static_cast<std::size_t>(slowest)][step].step)
        slowest = r;
    }
    return slowest;
  };
  std::vector<std::size_t> by_length(steps);
  for (std::size_t s = 0; s < steps; ++s) by_length[s] = s;
  std::sort(by_length.begin(), by_length.end(), [&](std::size_t a, std::size_t b) {
    return breakdowns[static_cast<std::size_t>(slowest_rank(a))][a].step <
           breakdowns[static_cast<std::size_t>(slowest_rank(b))][b].step;
  });
  const std::size_t example = by_length[steps / 2];

  CauseReport report;
  std::array<Loss, kCauseCount> losses;
  std::int64_t step_ns = 0, stalled_ns = 0;
  std::size_t first = 0;
  for (std::size_t s = 0; s < steps; ++s) {
    StepRecords records;
    const std::int32_t number = traces.front().records[first].step;
    records.schedule = &schedules.of_step(static_cast<std::size_t>(number));
    for (const trace::RankTrace& trace : traces) {
      records.ranks.push_back(trace.records.data() + first);
      records.windows.push_back(trace.steps[s]);
    }
    for (int r = 0; r < ranks; ++r) {
      const std::vector<Stall> stalls =
          find_stalls(records, schedules.event_count, plan.groups, link,
                      policy.fsdp.backward_prefetch.mode != config::Prefetch::Mode::none, r);
      const StepBreakdown& b = breakdowns[static_cast<std::size_t>(r)][s];
      check_partition(stalls, b, s);
      step_ns += b.step;
      for (const Stall& stall : stalls) {
        const std::int64_t ns = stall.time.end - stall.time.begin;
        Loss& loss = losses[static_cast<std::size_t>(stall.cause)];
        loss.total += ns;
        loss.by_op[stall.op] += ns;
        if (stall.late_rank >= 0) loss.by_late_rank[stall.late_rank] += ns;
        stalled_ns += ns;
      }
      if (s == example && r == slowest_rank(s)) {
        report.example = stalls;
        report.example_rank = r;
        report.example_step = number;
      }
    }
    first += records.schedule->ops.size();
  }

  const double per_ms = 1e6 * static_cast<double>(steps) * ranks;
  report.step_ms = static_cast<double>(step_ns) / per_ms;
  report.stalled_ms = static_cast<double>(stalled_ns) / per_ms;
  for (std::size_t c = 0; c < kCauseCount; ++c) {
    const Loss& loss = losses[c];
    if (loss.total == 0) continue;
    CauseShare share;
    share.cause = static_cast<Cause>(c);
    share.ms = static_cast<double>(loss.total) / per_ms;
    share.share_pct = 100 * share.ms / report.step_ms;
    if (share.share_pct < kSmallSharePct) {
      report.small_ms += share.ms;
      continue;
    }
    if (const std::int32_t worst = largest(loss.by_op)->first; worst >= 0) {
      const schedule::Op& op = schedules.steady().ops[static_cast<std::size_t>(
          std::min(worst, static_cast<std::int32_t>(schedules.steady().ops.size()) - 1))];
      share.op = schedule::op_name(plan, op);
      if (op.unit >= 0) share.unit = plan.units[static_cast<std::size_t>(op.unit)].label();
    }
    if (!loss.by_late_rank.empty()) share.late_rank = largest(loss.by_late_rank)->first;
    share.advice = advice(share, policy, report.stalled_ms);
    report.causes.push_back(std::move(share));
  }
  std::sort(report.causes.begin(), report.causes.end(),
            [](const CauseShare& a, const CauseShare& b) { return a.ms > b.ms; });
  return report;
}

}  // namespace fsdpbench::metrics
