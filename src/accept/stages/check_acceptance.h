#pragma once

#include "record/json_part.h"

namespace fsdpbench::app {

/// Fewer rounds of a step's arms have no interval: `accept` measures none then.
inline constexpr int kFewestArmRounds = 6;

/// Checks the result of an acceptance beyond its fields, and its values. Throws as check_result().
void check_acceptance(const JsonPart& j);

}  // namespace fsdpbench::app
