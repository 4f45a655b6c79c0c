#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/kernels/scratch.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// See backend/kernels.h. A target outside the whole vocabulary makes the loss and its row of gradients NaN, on every
/// rank.
void cross_entropy(cudaStream_t stream, const CrossEntropyCall& call, Scratch& scratch);
void cross_entropy_terms(cudaStream_t stream, const CrossEntropyCall& call, float* terms);
void cross_entropy_of_terms(cudaStream_t stream, const CrossEntropyCall& call, const float* terms, int parts,
                            Scratch& scratch);
void mean_squared_error(cudaStream_t stream, const MeanSquaredErrorCall& call, Scratch& scratch);

}  // namespace fsdpbench::backend::cuda
