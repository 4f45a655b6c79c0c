#pragma once

#include <string>
#include <vector>

namespace fsdpbench::app {

/// The command line of `fsdpbench trace check`.
struct TraceCheckArguments {
  std::vector<std::string> files;
};

/// Prints what is wrong with each file, or that it is fine. Returns ExitCode::ok or ExitCode::bad_input.
int trace_check_command(const TraceCheckArguments& arguments);

}  // namespace fsdpbench::app
