#include "backend/cuda/backend.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

std::unique_ptr<Backend> make_cuda_backend(MakeHostKernels /*host_kernels*/) {
  throw ConfigError(
      "This build has no cuda backend: build it with \"make cuda\", where the CUDA toolkit is installed, or choose "
      "device.backend = \"cpu\".");
}

}  // namespace fsdpbench::backend::cuda
