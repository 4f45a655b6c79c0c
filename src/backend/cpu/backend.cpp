#include "backend/cpu/backend.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/cpu_kernels.h"

namespace fsdpbench::backend::cpu {

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(make_cpu_kernels); }

}  // namespace fsdpbench::backend::cpu
