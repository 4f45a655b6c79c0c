#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include "backend/kernels.h"
#include "base/dtype.h"

namespace fsdpbench::backend::cuda {

/// See backend/kernels.h. Targets of different runs must not overlap: the runs of one call are copied side by side.
void copy_runs(cudaStream_t stream, const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype,
               std::span<const CopyRun> runs);

}  // namespace fsdpbench::backend::cuda
