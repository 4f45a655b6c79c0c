#pragma once

#include <cuda_runtime_api.h>

#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// See backend/kernels.h.
void swiglu(cudaStream_t stream, const SwigluCall& call);
void swiglu_backward(cudaStream_t stream, const SwigluBackwardCall& call);

}  // namespace fsdpbench::backend::cuda
