#pragma once

#include <memory>

#include "backend/copy_kernels.h"
#include "backend/cpu/cpu_backend.h"

namespace fsdpbench::backend {

/// The CPU backend with CopyKernels.
inline std::unique_ptr<Backend> make_copy_backend() {
  return std::make_unique<cpu::CpuBackend>([] { return std::make_unique<CopyKernels>(); });
}

}  // namespace fsdpbench::backend
