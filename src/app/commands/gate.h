#pragma once

#include <string>
#include <vector>

namespace fsdpbench::app {

/// The command line of `fsdpbench gate`.
struct GateArguments {
  std::vector<std::string> results;  ///< of one machine: folders or files
  std::string against;               ///< a baseline: its file, name or folder; or another result
  double threshold = 5;              ///< in percent: smaller differences are of no interest
  bool other_software = false;       ///< two versions of kernel, driver, libraries or build, on purpose
  bool other_machine = false;        ///< two machines, on purpose
  std::string out;                   ///< folder for gate.json, junit.xml and summary.md; empty: none
  bool overwrite = false;
};

/// Says what is worse than it was. Returns ExitCode::ok, slower, inconclusive or other_machine; throws base/error.h
/// errors.
int gate_command(const GateArguments& arguments);

}  // namespace fsdpbench::app
