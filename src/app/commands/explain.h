#pragma once

#include <string>
#include <vector>

#include "app/report/explain_prediction.h"

namespace fsdpbench::app {

/// The command line of `fsdpbench explain`.
struct ExplainArguments {
  std::string profile;                 ///< a file, a result folder, or a name: config::find_profile
  std::vector<std::string> overrides;  ///< `key=value`, in the order given; later ones win
  std::string from;                  ///< a result folder (or result.json) to explain instead of a profile; empty: none
  std::string format = "table";      ///< "table", "summary", "json", "collectives" or "issue"
  bool parameters = false;           ///< print who holds what of every parameter; json: add it
  std::string schedule;              ///< print the schedule: "all", a unit or a layer; empty: the table instead
  bool compare_parallelism = false;  ///< print other ways to spread the training instead
  GivenRates rates;                  ///< for the predicted step
};

/// Prints plan, memory, communication and schedule on stdout; runs nothing. Returns the process exit code.
int explain_command(const ExplainArguments& arguments);

}  // namespace fsdpbench::app
