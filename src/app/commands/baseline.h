#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpbench::app {

/// The command line of `fsdpbench baseline`.
struct BaselineArguments {
  enum class Action : std::uint8_t { add, list, show };
  Action action = Action::list;
  std::vector<std::string> names;  ///< add: results; show: baselines
  std::string in;                  ///< folder of the baselines; empty: baselines/
  std::string anyway;              ///< add: why to keep what was not accepted; empty: it is refused
};

/// Keeps accepted results, for `gate`. Returns the process exit code; throws base/error.h errors.
int baseline_command(const BaselineArguments& arguments);

}  // namespace fsdpbench::app
