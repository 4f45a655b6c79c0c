#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "account/judge.h"
#include "record/json_fields.h"
#include "record/table.h"
#include "tune/answer.h"

namespace fsdpbench::app {

/// A policy that was run for real.
struct VerifiedPolicy {
  std::size_t tried = 0;  ///< of SearchResult::tried
  tune::Settings settings = {};
  double predicted_ms = 0;
  std::int64_t predicted_live_bytes = 0;
  std::vector<std::vector<double>> trials_ms = {};  ///< step times by trial, in the order of the rounds
  std::int64_t live_bytes = 0;                      ///< measured peak of the rank that needed most
  std::optional<account::Difference> against = {};  ///< the configuration in force; absent: too few trials
  std::string failed = {};                          ///< why it could not go on; empty: it could

  /// The median of the trials' medians; 0 without trials.
  double median_ms() const;
};

/// Measured times of the best policies on this machine, beside the predicted ones.
struct Verification {
  VerifiedPolicy in_force;
  VerifiedPolicy control;                 ///< the same configuration once more (A/A): what luck does
  std::vector<VerifiedPolicy> proposals;  ///< by prediction, the best first
  std::size_t chosen = 0;                 ///< of SearchResult::tried
};

/// All that a tuning knows at its end: the content of tune.json (docs/tune.md).
struct Tuning {
  const tune::Space& space;
  const tune::SearchOptions& options;
  const tune::SearchResult& result;
  const tune::Answer& answer;
  std::string name;   ///< of what was tuned, as the user wrote it
  std::string basis;  ///< what op times rest on
  double least_gain = 0.01;
  double seconds = 0;
  std::string disturbed_because = {};             ///< why_disturbed() of the run whose op times these are
  std::optional<Verification> verification = {};  ///< absent: nothing was run for real

  const tune::Tried& best() const { return result.tried[*result.best]; }
  /// Proposed policy: the one chosen by running it, else the best, or the current one if that is as good.
  const tune::Tried& proposed() const {
    if (verification) return result.tried[verification->chosen];
    return answer.keep ? result.start() : best();
  }
};
template <>
Fields<Tuning> declared<Tuning>();

/// The answer for people.
std::string tune_text(const Tuning& tuning);

/// All policies that were tried, a line each: points.csv (docs/tune.md).
std::string points_csv(const Tuning& tuning);

/// Nothing that was tried fits: what the least is that is needed and by which policy. `least`: of a search for the
/// least memory, which may have found what the first search had no evaluations left for. `squeezed`: the least budget
/// in which the current configuration fits if the allocator returns cached memory; 0: not known.
std::string nothing_fits(const tune::Space& space, const tune::MemoryBudget& budget, const tune::SearchResult& least,
                         std::int64_t squeezed = 0);

/// The table for people, with the verdict.
std::string verification_text(const Verification& verification);

}  // namespace fsdpbench::app
