#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "account/cause.h"
#include "account/counterfactual.h"
#include "account/critical_path.h"
#include "account/statistics.h"
#include "account/step_breakdown.h"
#include "base/enum_table.h"
#include "foreign/job_causes.h"
#include "foreign/kernel_times.h"
#include "foreign/link_rows.h"
#include "foreign/recognise.h"

namespace fsdpbench::foreign {

/// Nanoseconds.
using CauseTimes = EnumTable<account::Cause, std::int64_t>;
/// Milliseconds.
using CauseMs = EnumTable<account::Cause, double>;

struct ExplainedStep {
  std::int64_t number = 0;
  account::StepBreakdown parts;
  CauseTimes causes;  ///< of parts.stalled(): they partition it
  std::vector<account::Stall> stalls;
  std::int64_t garbage = 0;  ///< nanoseconds of Cause::host_bound in which Python collected garbage
};

struct ExplainedRank {
  int rank = 0;
  std::vector<ExplainedStep> steps;
  /// 100 |U(comm) and U(comp)| / U(comm) over the whole file; absent without communication.
  std::optional<double> overlap_pct;
  std::optional<std::int64_t> most_allocated, most_reserved;  ///< bytes; absent if the trace has no memory rows
  std::int64_t clock_offset_ns = 0;                           ///< to the first rank's clock
};

/// Collectives that do the same: one kind, unit and phase. Milliseconds are means over ranks and steps, a step.
struct ExplainedCollective {
  std::string kind, unit, phase;  ///< "all_gather", "layers.3" or "", "forward"
  Purpose purpose = Purpose::unknown;
  std::int64_t bytes = -1;  ///< of the whole message; -1: not told
  int ranks = 0;            ///< of its group; 0: not told
  double times = 0;         ///< a step
  double time_ms = 0, waited_ms = 0, exposed_ms = 0;
  std::optional<double> busbw_gb_s;  ///< of the transfer without waiting, as nccl-tests; absent without size or group
  std::vector<int> group;            ///< its ranks; empty: not told
  std::optional<double> link_gb_s, link_share_pct;  ///< of the cluster that was named; no share above 100
  CauseMs causes_ms;
  account::Cause worst = account::Cause::unknown;  ///< the cause that has most of exposed_ms
};

/// A matrix product that takes longer while a collective runs. Launches in the same place of blocks that launch the
/// same kernels are compared; a place's time is the median, and places count by their launches beside collectives.
struct Contention {
  std::string kernel;
  double alone_us = 0, beside_us = 0;
  std::size_t alone = 0, beside = 0;  ///< launches that ran wholly alone, and mostly beside a collective
  double lost_ms = 0;                 ///< a step: what the latter took beyond the former
};

struct Explanation {
  std::vector<ExplainedRank> ranks;
  std::vector<double> steps_ms;  ///< of the slowest rank, each step that all ranks have
  account::Summary step_ms;      ///< of these
  /// The critical path of each of these steps, summed: exactly the sum of steps_ms.
  std::vector<account::PathOfRank> path;
  account::CriticalPath median_path;  ///< of the step of median length, the shorter of two; none without such steps
  /// Means over ranks and steps, in milliseconds a step.
  double mean_step_ms = 0, computation_ms = 0, communication_ms = 0, exposed_communication_ms = 0, exposed_copy_ms = 0,
         idle_ms = 0;
  CauseMs causes_ms;
  std::vector<account::CauseShare> causes;       ///< the same, the largest first, with what would help (advice.h)
  std::vector<ExplainedCollective> collectives;  ///< the most exposed first
  KernelTimes kernels;                           ///< of all ranks and steps
  std::size_t rank_steps = 0;                    ///< steps of all ranks together: over which means are
  std::vector<Contention> contention;            ///< the most time first; of more than 5 % and 8 launches either way
  double late_launches_pct = 0;                  ///< of computation that began right after its launch
  double garbage_ms = 0;                         ///< of what is host_bound, while Python collected garbage
  bool launches_known = false;
  /// Lead of the host over the device: from launches to the begin of what they launched, milliseconds.
  double host_ahead_ms = 0, host_most_ahead_ms = 0;  ///< the median of all, and the most; if launches are known
  std::int64_t clock_residual_ns = 0;
  std::optional<LateRank> late;  ///< the rank that the others wait for in each step, and what makes it late
  std::optional<int> late_rank;  ///< place: who came last in most of the waiting, if it has more than half of it
  std::vector<std::string> notes;
};

/// Throws a check_failed Error if a rank's step does not add up: the parts to the step, or the causes to the time
/// without computation.
Explanation explain(const JobTrace& job, const Recognition& found);

}  // namespace fsdpbench::foreign
