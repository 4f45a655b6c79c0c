#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// See backend/kernels.h. Targets of different runs must not overlap: the runs of one call are copied side by side.
void copy_runs(cudaStream_t stream, const ConstElements& source, const Elements& target, std::span<const CopyRun> runs);

}  // namespace fsdpbench::backend::cuda
