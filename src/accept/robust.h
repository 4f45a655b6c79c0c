#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "accept/element.h"
#include "account/statistics.h"

namespace fsdpbench::accept {

using Interval = account::Estimate;
using account::median_interval;

/// Median of the distances from the median, times 1.4826: the standard deviation of a normal distribution, unmoved by
/// some values that belong to another one. `values` must not be empty.
double robust_deviation(std::span<const double> values);

/// By how much less than the median of its peers a healthy value may be, as a share of it:
/// the larger of `least` and three robust deviations, and what the median of so few may itself be off (two of its
/// standard errors, 1.25 deviations / sqrt(n)). `relative` are values over their median; must not be empty.
double allowed_shortfall(std::span<const double> relative, double least = 0.05);

/// So many peers are needed to say that one of them is slower than the others.
inline constexpr int kFewestPeers = 5;

/// Two ends of links that measure what is between them.
struct Pairing {
  int a = 0;
  int b = 0;
  friend bool operator==(const Pairing&, const Pairing&) = default;
};
/// Pairings that are measured at the same time: no end is in two of them.
using Round = std::vector<Pairing>;
/// Rates of one pairing, one for each of its rails, GB/s.
struct PairRate {
  Pairing pair;
  std::vector<double> one_way;    ///< the slower direction, the other idle
  std::vector<double> both_ways;  ///< both directions at once, added up
  double to_b = 0;  ///< from `pair.a` to `pair.b`, of the slowest rail; 0: not told, nobody is judged by it
  double to_a = 0;
};

/// Everybody meets everybody once: `ends` - 1 rounds, or `ends` if that is odd, by the circle method (Schurig's
/// tables).
std::vector<Round> round_robin(int ends);

/// Rounds measured before anybody is suspected. Up to kMostForAllPairs ends all pairs. Beyond that every end meets 4
/// others of its group, and every two groups meet once, all of the one with all of the other, so that each group, and
/// each path between two groups, is measured by many pairs, and each end by as many as there are groups and 3 more.
std::vector<Round> first_rounds(const Cluster& cluster);

/// Pairings in all rounds.
std::int64_t measurements(const std::vector<Round>& rounds);

}  // namespace fsdpbench::accept
