#pragma once

#include <memory>

#include "backend/backend.h"

namespace fsdpbench::backend::cpu {

/// The CPU backend with this project's kernels.
std::unique_ptr<Backend> make_cpu_backend();

}  // namespace fsdpbench::backend::cpu
