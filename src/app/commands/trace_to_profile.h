#pragma once

#include <string>
#include <vector>

namespace fsdpbench::app {

/// The command line of `fsdpbench trace to-profile`.
struct TraceToProfileArguments {
  std::vector<std::string> traces;               ///< files and folders
  std::string calibration = "calibration.toml";  ///< is written
  bool overwrite = false;
};

/// Prints a profile that reproduces the job, and writes the calibration that it names. Returns ExitCode::ok; throws
/// ConfigError if the job follows no schedule that is known here.
int trace_to_profile_command(const TraceToProfileArguments& arguments);

}  // namespace fsdpbench::app
