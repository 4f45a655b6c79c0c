#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "account/compare.h"
#include "tune/tune_report.h"

namespace fsdpbench::app {

/// A policy that was run for real.
struct VerifiedPolicy {
  std::size_t tried = 0;                            ///< of SearchResult::tried
  std::vector<std::vector<double>> trials_ms = {};  ///< step times by trial, in the order of the rounds
  std::int64_t live_bytes = 0;                      ///< measured peak of the rank that needed most
  std::optional<account::Comparison> against = {};  ///< the configuration in force; absent: too few trials
  std::string failed = {};                          ///< why it could not go on; empty: it could

  /// The median of the trials' medians; 0 without trials.
  double median_ms() const;
};

/// What the best policies took on this machine, beside what was predicted.
struct Verification {
  VerifiedPolicy in_force;
  VerifiedPolicy control;                 ///< the same configuration once more (A/A): what luck does
  std::vector<VerifiedPolicy> proposals;  ///< by prediction, the best first
  std::size_t chosen = 0;                 ///< of SearchResult::tried
};

/// Kendall's tau-b between what was predicted and measured of the policies with trials, the control left out; absent
/// for fewer than two.
std::optional<double> kendall_tau(const Tuning& tuning, const Verification& verification);

/// The table for people, with the verdict.
std::string verification_text(const Tuning& tuning, const Verification& verification);

/// "verified" of tune.json.
nlohmann::json verification_json(const Tuning& tuning, const Verification& verification);

}  // namespace fsdpbench::app
