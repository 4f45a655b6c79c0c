#pragma once

#include <string>
#include <vector>

#include "accept/stages/acceptance_report.h"

namespace fsdpbench::app {

/// The hosts of an acceptance by what came of them, each once, in the order of their ranks.
struct NodeLists {
  std::vector<std::string> pass;  ///< all of them, if the verdict is pass
  std::vector<std::string> fail;  ///< who is named; of a single node that fails, that one
};

/// A node that nobody accuses has not passed where another failed: what was measured is of both. It is in neither list,
/// and is to be accepted again without the others.
NodeLists node_lists(const AcceptanceReport& report);

/// A host a line: a file that `srun --nodelist=./FILE` and `--exclude=./FILE` take.
std::string host_lines(const std::vector<std::string>& hosts);

}  // namespace fsdpbench::app
