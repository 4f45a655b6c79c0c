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
/// `corrections`: device memory with those of the step, for a graph whose launches are of different steps; null: they
/// are those of `step`.
void adamw(cudaStream_t stream, const ParameterUpdate& update, const AdamWStep& step, const float* corrections);

/// What of an update depends on the number of its step.
struct AdamWCorrections {
  float step_size = 0;
  float root = 0;  ///< of the second moment's correction
};
AdamWCorrections adamw_corrections(const AdamWStep& step);

}  // namespace fsdpbench::backend::cuda
