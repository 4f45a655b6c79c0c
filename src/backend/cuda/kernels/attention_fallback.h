#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "backend/cuda/kernels/gemms.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// Attention of any dtype and shape as matrix products and softmaxes of blocks of query rows, one block of one head
/// after the other, like the CPU kernels. It is there to be right where cuDNN has no kernel: thousands of small
/// launches, far from fast. `scratch` as in backend/attention_scratch.h.
void attention_fallback(cudaStream_t stream, Gemms& gemms, const AttentionShape& shape, const std::byte* q,
                        const std::byte* k, const std::byte* v, std::byte* out, float* log_sum_exp, std::byte* scratch);
void attention_fallback_backward(cudaStream_t stream, Gemms& gemms, const AttentionShape& shape, const std::byte* d_out,
                                 const std::byte* q, const std::byte* k, const std::byte* v, const std::byte* out,
                                 const float* log_sum_exp, std::byte* d_q, std::byte* d_k, std::byte* d_v,
                                 std::byte* scratch);

}  // namespace fsdpbench::backend::cuda
