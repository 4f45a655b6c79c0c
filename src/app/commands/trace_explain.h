#pragma once

#include <string>
#include <vector>

namespace fsdpbench::app {

/// The command line of `fsdpbench trace explain`.
struct TraceExplainArguments {
  std::vector<std::string> traces;  ///< files and folders
  std::string out;                  ///< empty: nothing is written
  bool overwrite = false;
  bool json = false;  ///< print what explain.json would hold
};

/// Reads the traces of a job, says what it is, why its communication is exposed and what would help. Returns
/// ExitCode::ok; throws ConfigError for files that are no traces.
int trace_explain_command(const TraceExplainArguments& arguments);

}  // namespace fsdpbench::app
