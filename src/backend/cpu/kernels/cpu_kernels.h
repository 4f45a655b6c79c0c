#pragma once

#include <memory>

#include "backend/kernels.h"

namespace fsdpbench::backend::cpu {

/// Kernels that compute on the calling thread alone. An object belongs to one lane thread, which must also be the one
/// that makes it: oneDNN's thread count is a setting of the calling thread.
std::unique_ptr<Kernels> make_cpu_kernels();
/// The same, but that what an update of offloaded state is made of (optimizers, casts, sums, copies) runs on up to
/// `threads` threads at once where it is long. The bits are those of one thread.
std::unique_ptr<Kernels> make_shared_cpu_kernels(int threads);

}  // namespace fsdpbench::backend::cpu
