#pragma once

#include <optional>
#include <string>
#include <vector>

#include "accept/element.h"
#include "accept/verdict.h"

namespace fsdpbench::accept {

/// The groups that a collective is measured in: ranks 0 … r − 1, r … 2r − 1, and so on, all at once, with as many bytes
/// a rank at every scale, as FSDP's shard groups have.
struct Scale {
  int ranks = 2;  ///< of a group
  int nodes = 1;  ///< that a group lies on
};
/// From 2 ranks to all: divisors of the number of ranks, each at least twice the one before, and with them whole nodes.
std::vector<Scale> scales_of(const Cluster& cluster);

/// Rates of one scale.
struct Rung {
  Scale scale;
  std::vector<double> gb_per_s;  ///< bus bandwidth of single iterations, on the slowest rank of all groups
};
/// Efficiency of a scale is its bandwidth over that of the smallest one whose groups use the same links, within a node
/// or between nodes. Fails at the first scale whose whole interval is below `least`, and names it. One scale of each
/// sort has nothing to be held against: unrated.
Judgement judge_scale(std::string figure, const std::vector<Rung>& rungs, double least);

/// One round of the arms of a step, in the order computation, communication, whole, whole, communication, computation,
/// so that what drifts over a round weighs on all arms alike. Milliseconds, means of an arm's two steps.
struct ArmRound {
  double computation_ms = 0;       ///< a step without its collectives, on the slowest rank
  double communication_ms = 0;     ///< the collectives alone, likewise
  double whole_ms = 0;             ///< the step, likewise
  double kernels_alone_ms = 0;     ///< ops that compute, added up, mean over ranks: in the step without collectives
  double kernels_beside_ms = 0;    ///< the same ops in the whole step
  double transfers_alone_ms = 0;   ///< collectives from the arrival of their last rank, likewise: without computation
  double transfers_beside_ms = 0;  ///< and in the whole step
};

/// Bounds for the arms of a profile; absent: none.
struct ArmBounds {
  double exposed = 1;                   ///< share of a step
  std::optional<double> slowdown = {};  ///< of computation beside communication
};

/// A judgement each of: the exposed communication, that is what a step takes longer than its computation alone; the
/// overlap that was gained, as a part of the shorter of computation and communication; how much slower computation is
/// beside communication, and communication beside computation. No rounds: inconclusive, with `why_none`.
std::vector<Judgement> judge_arms(const std::vector<ArmRound>& rounds, const ArmBounds& bounds,
                                  const std::string& why_none);

/// Whether the arms grow slower while they are repeated for long: each arm's last third of the rounds, which are in the
/// order of time, over the median of its first third. Fails if it is `most` more for certain, by the interval; a
/// judgement an arm. Fewer than 18 rounds, 6 a third, are inconclusive.
std::vector<Judgement> judge_drift(const std::vector<ArmRound>& rounds, double most = 0.03);

}  // namespace fsdpbench::accept
