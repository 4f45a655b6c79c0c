#include "runs/finished_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "account/run_view.h"
#include "account/step_view.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "config/load.h"
#include "config/validate.h"
#include "runs/result_fields.h"
#include "runs/result_file.h"
#include "trace/rank_writer.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;

Trial trial_of(const ResultFile& result) {
  if (const std::string why = why_unfinished(result); !why.empty()) {
    throw ConfigError(fmt::format("{}: {}.", result.path, why));
  }
  if (!result.content.contains("metrics")) {
    throw ConfigError(fmt::format("{}: no measured step was completed, so there is nothing to replay.", result.path));
  }
  try {
    return trial_from_json(result.content);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: is damaged: {}.", result.path, error.what()));
  }
}

engine::Setup setup_of(const fs::path& folder) {
  const std::string path = (folder / "config.toml").string();
  if (!path_exists(path)) {
    throw ConfigError(fmt::format("{}: is missing; a result folder has it beside result.json.", path));
  }
  config::RunConfig config = config::load_profile(path);
  config::validate(config);
  return engine::set_up(config);
}

std::vector<trace::RankTrace> traces_of(const fs::path& folder, int ranks) {
  std::vector<trace::RankTrace> traces;
  for (int rank = 0; rank < ranks; ++rank) {
    const fs::path path = folder / "trace" / fmt::format("rank_{}.json.gz", rank);
    if (!path_exists(path)) {
      throw ConfigError(fmt::format(
          "{}: is missing: the op times of all {} ranks are needed; a simulation of many ranks keeps them all with "
          "--set trace.ranks=0.",
          path.string(), ranks));
    }
    traces.push_back(trace::read_rank_trace(path.string()));
    if (traces.back().rank != rank) {
      throw ConfigError(
          fmt::format("{}: is the trace of rank {}; the file was renamed.", path.string(), traces.back().rank));
    }
  }
  return traces;
}

}  // namespace

FinishedRun read_finished_run(const std::string& given) {
  const ResultFile result = read_result(given);
  FinishedRun run;
  const fs::path folder = fs::path(result.path).parent_path();
  run.folder = folder.empty() ? "." : folder.string();
  run.trial = trial_of(result);
  run.setup = setup_of(folder);
  run.traces = traces_of(folder, run.setup.plan.groups.ranks());
  try {
    const account::RunView view(run.setup.schedules, run.traces);
    if (view.steps().empty()) throw Error("there is no step in them");
    account::fill_peers_arrived(run.setup.schedules, run.setup.plan.groups, run.traces);
  } catch (const Error& error) {
    throw ConfigError(
        fmt::format("{}: the traces and config.toml do not belong together, or another version of this "
                    "program wrote them: {}",
                    run.folder, error.what()));
  }
  return run;
}

}  // namespace fsdpbench::app
