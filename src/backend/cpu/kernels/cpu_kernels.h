#pragma once

#include <memory>

#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// Kernels that compute on the calling thread alone. An object belongs to one lane thread, which must also be the one
/// that makes it: oneDNN's thread count is a setting of the calling thread.
std::unique_ptr<Kernels> make_cpu_kernels();

}  // namespace fsdpbench::backend::cpu
