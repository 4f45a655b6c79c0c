#pragma once

#include <vector>

#include "accept/stages/measure_acceptance.h"
#include "accept/verdict.h"
#include "config/acceptance.h"

namespace fsdpbench::app {

/// The rule that says how much of the processors other programs took, from kQuietShare on; unrated.
inline constexpr const char* kOtherWorkRule = "other work";

/// What is no question of rates: who the ranks are (every fact is to be what most of them say; each that differs is
/// named with what it has instead), whether all came, and what carried their bytes.
std::vector<accept::Judgement> judge_facts(const config::Acceptance& wanted, const AcceptanceMeasurements& measured);

}  // namespace fsdpbench::app
