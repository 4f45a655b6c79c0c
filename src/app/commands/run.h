#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdpbench::app {

/// The command line of `fsdpbench run`.
struct RunArguments {
  std::string profile;                    ///< a file, a result folder, or a name: config::find_profile
  std::vector<std::string> overrides;     ///< `key=value`, in the order given; later ones win
  std::optional<std::int64_t> ranks;      ///< absent: as the profile, the overrides and the launcher say
  std::string out;                        ///< result folder; empty: runs/<profile stem>-<date-time>
  std::optional<std::string> resume;      ///< the same as checkpoint.resume, but not empty
  bool overwrite = false;                 ///< replace a result that `out` holds
  std::vector<std::string> command_line;  ///< as typed, for the result file
};

class Job;

/// Trains, measures and writes the result folder. `job`: null, or the job whose rank 0 this is. Returns the process
/// exit code; throws base/error.h errors.
int run_command(const RunArguments& arguments, Job* job);

}  // namespace fsdpbench::app
