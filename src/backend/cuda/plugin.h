#pragma once

#include "backend/host_kernels.h"

namespace fsdpbench::backend {
class Backend;
}

namespace fsdpbench::backend::cuda {

/// What the plugin exports under kPluginSymbol. Plain data, so that it can be read before it is known to fit.
struct Plugin {
  /// kInterfaceHash of the plugin's build (interface_hash.cmake), first for ever: the headers through which program and
  /// plugin know each other are the same if it is. So files of two builds are not mixed unawares.
  char interfaces[33] = "";
  /// A new backend, owned by the caller, with the program's kernels for its host_compute lane. Throws ConfigError with
  /// one sentence where no GPU can be used.
  Backend* (*make_backend)(MakeHostKernels host_kernels) = nullptr;
};

/// extern "C" const Plugin* fsdpbench_cuda_plugin();
inline constexpr const char* kPluginSymbol = "fsdpbench_cuda_plugin";
using PluginFunction = const Plugin* (*)();

}  // namespace fsdpbench::backend::cuda
