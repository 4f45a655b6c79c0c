#pragma once

#include <string>
#include <vector>

namespace fsdpbench::app {

/// The command line of `fsdpbench calibrate`.
struct CalibrateArguments {
  std::vector<std::string> runs;       ///< result folders of finished runs, or profiles that are run here
  std::vector<std::string> overrides;  ///< of the profiles
  std::string out;                     ///< the calibration file
  std::string beside;                  ///< of `collectives --beside -J`: who slows whom; empty: not measured
  bool overwrite = false;              ///< replace it
};

/// Reads or measures the runs, and writes what their ops took. Returns the exit code; throws base/error.h errors.
int calibrate_runs(const CalibrateArguments& arguments);

}  // namespace fsdpbench::app
