#pragma once

#include <string>

#include "account/cause.h"
#include "foreign/explain.h"
#include "foreign/recognise.h"

namespace fsdpbench::foreign {

/// "Rank 1 is late by 102.300 ms a step [90.000 to 110.000], 12.1 % of it: its host. …", with what to look at.
std::string late_rank_sentence(const LateRank& late, const JobTrace& job, const Explanation& explained);

/// Says what would help, in the words of the program that the trace is of, of each cause that has at least
/// kLeastSharePct of the step: CauseShare::advice of `explained`. A job that is not sharded gets no advice about
/// sharding.
void advise(const JobTrace& job, const Recognition& found, Explanation& explained);
inline constexpr double kLeastSharePct = 1.0;

/// What the program sets against a cause: "forward_prefetch=True"; empty if nothing is known.
std::string settings_against(account::Cause cause, const Recognition& found, const Explanation& explained);

}  // namespace fsdpbench::foreign
