#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replay/delays.h"
#include "replay/jitter.h"
#include "schedule/schedule.h"

namespace fsdpbench::replay {

/// What one op takes on every rank alike, before factors and jitter: whole nanoseconds.
struct OpCost {
  double run_ns = 0;   ///< on its lane; of a collective, from the arrival of its last peer until its bytes flow
  double link_ns = 0;  ///< of a collective, on top: while its bytes flow, with the link to themselves
  int fabric = 0;      ///< of a collective: which of a rank's links its bytes go through
  int scatter = 0;     ///< which of the jitter's distributions it has
};
/// By op of a schedule.
using StepCosts = std::vector<OpCost>;

/// What the host and the start of ops take, on every rank alike: whole nanoseconds.
struct HostCosts {
  double issue_ns = 0;   ///< to issue an op
  double launch_ns = 0;  ///< from an op's issue until a lane that is idle begins it
  double gap_ns = 0;     ///< from the end of an op until a lane begins the next one, which was there already
  /// From an event until the op on another lane, or the host, that waited for it goes on; and from the end of a
  /// collective until another lane begins the next one on its communicator.
  double wake_ns = 0;
  double step_ns = 0;   ///< from the end of a rank's step until it begins to issue the next
  double start_ns = 0;  ///< when all hosts begin with the first step
};

/// How long everything in a run takes, on every rank and in every step. A pure function: asked twice, it says the same.
struct OpTimes {
  std::vector<StepCosts> steps;  ///< as schedule::Schedules::steps; the last one repeats
  HostCosts host;
  std::vector<double> compute_factor;  ///< by rank, of what runs on the compute lane; empty: 1
  std::vector<double> link_factor;  ///< by rank, of its links; a transfer ends when its slowest member does; empty: 1
  Jitter jitter;
  /// How such ops were seen to scatter, for a Jitter to draw from: by OpCost::scatter, residuals; empty: not known.
  std::vector<std::vector<double>> measured_scatter;
  Delays delays;
  /// Nanoseconds by step of `steps`, rank and op, which take the place of costs, factors and jitter; empty: none. Of a
  /// collective from the arrival of its last peer. Of one rank: all take the same.
  std::vector<std::vector<std::vector<std::int64_t>>> given;
  /// Given times of collectives are of links to themselves: transfers of two communicators share them, after run_ns of
  /// `steps`, on the fabric there. Else they take what is given, whatever is beside them.
  bool given_share_links = false;
  /// By step, rank and op as `given`: what the host takes to issue it, in place of host.issue_ns; empty: that.
  std::vector<std::vector<std::vector<std::int64_t>>> given_issue;

  /// How each collective of the steady schedule is done, by op: "ring, simple, inter". Empty where nothing was chosen.
  std::vector<std::string> choices;

  const StepCosts& of_step(std::size_t step) const { return steps[step < steps.size() ? step : steps.size() - 1]; }
  /// Whether two ranks may take different times.
  bool ranks_differ() const {
    if (!given.empty()) return given.front().size() > 1;
    return !compute_factor.empty() || !link_factor.empty() || jitter.any() || delays.rank >= 0 || delays.uniform_ns > 0;
  }
};

/// Whether the ops of a step, one after another on the slowest rank, take longer than 104 days: a double holds every
/// nanosecond of less.
bool too_long(const OpTimes& times);

}  // namespace fsdpbench::replay
