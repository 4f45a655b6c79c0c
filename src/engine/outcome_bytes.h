#pragma once

#include <string>
#include <string_view>

#include "engine/rank_outcome.h"

namespace fsdpbench::engine {

/// `outcome` as bytes, for a process of the same program on a machine of the same kind.
std::string to_bytes(const RankOutcome& outcome);

/// Reads what to_bytes() wrote. Throws BackendError if the bytes are of another layout, too few or too many.
RankOutcome outcome_from_bytes(std::string_view bytes);

}  // namespace fsdpbench::engine
