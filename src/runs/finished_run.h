#pragma once

#include <string>
#include <vector>

#include "engine/setup.h"
#include "runs/trial.h"
#include "trace/record.h"

namespace fsdpbench::app {

/// A run as its result folder keeps it.
struct FinishedRun {
  std::string folder;
  engine::Setup setup;                   ///< of its config.toml
  Trial trial;                           ///< of its result.json, with metrics
  std::vector<trace::RankTrace> traces;  ///< by rank, of its measured steps (trace/rank_writer.h)
};

/// Reads what `run` or `simulate` wrote: `given` is the folder or its result.json. Throws ConfigError that names the
/// file if the run did not finish, has no measured step, has not kept all its ranks, or if the files do not fit each
/// other.
FinishedRun read_finished_run(const std::string& given);

}  // namespace fsdpbench::app
