#include "trace/facts.h"

#include <algorithm>

namespace fsdpbench::trace {

std::vector<TracedStep> steps_of(const RankTrace& trace) {
  std::vector<TracedStep> steps;
  const std::span<const Record> records(trace.records);
  const std::span<const MemorySample> memory(trace.memory);
  const std::span<const Activity> activities(trace.activities);
  std::size_t record = 0, sample = 0, activity = 0;
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    TracedStep step;
    step.window = trace.steps[i];
    step.number = record < records.size() ? records[record].step : static_cast<std::int32_t>(i);
    const std::size_t first_record = record, first_sample = sample;
    while (record < records.size() && records[record].step == step.number) ++record;
    const bool last = i + 1 == trace.steps.size();
    while (sample < memory.size() && (last || memory[sample].time_ns < trace.steps[i + 1].begin_ns)) ++sample;
    step.records = records.subspan(first_record, record - first_record);
    step.memory = memory.subspan(first_sample, sample - first_sample);
    while (activity < activities.size() && activities[activity].step < step.number) ++activity;
    const std::size_t first_activity = activity;
    while (activity < activities.size() && activities[activity].step == step.number) ++activity;
    step.activities = activities.subspan(first_activity, activity - first_activity);
    step.names = trace.activity_names;
    steps.push_back(step);
  }
  return steps;
}

std::int64_t first_begin(const std::vector<RankTrace>& traces) {
  bool found = false;
  std::int64_t first = 0;
  for (const RankTrace& trace : traces) {
    if (trace.steps.empty()) continue;
    first = found ? std::min(first, trace.steps.front().begin_ns) : trace.steps.front().begin_ns;
    found = true;
  }
  return first;
}

std::int64_t host_end(const TracedStep& step) {
  std::int64_t end = std::max(step.window.end_ns, step.window.issued_ns);
  if (!step.records.empty()) end = std::max(end, step.records.back().issued_ns);
  for (const Record& record : step.records) end = std::max(end, record.end_ns);
  return end;
}

std::int64_t issue_end(const TracedStep& step, std::size_t i) {
  if (i + 1 < step.records.size()) return step.records[i + 1].issued_ns;
  if (step.window.issued_ns == 0) return host_end(step);
  return std::max(step.window.issued_ns, step.records[i].issued_ns);
}

}  // namespace fsdpbench::trace
