#pragma once

#include <optional>
#include <string>
#include <vector>

#include "accept/finding.h"
#include "account/run_view.h"

namespace fsdpbench::accept {

/// The collectives of one step: when each rank came to them, and how long they took once all had. Of several the sums.
struct Arrivals {
  std::vector<double> arrival_us;  ///< by rank, on one clock, since the step began or the collective before was over
  double transfer_us = 0;          ///< from the last arrival to the end
};

/// What time in collectives is: waiting for somebody, or moving bytes.
struct LatenessReport {
  std::optional<Finding> late;     ///< the rank that the others wait for; absent: nobody in particular
  std::vector<double> last_share;  ///< by rank, of the samples in which it came last
  Interval waiting_us;             ///< from the median arrival to the last one
  Interval transfer_us;
  bool in_turn = false;  ///< all wait for long, now for one and now for another
  std::string sentence;
};

/// The reductions of each step that computes and reduces gradients: a rank comes to one when it has computed the
/// gradients, however far ahead its gathers were issued. What it waited for a core (other work, or other ranks, had it)
/// is not its lateness. `run`: of all ranks.
std::vector<Arrivals> arrivals_of(const account::RunView& run);

/// A rank is to blame if it comes last in more than half of the samples for certain (binomial, 1 %), and where it does
/// by more than `least` of the time from the step's begin to the collective's end (95 % interval of the median). Chance
/// makes everybody last in turn, and the slowest of healthy GPUs, which differ by up to 5 %, is last for good, but not
/// by much. All samples have cluster.ranks() arrivals. Fewer than kFewestToBeLate ranks are not compared.
LatenessReport blame_lateness(const Cluster& cluster, const std::vector<Arrivals>& samples, double least = 0.05);

/// One of two ranks is always last.
inline constexpr int kFewestToBeLate = 3;

}  // namespace fsdpbench::accept
