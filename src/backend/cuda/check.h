#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/error.h"

namespace fsdpbench::backend::cuda {

/// Throws BackendError "`what`: <CUDA's own words> (<name>)" unless `status` is success; ResourceError if the device
/// is out of memory.
void check(cudaError_t status, const char* what);
void check(cudaError_t status, const std::string& what);

}  // namespace fsdpbench::backend::cuda
