#pragma once

#include <optional>
#include <string>
#include <vector>

#include "accept/finding.h"

namespace fsdpbench::accept {

/// One collective of one step: when each rank came to it, and how long it took once all had.
struct Arrivals {
  std::vector<double> arrival_us;  ///< by rank, on one clock, since the step began
  double transfer_us = 0;          ///< from the last arrival to the end
};

/// What time in collectives is: waiting for somebody, or moving bytes.
struct LatenessReport {
  std::optional<Finding> late;     ///< the rank that the others wait for; absent: nobody in particular
  std::vector<double> last_share;  ///< by rank, of the samples in which it came last
  Interval waiting_us;             ///< from the median arrival to the last one
  Interval transfer_us;
  std::string sentence;
};

/// A rank is to blame if it comes last in more than half of the samples, and in the median by more than `least` of the
/// time from the step's begin to the collective's end. Chance makes everybody last in turn, and the slowest of healthy
/// GPUs, which differ by up to 5 %, is last for good, but not by much. All samples have cluster.ranks() arrivals.
LatenessReport blame_lateness(const Cluster& cluster, const std::vector<Arrivals>& samples, double least = 0.05);

}  // namespace fsdpbench::accept
