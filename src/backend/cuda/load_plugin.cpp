#include <utility>

#include "backend/cuda/backend.h"
#include "backend/cuda/plugin.h"
#include "base/plugin.h"

namespace fsdpbench::backend::cuda {

std::unique_ptr<Backend> make_cuda_backend(MakeHostKernels host_kernels) {
  const auto& plugin = *static_cast<const Plugin*>(load_plugin(kPluginFile));
  return std::unique_ptr<Backend>(plugin.make_backend(std::move(host_kernels)));
}

}  // namespace fsdpbench::backend::cuda
