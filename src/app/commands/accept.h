#pragma once

#include <string>
#include <vector>

#include "app/console/json_part.h"

namespace fsdpbench::app {

class Job;

/// The command line of `fsdpbench accept`.
struct AcceptArguments {
  std::string profile;                 ///< a file, or a name in profiles/acceptance
  std::vector<std::string> overrides;  ///< `key=value` of the run that the profile names
  std::string out;                     ///< folder; empty: runs/accept-<profile>-<date-time>
  bool overwrite = false;
  bool full = false;                      ///< more iterations, so that tails can be rated, and a soak
  std::string budget;                     ///< of time, as duration_s() reads it; empty: 5 minutes, full 30
  std::vector<std::string> command_line;  ///< as typed, for the result file
};

/// Measures, judges, writes result.json, junit.xml, summary.md, metrics.prom and worst_step.json. `job`: null, or the
/// job whose rank 0 this is. Returns the process exit code; throws base/error.h errors.
int accept_command(const AcceptArguments& arguments, Job* job);

/// The part of every other rank of a job: `order` is what rank 0's command sent.
void serve_acceptance(Job& job, const JsonPart& order);
inline constexpr const char* kAcceptanceService = "accept";

}  // namespace fsdpbench::app
