#pragma once

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
  int trials = 12;         ///< of each side
  double threshold = 1;    ///< in percent: smaller differences are of no interest
  std::string out;         ///< folder for compare.json; empty: runs/compare-<date-time>
  bool overwrite = false;  ///< replace a result that `out` holds
};

class Job;

/// Runs A and B in turns, says which is faster, and writes compare.json. Returns 0 whatever the verdict. `job`: null,
/// or the job whose rank 0 this is.
int compare_command(const CompareArguments& arguments, Job* job);

}  // namespace fsdpbench::app
