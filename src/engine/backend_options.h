#pragma once

#include "backend/backend.h"
#include "engine/run.h"

namespace fsdpbench::engine {

/// What a backend must know of a prepared run. `session` as in run().
backend::BackendOptions backend_options(const Preparation& preparation, launch::Session* session);

}  // namespace fsdpbench::engine
