#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdpbench::app {

/// The command line of `fsdpbench tune`.
struct TuneArguments {
  std::string profile;                 ///< config::find_profile; empty with `from`
  std::vector<std::string> overrides;  ///< `key=value`
  std::string cluster;                 ///< as simulate.cluster, on the computed clock; empty: as the profile says
  /// A finished run whose op times are the machine, or the traces of another program's job; empty: a simulated machine.
  std::vector<std::string> from;
  std::string memory;                  ///< "70GiB"; empty: no limit
  std::string memory_kind = "live";    ///< live, reserved or process
  std::optional<double> memory_error;  ///< in percent, in place of what is assumed
  std::string memory_overhead;         ///< of a process beside its allocator, in place of what is assumed
  std::string objective = "step";      ///< step, memory or tokens_per_s
  std::vector<std::string> fixes;      ///< "key" or "key=value": is not turned
  std::vector<std::string> dtypes;     ///< that param_dtype and reduce_dtype may become
  std::int64_t evaluations = 20'000;   ///< policies whose step is computed, at most
  bool exhaustive = false;             ///< all of them
  std::uint64_t seed = 1;
  int threads = 2;
  double least_gain_pct = 1;  ///< gains below do not count
  int verify = 0;             ///< so many of the best run for real
  int trials = 3;             ///< of each in a round
  std::vector<std::string> exports;
  std::string out;
  bool overwrite = false;
};

class Job;

/// Finds the settings of a training that are best on a machine under a memory budget, says what each is worth, and
/// writes them as a profile. Nothing runs but what --verify asks for. Returns the process exit code. `job`: null, or
/// the job whose rank 0 this is, which verifies.
int tune_command(const TuneArguments& arguments, Job* job);

}  // namespace fsdpbench::app
