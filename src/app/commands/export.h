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

/// The command line of `fsdpbench export`.
struct ExportArguments {
  std::string profile;                 ///< a file, a result folder, or a name: config::find_profile
  std::vector<std::string> overrides;  ///< `key=value`, in the order given; later ones win
  std::string to;                      ///< names of dialects(), with commas; empty: say which there are
  std::string out;                     ///< folder for the files; empty: they are printed
  bool overwrite = false;              ///< replace files of these names that `out` holds
  bool keys = false;                   ///< print what becomes of every key instead of the files
  bool traced = false;                 ///< the profile was recognised in traces: dialects::make_export
};

/// Writes the profile in the words of other systems; runs nothing. Returns the process exit code.
int write_exports(const ExportArguments& arguments);

}  // namespace fsdpbench::app
