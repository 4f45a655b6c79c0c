#pragma once

#include <vector>

#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// Each as the function of its name in backend::Kernels, on the calling thread.
void rms_norm(const RmsNormCall& call);
/// `sums` is scratch kept by the caller.
void rms_norm_backward(const RmsNormBackwardCall& call, std::vector<float>& sums);

}  // namespace fsdpbench::backend::cpu
