#pragma once

#include <string>
#include <vector>

namespace fsdpbench::app {

/// The command line of `fsdpbench explain`.
struct ExplainArguments {
  std::string profile;                 ///< a file, a result folder, or a name: config::find_profile
  std::vector<std::string> overrides;  ///< `key=value`, in the order given; later ones win
  std::string from;                    ///< a result.json to explain instead of a profile; empty: none
  std::string format = "table";        ///< "table", "json", "collectives" or "issue"
};

/// Prints plan, memory, communication and schedule on stdout; runs nothing. Returns the process exit code.
int explain_command(const ExplainArguments& arguments);

}  // namespace fsdpbench::app
