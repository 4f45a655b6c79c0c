#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace fsdpbench::backend::cuda {

/// Keeps `stream` busy for so long, by one thread that sleeps.
void delay(cudaStream_t stream, std::int64_t nanoseconds);

}  // namespace fsdpbench::backend::cuda
