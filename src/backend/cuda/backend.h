#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// The CUDA backend, from the plugin beside the program. Throws ConfigError with one plain sentence where it cannot
/// be had: this build has none, a library of the toolkit is missing, there is no driver, there is no GPU.
/// `host_kernels`: what its host_compute lane computes with; without them state cannot be offloaded.
std::unique_ptr<Backend> make_cuda_backend(MakeHostKernels host_kernels = {});

}  // namespace fsdpbench::backend::cuda
