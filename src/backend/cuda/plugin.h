#pragma once

#include "backend/kernels.h"
#include "base/plugin.h"

namespace fsdpbench::backend {
class Backend;
}

namespace fsdpbench::backend::cuda {

/// Exports of the plugin under kPluginFile.symbol. Plain data, so that it can be read before it is known to fit.
struct Plugin {
  PluginInterfaces interfaces;  ///< first for ever
  /// A new backend, owned by the caller, with the program's kernels for its host_compute lane. Throws ConfigError with
  /// one sentence where no GPU can be used.
  Backend* (*make_backend)(MakeHostKernels host_kernels) = nullptr;
};

/// extern "C" const Plugin* fsdpbench_cuda_plugin();
inline constexpr PluginFile kPluginFile = {"The cuda backend",
                                           "fsdpbench_cuda.so",
                                           "FSDPBENCH_CUDA_PLUGIN",
                                           "fsdpbench_cuda_plugin",
                                           "make cuda",
                                           "install CUDA 13, cuDNN and NCCL, or NVIDIA's wheels (pip install "
                                           "'FILE.whl[cuda13]' of this program's wheel), or set LD_LIBRARY_PATH"};

}  // namespace fsdpbench::backend::cuda
