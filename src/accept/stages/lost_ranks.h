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
/// `ranks`: of the job; `hosts`: by rank, as far as they are known; `meanwhile`: sentences of others about the job at that
/// moment, which the evidence of the first finding gets.
AcceptanceReport judge_lost_ranks(const config::Acceptance& wanted, int ranks, const std::vector<std::string>& hosts,
                                  const std::vector<LostRank>& lost, bool on_processors = false,
                                  const std::vector<std::string>& meanwhile = {});

/// Judges a host on which no device was found for the ranks that the profile expects: it fails.
AcceptanceReport judge_no_devices(const config::Acceptance& wanted, const std::string& host, int expected);

}  // namespace fsdpbench::app
