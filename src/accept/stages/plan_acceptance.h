#pragma once

#include <string>

#include "accept/stages/acceptance.h"

namespace fsdpbench::app {

/// The text of `accept --plan`: stages with about how long they take, the floors that figures are held against, and the
/// commands. Nothing is measured. Durations follow from the profile's references, and from assumed rates where it has
/// none. `setup`: of the profile's run on `nodes` nodes; `profile`: as a person typed it.
std::string acceptance_plan(const config::Acceptance& wanted, const std::string& profile, const engine::Setup& setup,
                            int nodes, const Patience& patience);

}  // namespace fsdpbench::app
