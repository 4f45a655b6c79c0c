#pragma once

#include <optional>
#include <vector>

namespace fsdpbench::account {

/// How many of a run's first measured values do not yet belong to its steady state.
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
