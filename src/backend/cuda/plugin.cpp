#include "backend/cuda/plugin.h"

#include "backend/cuda/cuda_backend.h"

extern "C" const fsdpbench::backend::cuda::Plugin* fsdpbench_cuda_plugin() {
  using namespace fsdpbench::backend;
  static const cuda::Plugin kPlugin{cuda::kPluginAbi, []() -> Backend* { return new cuda::CudaBackend; }};
  return &kPlugin;
}
