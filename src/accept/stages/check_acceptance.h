#pragma once

#include "record/json_part.h"

namespace fsdpbench::app {

/// Fewer rounds of a step's arms have no interval: `accept` measures none then.
inline constexpr int kFewestArmRounds = 6;

/// What the result of an acceptance must have beyond its fields, and what its values can be. Throws as check_result().
void check_acceptance(const JsonPart& j);

}  // namespace fsdpbench::app
