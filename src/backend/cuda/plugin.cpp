#include "backend/cuda/plugin.h"

#include <interface_hash.h>  // generated

#include <algorithm>
#include <iterator>
#include <utility>

#include "backend/cuda/cuda_backend.h"

extern "C" const fsdpbench::backend::cuda::Plugin* fsdpbench_cuda_plugin() {
  using namespace fsdpbench::backend;
  static const cuda::Plugin kPlugin = [] {
    cuda::Plugin plugin;
    std::copy(std::begin(cuda::kInterfaceHash), std::end(cuda::kInterfaceHash), plugin.interfaces);
    plugin.make_backend = [](MakeHostKernels host_kernels) -> Backend* {
      return new cuda::CudaBackend(std::move(host_kernels));
    };
    return plugin;
  }();
  return &kPlugin;
}
