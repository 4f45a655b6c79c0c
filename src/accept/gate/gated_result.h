#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "accept/gate/machine_print.h"
#include "accept/regression.h"

namespace fsdpbench::app {

/// A result as gates compare it: who measured what, whether it was accepted, and its figures. Of `accept`, `run`,
/// `simulate`, `sweep` and `collectives -J`.
struct GatedResult {
  std::string name;                   ///< of its folder, for people
  std::string kind;                   ///< "acceptance", "run", "sweep", "collectives"
  std::string date;                   ///< as its world has it; empty: simulated
  std::string digest;                 ///< of its file
  MachinePrint machine;               ///< it was measured on
  nlohmann::json measured;            ///< what, by key: only results with the same can be compared
  std::string not_accepted_because;   ///< why its own verdict is no pass; empty: it is
  std::vector<std::string> injected;  ///< faults, "inject.slow_rank = 2": a failure was rehearsed
  accept::ResultFigures figures;
};

/// Reads the result that a person means by `given`: a file, or a folder with result.json or sweep.json (of a sweep the
/// trials.jsonl beside it, too, if it is there: with it each trial counts). Throws ConfigError that names the file and
/// says what is expected, also for a run without a measured step.
GatedResult read_gated_result(const std::string& given);

}  // namespace fsdpbench::app
