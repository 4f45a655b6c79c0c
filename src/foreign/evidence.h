#pragma once

#include <string>
#include <vector>

#include "account/advice.h"
#include "foreign/explain.h"
#include "foreign/recognise.h"

namespace fsdpbench::foreign {

/// "Rank 1 is late by 102.300 ms a step [90.000 to 110.000], 12.1 % of it: its host. …", with what to look at.
std::string late_rank_sentence(const LateRank& late, const JobTrace& job, const Explanation& explained);

/// Evidence for advice from a job's rows, in the words of its program's settings; without replays. A job that
/// is not sharded gets no advice about sharding.
account::Evidence evidence_of(const JobTrace& job, const Recognition& found, const Explanation& explained);

}  // namespace fsdpbench::foreign
