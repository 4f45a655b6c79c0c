#pragma once

#include <string>

#include "account/path_report.h"

namespace fsdpbench::app {

/// What decided how long steps were, by rank and kind: a row adds up to its rank's, the rows to the step.
std::string path_table(const account::PathReport& path, int decimals);

}  // namespace fsdpbench::app
