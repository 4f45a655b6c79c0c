#pragma once

#include <cstdint>
#include <vector>

#include "account/statistics.h"

namespace fsdpbench::account {

/// Something that every rank does several times a step, by step, rank and place: nanoseconds; negative: not known.
using RankTimes = std::vector<std::vector<std::vector<std::int64_t>>>;

/// How one rank compares with the others at what all of them do.
struct Lateness {
  int trials = 0;            ///< (step, place) of which all have a time, and not the same
  int late = 0;              ///< in so many of them at least half of all ranks were faster
  double by_chance = 1;      ///< how likely so many or more are if no rank differs
  Summary excess_ms;         ///< over steps: what its times sum up to beyond the median of the others'
  bool significant = false;  ///< it is a late rank
};

/// By rank.
///
/// [Note: when a rank is late]
/// Whenever ranks do the same thing one of them is last, so being last says nothing. If no rank differs, each of n is
/// among the floor(n/2) slower ones in floor(n/2)/n of all trials, whatever the distribution of times: a sign test. A
/// rank is late if it was there so often that this has a chance below kLateLevel / n (Bonferroni: n ranks are tried),
/// and if the lower end of the interval of its excess is above `noise_ms`. The second condition is also what holds the
/// test up where the trials of one step share their luck, as on a core that something else has taken for a while.
std::vector<Lateness> find_late_ranks(const RankTimes& times, double noise_ms);
inline constexpr double kLateLevel = 0.01;

/// P(X >= at_least) of `trials` independent trials that succeed with probability `chance` in (0, 1).
double binomial_tail(int trials, int at_least, double chance);

}  // namespace fsdpbench::account
