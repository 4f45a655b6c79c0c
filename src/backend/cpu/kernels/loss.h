#pragma once

#include <vector>

#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// Each as the function of its name in backend::Kernels, on the calling thread. Those of cross-entropy throw
/// BackendError at a target outside the whole vocabulary. `exponentials` is scratch kept by the caller.
void cross_entropy(const CrossEntropyCall& call, std::vector<float>& exponentials);
void cross_entropy_terms(const CrossEntropyCall& call, float* terms);
void cross_entropy_of_terms(const CrossEntropyCall& call, const float* terms, int parts);
void mean_squared_error(const MeanSquaredErrorCall& call);

}  // namespace fsdpbench::backend::cpu
