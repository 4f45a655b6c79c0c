#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/kernels/gemms.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// Attention of any dtype and shape as matrix products and softmaxes of blocks of query rows, one block of one head
/// after the other, like the CPU kernels. It is there to be right where cuDNN has no kernel: thousands of small
/// launches, far from fast.
void attention_fallback(cudaStream_t stream, Gemms& gemms, const AttentionCall& call);
void attention_fallback_backward(cudaStream_t stream, Gemms& gemms, const AttentionBackwardCall& call);

}  // namespace fsdpbench::backend::cuda
