#pragma once

#include "backend/backend.h"
#include "engine/setup.h"
#include "launch/placement.h"
#include "launch/session.h"

namespace fsdpbench::engine {

/// Whether processes of one host may read each other's memory: FSDPBENCH_SHARE_MEMORY, 0 or 1, which it is by default.
/// Throws ConfigError if it is neither.
bool share_memory(const launch::Environment& environment);

/// Throws ConfigError if a variable that decides how ranks meet has a value that is none, before anything is begun:
/// FSDPBENCH_STALL_S and FSDPBENCH_SHARE_MEMORY.
void check_environment(const launch::Environment& environment);

/// What the backend that the configuration names must know of a run. `session` as in run().
backend::BackendOptions backend_options(const Setup& setup, launch::Session* session);

}  // namespace fsdpbench::engine
