#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/experiment/trial_log.h"

namespace fsdpbench::app {

/// The command line of `fsdpbench sweep`.
struct SweepArguments {
  std::string sweep;                   ///< a sweep file or a name: config::find_sweep
  std::vector<std::string> overrides;  ///< `key=value` for all cells; later ones win
  std::string out;                     ///< folder; empty: runs/<stem of the sweep file>
  std::optional<std::int64_t> trials;  ///< of each cell; absent: as the file says
  bool retry_failed = false;           ///< run failed cells again
};

class Job;

/// Runs what is not yet in the folder, and writes trials.jsonl and sweep.json there. Returns the process exit code:
/// failed cells are results, so they do not change it. `job`: null, or the job whose rank 0 this is; if that fails, the
/// sweep ends with what it has.
int sweep_command(const SweepArguments& arguments, Job* job);

}  // namespace fsdpbench::app
