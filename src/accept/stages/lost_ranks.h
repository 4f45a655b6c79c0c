#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "accept/stages/acceptance_report.h"
#include "launch/addresses.h"
#include "launch/own_ranks.h"

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

/// Number of processes, of one rank each, to start on this host, which has so many `devices`, at least one;
/// absent: as many as are asked for. `overrides`: `key=value` of the run that the profile names.
int own_ranks(const config::Acceptance& wanted, const std::vector<std::string>& overrides,
              const config::RunConfig& config, std::optional<int> devices);

/// The lost ranks among the processes that this one started, with `limit_s` to come to an end.
std::vector<LostRank> lost_of(const std::vector<launch::RankEnd>& ends, double limit_s);

/// Where NCCL's RAS is asked about lost ranks: as --ras says, else where NCCL has it unless that is switched off;
/// empty: it is not asked. CPU ranks have no NCCL.
std::string ras_of(const std::string& given, bool on_processors, const launch::Environment& environment);

/// Sentence for people on what NCCL's RAS says of a job that has stopped. `watch`: runs `fsdpbench watch` with these
/// words and returns what it prints; it may throw Error.
std::string told_by_ras(const std::string& ras,
                        const std::function<std::string(const std::vector<std::string>& words)>& watch);

/// Facts that rank 0 wrote about the job before a rank was lost, if it got that far; no rank can be asked any more.
std::vector<std::string> told_by_rank_0(const std::filesystem::path& result);

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
