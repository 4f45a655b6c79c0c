#include "app/report/job_path.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "metrics/critical_path.h"

namespace fsdpbench::app {
namespace {

/// The number of the step that `path` is of.
std::int64_t step_of_path(const ExplainedJob& e, const metrics::CriticalPath& path) {
  const auto place = static_cast<std::size_t>(path.place);
  const auto& steps = e.explanation.ranks[place].steps;
  const auto& cut = e.recognition.ranks[place].cut.steps;
  const std::int64_t begin = path.step.begin - e.explanation.ranks[place].clock_offset_ns;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    if (cut[s].window.begin == begin) return steps[s].number;
  }
  return steps.front().number;
}

}  // namespace

std::optional<metrics::PathReport> path_of_job(const ExplainedJob& e) {
  const foreign::Explanation& x = e.explanation;
  if (x.path.empty()) return std::nullopt;
  const auto rows = [&](int place) -> const foreign::RankRows& { return e.job.ranks[static_cast<std::size_t>(place)]; };
  return metrics::report_path(
      x.path, x.steps_ms.size(), x.median_path, step_of_path(e, x.median_path),
      [&](int place) { return rows(place).rank; },
      [&](int place, int op) {
        const foreign::DeviceRow& row = rows(place).device[static_cast<std::size_t>(op)];
        return rows(place).names[static_cast<std::size_t>(row.name)];
      });
}

}  // namespace fsdpbench::app
