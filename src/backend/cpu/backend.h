#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// The CPU backend with this project's kernels.
std::unique_ptr<Backend> make_cpu_backend();
/// This project's kernels for the lane of another backend that the host's processors compute (backend/kernels.h).
std::unique_ptr<Kernels> make_host_kernels(int threads);

}  // namespace fsdpbench::backend::cpu
