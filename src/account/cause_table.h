#pragma once

#include <string>
#include <vector>

#include "account/cause_report.h"
#include "account/counterfactual.h"
#include "account/critical_path.h"

namespace fsdpbench::app {

/// Printed list of causes, for a run of ours and for a traced job.
struct CauseTable {
  std::string title;
  std::string no_typical;             ///< a line about why nothing was replayed; may be empty
  std::vector<std::string> knobs;     ///< sentences about settings, by what they gain
  std::string step = "typical step";  ///< what the step of `typical_ms` is
};

/// The causes of `report`, the largest first, with what the typical step would take without each where that is known,
/// small ones and jitter in a line each, and below them what would help.
std::string cause_table(const account::CauseReport& report, const CauseTable& how);

/// Table of what decided how long steps were, by rank and kind: a row adds up to its rank's, the rows to the step.
std::string path_table(const account::PathReport& path);

}  // namespace fsdpbench::app
