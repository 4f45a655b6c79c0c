#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "account/run_view.h"
#include "base/link_model.h"
#include "base/memory_space.h"
#include "plan/plan.h"
#include "trace/facts.h"

namespace fsdpbench::account {

/// Live bytes of one rank over one step, at every change: an op's buffers live from its begin on the lane, or until its
/// end, not from when the host, far ahead, issued it. The first level is that of the step's begin, from
/// which times count.
std::vector<trace::LiveBytes> memory_timeline(const StepRecords& step, int rank);

/// One phase of a step, in milliseconds of RunMetrics: means over all ranks in the run's middle steps, scaled to the
/// median step (run_view.h). A phase begins when its first
/// computation does, so what a phase waits for before its first op belongs to the phase before; the first phase begins
/// with the step. So the phases add up to the run's numbers, part by part.
struct PhaseTimes {
  schedule::Phase phase = schedule::Phase::forward;
  double step_ms = 0;
  double compute_ms = 0;
  double comm_ms = 0;
  double overlap_ms = 0;
  double exposed_comm_ms = 0;
  double exposed_copy_ms = 0;
  double idle_ms = 0;
  double host_wait_ms = 0;  ///< the host was blocked (limits, syncs); runs beside the above, not part of the sum
};

/// One unit, in the same milliseconds. Exposed: its communication while nothing computes.
struct UnitTimes {
  std::string unit;
  double compute_ms = 0;
  double comm_ms = 0;
  double exposed_comm_ms = 0;
};

/// One collective of the schedule: medians over ranks and measured steps. Steps may have different schedules; those in
/// which a collective does the same to the same count together (step_view.h).
/// Message and bandwidths by nccl-tests' conventions: the output of an all-gather, the input of a reduce-scatter, the
/// buffer of an all-reduce; algbw = message / transfer time; busbw = algbw (n-1)/n, for all-reduce 2 (n-1)/n.
struct CollectiveTimes {
  std::string name, kind, unit, phase;
  int op = -1;  ///< of the steady schedule; -1: only an earlier one has it
  std::int64_t message_bytes = 0;
  int group_size = 1;
  int count = 0;           ///< times measured
  double time_ms = 0;      ///< from its turn on the communicator to its end
  double wait_ms = 0;      ///< of that, until the last peer had arrived
  double transfer_ms = 0;  ///< the rest
  double algbw_gb_s = 0;
  double busbw_gb_s = 0;
  std::optional<double> link_efficiency;  ///< busbw over the modelled link's bandwidth; absent for real links
};

struct RunDetails {
  std::vector<PhaseTimes> phases;
  std::vector<UnitTimes> units;
  std::vector<CollectiveTimes> collectives;
};

/// At least one measured step.
RunDetails run_details(const RunView& run, const plan::Plan& plan, const std::optional<LinkModel>& link);

}  // namespace fsdpbench::account
