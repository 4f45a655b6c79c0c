#include "account/path_report.h"

#include <utility>

#include "schedule/print_schedule.h"

namespace fsdpbench::account {
namespace {

double us_of_path(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

}  // namespace

PathReport report_path(const std::vector<PathOfRank>& sums, std::size_t steps, const CriticalPath& median,
                       std::int64_t step, const std::function<int(int)>& rank_at,
                       const std::function<std::string(int, int)>& name_of) {
  PathReport report;
  report.step = step;
  std::int64_t all = 0;
  for (const PathOfRank& sum : sums) all += sum.all();
  const auto mean = [&](std::int64_t ns) { return static_cast<double>(ns) / 1e6 / static_cast<double>(steps); };
  for (const PathOfRank& sum : sums) {
    PathRank& one = report.ranks.emplace_back();
    one.rank = rank_at(sum.place);
    one.ms = mean(sum.all());
    one.share_pct = 100 * static_cast<double>(sum.all()) / static_cast<double>(all);
    for (const PathKind kind : kEnumerators<PathKind>) one.kinds_ms[kind] = mean(sum.ns[kind]);
  }
  std::int64_t length = 0, longest = 0;  // of the last segment, and of its longest part that has a name
  for (const PathPart& part : median.parts) {
    const int rank = rank_at(part.place);
    if (report.segments.empty() || report.segments.back().rank != rank || report.segments.back().kind != part.kind) {
      report.segments.push_back({rank, part.kind, us_of_path(part.time.begin - median.step.begin), 0, 0, {}});
      length = longest = 0;
    }
    PathSegment& segment = report.segments.back();
    const std::int64_t ns = part.time.end - part.time.begin;
    length += ns;
    segment.us = us_of_path(length);
    ++segment.parts;
    if (ns <= longest || part.op < 0) continue;
    longest = ns;
    segment.row = name_of(part.place, part.op);
  }
  return report;
}

PathReport report_path(const RunView& run, const plan::Plan& plan) {
  const std::size_t median = middle_steps(run).median;
  std::vector<PathOfRank> sums;
  CriticalPath of_median;
  for (std::size_t s = 0; s < run.steps().size(); ++s) {
    CriticalPath path = find_critical_path(run.steps()[s], plan.groups);
    add_path(path, sums);
    if (s == median) of_median = std::move(path);
  }
  const StepRecords& step = run.steps()[median];
  return report_path(
      sums, run.steps().size(), of_median, step.number(), [&](int place) { return step.rank_at(place); },
      [&](int, int op) { return schedule::op_name(plan, step.schedule().ops[static_cast<std::size_t>(op)]); });
}

}  // namespace fsdpbench::account
