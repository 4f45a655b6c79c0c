#pragma once

#include <cuda_runtime_api.h>

namespace fake {

/// Error that the CUDA function `name` must return instead of doing its work: an injected failure, or that the calling
/// thread's GPU is broken; cudaSuccess: go on.
cudaError_t fault(const char* name);
/// As fault(), for calls about something of `device`.
cudaError_t fault_on(const char* name, int device);

/// Keeps `error` for cudaGetLastError of this thread, and returns it.
cudaError_t failed(cudaError_t error);

}  // namespace fake
