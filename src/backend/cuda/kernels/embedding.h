#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/kernels/scratch.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// See backend/kernels.h. A token outside the whole vocabulary gives a row of NaN forward, so that the loss shows it,
/// and nothing backward.
void embedding(cudaStream_t stream, const EmbeddingCall& call);
void embedding_backward(cudaStream_t stream, const EmbeddingBackwardCall& call, Scratch& scratch);

}  // namespace fsdpbench::backend::cuda
