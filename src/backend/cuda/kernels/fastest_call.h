#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

namespace fsdpbench::backend::cuda {

/// Which of `count` ways to do the same takes the least time on the GPU. call(i) enqueues the i-th on `stream`, or says
/// false if it cannot be had; several times each, in turns. Blocks the host; `while_waiting` is called at least every
/// 10 ms then and may throw. 0 if none can be had.
std::size_t fastest_call(cudaStream_t stream, std::size_t count, const std::function<bool(std::size_t)>& call,
                         const std::function<void()>& while_waiting);

}  // namespace fsdpbench::backend::cuda
