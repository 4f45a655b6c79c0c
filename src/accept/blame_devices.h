#pragma once

#include <string_view>
#include <vector>

#include "accept/finding.h"

namespace fsdpbench::accept {

/// What each GPU computed or moved a second, by rank, in rounds that all measured at the same time. A rate of 0 means
/// that it was not measured.
using DeviceRounds = std::vector<std::vector<double>>;

/// Which GPUs are slower than the median of all for certain: by more than 5 % and by more than three robust deviations.
/// Every round is held against its own median, so that what all share (heat of the day, a power limit) accuses nobody.
/// A GPU that is slow in some rounds and as fast as ever in others is called transient: it throttles, or something else
/// ran there; not if its better rounds, too, are below its peers. Fewer than kFewestPeers GPUs are not compared. All
/// rounds have cluster.ranks() values.
/// `at`: what was measured, for the evidence.
std::vector<Finding> blame_devices(const Cluster& cluster, const DeviceRounds& rounds,
                                   std::string_view at = "matrix products");

}  // namespace fsdpbench::accept
