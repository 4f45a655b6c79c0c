#pragma once

#include <cstdint>

namespace fsdpbench::backend {
class Backend;
}

namespace fsdpbench::backend::cuda {

/// What program and plugin must agree on: it is raised whenever an interface of backend/, launch/ or base/ changes.
/// Both come from one build, so this only catches files of two builds mixed.
inline constexpr std::int32_t kPluginAbi = 1;

/// What the plugin exports under kPluginSymbol. Plain data, so that it can be read before the number is known to be
/// the same; `abi` stays first for ever.
struct Plugin {
  std::int32_t abi = 0;
  /// A new backend, owned by the caller. Throws ConfigError with one sentence where no GPU can be used.
  Backend* (*make_backend)() = nullptr;
};

/// extern "C" const Plugin* fsdpbench_cuda_plugin();
inline constexpr const char* kPluginSymbol = "fsdpbench_cuda_plugin";
using PluginFunction = const Plugin* (*)();

}  // namespace fsdpbench::backend::cuda
