#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/kernels/scratch.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// See backend/kernels.h.
void rms_norm(cudaStream_t stream, const RmsNormCall& call);
void rms_norm_backward(cudaStream_t stream, const RmsNormBackwardCall& call, Scratch& scratch);

}  // namespace fsdpbench::backend::cuda
