#pragma once

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

/// What one scale carried.
struct Rung {
  Scale scale;
  std::vector<double> gb_per_s;  ///< bus bandwidth of single iterations, on the slowest rank of all groups
};
/// Efficiency of a scale is its bandwidth over that of the smallest one whose groups use the same links, within a node
/// or between nodes. Fails at the first scale whose whole interval is below `least`, and names it. One scale of each
/// sort has nothing to be held against: unrated.
Judgement judge_scale(std::string figure, const std::vector<Rung>& rungs, double least);

}  // namespace fsdpbench::accept
