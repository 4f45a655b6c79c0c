#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/scratch.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// See backend/kernels.h. sgd and adamw give the bits that the CPU backend gives: the same roundings in the same order.
void sum_of_squares(cudaStream_t stream, const ConstElements& x, std::int64_t count, double factor, double* sum,
                    bool overwrite, Scratch& scratch);
void clip_factor(cudaStream_t stream, const double* sums, std::int64_t count, double max_norm, float* factor);
void sgd(cudaStream_t stream, const ParameterUpdate& update, const SgdStep& step);
void adamw(cudaStream_t stream, const ParameterUpdate& update, const AdamWStep& step);

}  // namespace fsdpbench::backend::cuda
