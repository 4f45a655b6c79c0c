#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "account/cause_report.h"
#include "account/counterfactual.h"
#include "account/critical_path.h"
#include "account/statistics.h"
#include "record/json_fields.h"
#include "record/json_part.h"
#include "runs/trial.h"

namespace fsdpbench::app {

/// The fields of what results are made of. docs/result-format.md and the Python package have them from here.
template <>
Fields<account::Summary> declared();
template <>
Fields<plan::CommunicationVolume> declared();
template <>
Fields<PoolStatistics> declared();
template <>
Fields<World> declared();
/// A trial on its own, as logs have it: with its step times.
template <>
Fields<Trial> declared();
/// A row of bytes for each category of memory: `access` leads to their array.
template <class T, class Access>
std::vector<Field<T>> by_category(Access access, const char* meaning) {
  std::vector<Field<T>> rows;
  for (const MemoryCategory c : kMemoryCategories) {
    const auto of = [ access, i = index_of(c) ](auto& object) -> auto& { return std::invoke(access, object)[i]; };
    rows.push_back({std::string(to_string(c)), of, "B", meaning});
  }
  return rows;
}

/// A trial without its step times: result.json has those of all ranks (report/result_json.h).
const Fields<Trial>& trial_fields();

/// Parts of it: "metrics", "memory", "comm", and "steps_ms".
const Fields<Trial>& metrics_fields();
const Fields<Trial>& memory_fields();
const Fields<Trial>& comm_fields();
const Fields<account::RunMetrics>& step_times_fields();

nlohmann::json to_json(const World& world);
nlohmann::json to_json(const Trial& trial);

/// Reads what to_json() wrote, or a whole result.json. Throws ConfigError that names the key that is missing or wrong.
Trial trial_from_json(const JsonPart& json);
Trial trial_from_json(const nlohmann::json& json);

/// Refuses a summary or an interval of no values, or whose median is not within it; the second also one that reaches
/// down to 0.
void check_interval(const JsonPart& interval);
void check_step_time(const JsonPart& summary);
/// Step times, of which there is one or more and none is 0. Refuses anything else.
void check_step_times(const JsonPart& times);

/// A number of a trial that tables, comparisons, sweeps and gates show, with all that is known of its field.
struct TrialFigure {
  std::string path;  ///< "metrics.exposed_comm_ms"
  const FieldFacts* field = nullptr;
  double value = 0;
};
/// Those that were measured. A summary counts with its median, bytes by kind with their sum.
std::vector<TrialFigure> figures_of(const Trial& trial);
/// Facts about the figure at `path`, which must be one.
const FieldFacts& figure_at(std::string_view path);

template <>
Fields<account::Counterfactual> declared();
template <>
Fields<account::CauseShare> declared();

/// Fields of a trial's causes: "causes", "jitter", "late_ranks", "knobs" and what belongs to them.
const Fields<account::CauseReport>& cause_fields();
/// "stalled_ms", which a trial has also where its causes are not told.
const Fields<account::CauseReport>& stall_fields();

/// "critical_path" of a run's result and of an explained trace.
template <>
Fields<account::PathReport> declared();

}  // namespace fsdpbench::app
