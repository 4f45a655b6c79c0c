#pragma once

#include <string>
#include <vector>

#include "accept/stages/acceptance_report.h"

namespace fsdpbench::app {

/// A rank that did not come to an end: killed, crashed, hung, or never there.
struct LostRank {
  int rank = -1;         ///< -1: it is not known which
  std::string host;      ///< empty: likewise
  std::string sentence;  ///< what became of it, with its rank and host
};

/// Judges an acceptance that did not end because ranks were lost: it fails, and the lost ranks are to blame.
/// `ranks`: of the job; `hosts`: by rank, as far as they are known; `meanwhile`: sentences of others about the job at
/// that moment, which the evidence of the first finding gets.
AcceptanceReport judge_lost_ranks(const config::Acceptance& wanted, int ranks, const std::vector<std::string>& hosts,
                                  const std::vector<LostRank>& lost, bool on_processors = false,
                                  const std::vector<std::string>& meanwhile = {});

/// Judges a host on which no device was found for the ranks that the profile expects: it fails.
AcceptanceReport judge_no_devices(const config::Acceptance& wanted, const std::string& host, int expected);

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
