#include "account/run_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "account/statistics.h"
#include "base/error.h"

namespace fsdpbench::account {
namespace {

void check(bool holds, int rank, std::size_t step, const char* what) {
  if (holds) return;
  throw Error(fmt::format("rank {}, measured step {}: {}; these measurements must not be used", rank, step, what),
              ExitCode::check_failed);
}

}  // namespace

StepRecords::StepRecords(const schedule::Schedules& schedules, std::span<const trace::RankTrace> traces,
                         std::size_t index, std::size_t first_record, std::int64_t slowest_ns)
    : traces_(traces),
      event_count_(schedules.event_count),
      number_(traces.front().records.at(first_record).step),
      index_(index),
      first_(first_record),
      slowest_ns_(slowest_ns) {
  schedule_ = &schedules.of_step(static_cast<std::size_t>(number_));
}

std::span<const trace::Record> StepRecords::of(int rank) const {
  return std::span(traces_[rank].records).subspan(first_, schedule_->ops.size());
}

int StepRecords::slowest_rank() const {
  int slowest = 0;
  for (int rank = 1; rank < ranks(); ++rank) {
    if (length_ns(rank) > length_ns(slowest)) slowest = rank;
  }
  return slowest;
}

RunView::RunView(const schedule::Schedules& schedules, std::span<const trace::RankTrace> traces,
                 std::span<const std::int64_t> slowest_ns)
    : schedules_(&schedules), traces_(traces), ranks_(static_cast<int>(traces.size())) {
  std::size_t first = 0;
  for (std::size_t s = 0; s < traces.front().steps.size(); ++s) {
    check(first < traces.front().records.size(), traces.front().rank, s, "it has no records");
    const StepRecords step(schedules, traces, s, first, slowest_ns.empty() ? 0 : slowest_ns[s]);
    const std::size_t ops = step.schedule().ops.size();
    for (const trace::RankTrace& trace : traces) {
      check(s < trace.steps.size(), trace.rank, s, "it was not recorded, though another rank recorded it");
      check(first + ops <= trace.records.size(), trace.rank, s, "it has fewer records than its schedule has ops");
      for (std::size_t i = 0; i < ops; ++i) {
        const trace::Record& record = trace.records[first + i];
        check(record.step == step.number() && record.op == static_cast<std::int32_t>(i), trace.rank, s,
              "its records are not the ops of its schedule in their order");
      }
    }
    steps_.push_back(step);
    first += ops;
  }
}

MiddleSteps middle_steps(const RunView& run) {
  const std::vector<StepRecords>& steps = run.steps();
  std::vector<double> lengths;
  for (const StepRecords& step : steps) lengths.push_back(static_cast<double>(step.slowest_ns()));
  std::vector<std::size_t> order(steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t s) { return lengths[s]; });

  MiddleSteps middle;
  middle.median = order[(order.size() - 1) / 2];
  middle.median_ms = median(lengths) / 1e6;
  const auto third = static_cast<std::ptrdiff_t>(order.size() / 3);
  middle.indices.assign(order.begin() + third, order.end() - third);
  std::ranges::sort(middle.indices);
  std::int64_t sum = 0;
  for (const std::size_t s : middle.indices) {
    for (int rank = 0; rank < run.ranks(); ++rank) sum += steps[s].length_ns(rank);
  }
  if (sum > 0) middle.ms_per_ns = middle.median_ms / static_cast<double>(sum);
  return middle;
}

}  // namespace fsdpbench::account
