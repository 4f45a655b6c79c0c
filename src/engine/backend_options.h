#pragma once

#include "backend/backend.h"
#include "engine/setup.h"
#include "launch/session.h"

namespace fsdpbench::engine {

/// What the backend that the configuration names must know of a run. `session` as in run().
backend::BackendOptions backend_options(const Setup& setup, launch::Session* session);

}  // namespace fsdpbench::engine
