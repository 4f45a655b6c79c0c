#pragma once

#include "backend/backend.h"
#include "base/dtype.h"

namespace fsdpbench::app {

/// FLOP/s of square matrix products of `size`, `ranks` ranks of `backend` at a time, summed up over them; each rank
/// computes on one thread. Median of the repetitions that `seconds` allow.
double measure_gemm(backend::Backend& backend, int ranks, DType dtype, std::int64_t size, double seconds);

/// Bytes copied a second by memcpy of `bytes` out of cache, `threads` threads at a time, summed up over them.
double measure_memcpy(int threads, std::int64_t bytes, double seconds);

/// Median lateness of a 1 ms sleep on a thread with the smallest timer slack: how well an emulated link keeps time.
std::int64_t measure_timer_lateness_ns();

}  // namespace fsdpbench::app
