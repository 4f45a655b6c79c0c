#include "backend/cuda/plugin.h"

#include <utility>

#include "backend/cuda/cuda_backend.h"
#include "base/plugin.h"

extern "C" const fsdpbench::backend::cuda::Plugin* fsdpbench_cuda_plugin() {
  using namespace fsdpbench::backend;
  static const cuda::Plugin kPlugin = {fsdpbench::plugin_interfaces(), [](MakeHostKernels host_kernels) -> Backend* {
                                         return new cuda::CudaBackend(std::move(host_kernels));
                                       }};
  return &kPlugin;
}
