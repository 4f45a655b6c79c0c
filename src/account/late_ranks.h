#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "account/statistics.h"

namespace fsdpbench::account {

/// Something that every rank does several times a step, by step, rank and place: nanoseconds; negative: not known.
using RankTimes = std::vector<std::vector<std::vector<std::int64_t>>>;

/// One rank compared with the others at what all of them do.
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

/// Number of a run's first measured values that do not yet belong to its steady state.
struct Settling {
  int unsettled = 0;           ///< 0: steady from the first value on
  bool never_settled = false;  ///< `unsettled` is half of the run, the most that is looked at: the run is too short
};

/// The truncation point of the MSER rule (K. P. White, "An effective truncation heuristic for bias reduction in
/// simulation output", Simulation 69(6), 1997): the one that leaves the remaining mean with the least standard error.
/// MSER always proposes something, so a proposal counts only if the median of what it would drop differs from the
/// median of the rest by more than 1 % and by more than three robust standard deviations (1.4826 MAD) of the rest.
/// Absent for fewer than eight values: too few to tell.
std::optional<Settling> find_settling(const std::vector<double>& values);

}  // namespace fsdpbench::account
