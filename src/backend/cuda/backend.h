#pragma once

#include <memory>

#include "backend/backend.h"

namespace fsdpbench::backend::cuda {

/// The CUDA backend, from the plugin beside the program. Throws ConfigError with one plain sentence where it cannot
/// be had: this build has none, a library of the toolkit is missing, there is no driver, there is no GPU.
std::unique_ptr<Backend> make_cuda_backend();

}  // namespace fsdpbench::backend::cuda
