#pragma once

#include <vector>

#include "accept/verdict.h"
#include "app/acceptance/measure_acceptance.h"
#include "config/acceptance.h"

namespace fsdpbench::app {

/// Other programs may take so much of the processors (AcceptanceMeasurements::others_share) without a word about it.
inline constexpr double kQuietShare = 0.1;
/// The rule that says how much they took; unrated.
inline constexpr const char* kOtherWorkRule = "other work";

/// What is no question of rates: who the ranks are (every fact is to be what most of them say; each that differs is
/// named with what it has instead), whether all came, and what carried their bytes.
std::vector<accept::Judgement> judge_facts(const config::Acceptance& wanted, const AcceptanceMeasurements& measured);

}  // namespace fsdpbench::app
