#pragma once

#include <string>
#include <vector>

namespace fsdpbench::app {

/// The command line of `fsdpbench run`.
struct RunArguments {
  std::string profile;                    ///< path of the run profile
  std::vector<std::string> overrides;     ///< `key=value`, in the order given; later ones win
  std::string out;                        ///< result folder; empty: runs/<profile stem>-<date-time>
  std::vector<std::string> command_line;  ///< as typed, for the result file
};

/// Trains, measures and writes the result folder. Returns the process exit code; throws base/error.h errors.
int run_command(const RunArguments& arguments);

}  // namespace fsdpbench::app
