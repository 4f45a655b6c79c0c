#pragma once

#include <optional>
#include <string>
#include <vector>

#include "accept/finding.h"
#include "accept/stages/measure_acceptance.h"
#include "accept/verdict.h"
#include "config/accuracy.h"
#include "runs/trial.h"

namespace fsdpbench::app {

/// By how much more CPU ranks may have reached if other programs had taken nothing: 1 / (1 - what these took of the
/// processors). 1 on GPUs, and where they took less than kQuietShare.
double may_be_faster(const AcceptanceMeasurements& measured);

/// host_may_be_faster() for work of processors beside GPUs, as copies in their memory.
double host_may_be_faster(const AcceptanceMeasurements& measured);

/// Counts time that other programs took as an uncertainty of CPU ranks: a rule that fails, and would not if they
/// had been faster by that much (on_host: also of ranks on GPUs), is inconclusive, and a part that is slow by no more
/// than that was slow for a while. Figures that were emulated keep their own time, so findings that rest on them stay.
void soften(const AcceptanceMeasurements& measured, std::vector<accept::Judgement>& judgements,
            std::vector<accept::Finding>& findings);

/// Result of an acceptance.
struct AcceptanceReport {
  std::string fabric;
  int ranks = 0;
  accept::Cluster cluster;
  std::vector<std::string> hosts;                  ///< by rank; empty of one that is not known
  std::vector<accept::Judgement> judgements;       ///< in the order of the stages
  std::vector<accept::Finding> findings;           ///< who is to blame, then what came and went
  std::vector<std::string> meanwhile;              ///< what NCCL's RAS said when a rank was lost
  std::optional<accept::LatenessReport> lateness;  ///< absent: no rank was compared
  accept::Verdict verdict = accept::Verdict::inconclusive;
  bool wrong_data = false;
  bool emulated = false;  ///< computation or links, in part or in all: times are modelled, not the machine's
  double took_s = 0;      ///< all stages

  /// One of base/error.h: ok, wrong_data, below_floor (fail), few_rated (nothing but that is amiss), inconclusive (also
  /// if nothing could be rated).
  int exit_code() const;
};

/// The figure of the judgement that says that more is slow than the parts to blame explain.
inline constexpr const char* kRemainderFigure = "pairs beside the parts to blame";

/// The rule that so many of all rules are rated, as the profile or --least-rated asks for.
inline constexpr const char* kRatedRule = "rated";
/// Number of rules that were rated.
std::int64_t rated_rules(const AcceptanceReport& report);

/// Name of a judgement of this collective: "all_gather of 4.0 MiB on 8 ranks, in place".
std::string ladder_figure(const Message& message, bool in_place);

/// Says of each judgement that does not know it yet where it is of: the hosts, devices and NICs of its ranks, or of
/// all.
void tell_places(AcceptanceReport& report);

/// Holds what was measured against `wanted`. `trial`: of the run that it names; null if there is none: then what
/// depends on it is inconclusive. Pure.
AcceptanceReport judge_acceptance(const config::Acceptance& wanted, const AcceptanceMeasurements& measured,
                                  const Trial* trial);

}  // namespace fsdpbench::app
