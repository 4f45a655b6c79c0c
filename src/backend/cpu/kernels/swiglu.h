#pragma once

#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// Each as the function of its name in backend::Kernels, on the calling thread.
void swiglu(const SwigluCall& call);
void swiglu_backward(const SwigluBackwardCall& call);

}  // namespace fsdpbench::backend::cpu
