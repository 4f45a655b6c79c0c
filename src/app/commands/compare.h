#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fsdpbench::app {

/// The command line of `fsdpbench compare`.
struct CompareArguments {
  std::string a;                         ///< a run profile, a result folder, or a name: config::find_profile
  std::string b;                         ///< empty: the same as `a`
  std::vector<std::string> overrides;    ///< of both
  std::vector<std::string> a_overrides;  ///< of A only, after those of both
  std::vector<std::string> b_overrides;
  std::optional<int> trials;    ///< of each side; absent: 12 if there is anything to run
  double threshold = 1;         ///< in percent: smaller differences are of no interest
  bool rerun = false;           ///< run both even if both are results
  bool fail_if_slower = false;  ///< exit code 7 if B is slower
  std::string out;         ///< folder for compare.json; empty: runs/compare-<date-time> if anything runs, else none
  bool overwrite = false;  ///< replace a result that `out` holds
};

class Job;

/// Says which of A and B is faster. Two results of finished runs are compared as they are, if nothing of the command
/// line asks for runs; else both run in turns, and compare.json is written. Returns ExitCode::ok, or ExitCode::slower
/// if asked for. `job`: null, or the job whose rank 0 this is.
int compare_command(const CompareArguments& arguments, Job* job);

}  // namespace fsdpbench::app
