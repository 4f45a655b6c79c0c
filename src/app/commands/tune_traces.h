#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "dialects/dialect.h"
#include "foreign/traced_profile.h"
#include "runs/finished_run.h"
#include "tune/space.h"
#include "tune/tune_report.h"

namespace fsdpbench::app {

/// Whether `tune --from` names traces, not a finished run: several paths, a file that is no result.json, or a folder
/// of files that has neither a result nor a configuration.
bool names_traces(const std::vector<std::string>& from);

/// A job to be tuned, and the system in whose words that is answered; null: this program's own keys.
struct TracedJob {
  FinishedRun run;        ///< its rows as records of the schedule that it follows
  TracedProfile profile;  ///< the same for whoever wants to simulate it
  const dialects::Dialect* system = nullptr;
  TracedStep step;  ///< what a prediction may promise
};

/// Reads the traces of a job. Throws ConfigError that says why it cannot be tuned from them: it is no sharded training,
/// follows no schedule that is known here, or follows that of several engines and nothing says which it is.
TracedJob read_traced_job(const std::vector<std::string>& traces);

/// Changes to make in the traced program, setting by setting, and how well a replay of its op times has its step.
std::string changes_text(const TracedJob& job, const Tuning& tuning);
nlohmann::json changes_json(const TracedJob& job, const Tuning& tuning);

}  // namespace fsdpbench::app
