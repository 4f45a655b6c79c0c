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
  std::vector<double> repeats_ms;        ///< median steps of other runs of the same configuration
};

/// Reads what `run` or `simulate` wrote: `given` is the folder or its result.json. Throws ConfigError that names the
/// file if the run did not finish, has no measured step, has not kept all its ranks, or if the files do not fit each
/// other. `repeats`: of runs that differ from it in nothing, to show by how much runs differ; only their results are
/// read. Throws ConfigError if one of them is of another configuration or machine, or is given twice.
FinishedRun read_finished_run(const std::string& given, const std::vector<std::string>& repeats = {});

}  // namespace fsdpbench::app
