#include "backend/cpu/backend.h"

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels/cpu_kernels.h"

namespace fsdpbench::backend::cpu {

std::unique_ptr<Backend> make_cpu_backend() { return std::make_unique<CpuBackend>(make_cpu_kernels); }

std::unique_ptr<Kernels> make_host_kernels(int threads) { return make_shared_cpu_kernels(threads); }

}  // namespace fsdpbench::backend::cpu
