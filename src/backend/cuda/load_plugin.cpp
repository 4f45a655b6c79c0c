#include <dlfcn.h>
#include <fmt/format.h>
#include <interface_hash.h>  // generated

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "backend/cuda/backend.h"
#include "backend/cuda/plugin.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {
namespace {

std::filesystem::path plugin_path() {
  if (const char* const chosen = std::getenv("FSDPBENCH_CUDA_PLUGIN")) return chosen;
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib" / "fsdpbench_cuda.so";
}

const Plugin& load() {
  const std::filesystem::path path = plugin_path();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw ConfigError(
        fmt::format("The cuda backend is a plugin, and {} does not exist: build it with \"make cuda\", or name it in "
                    "FSDPBENCH_CUDA_PLUGIN.",
                    path.string()));
  }
  // Stays loaded to the end: threads of its libraries do.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw ConfigError(
        fmt::format("The cuda backend cannot be loaded, because a library that it needs is missing or "
                    "does not fit: {}.",
                    dlerror()));
  }
  const auto function = reinterpret_cast<PluginFunction>(dlsym(library, kPluginSymbol));
  if (function == nullptr) {
    throw ConfigError(fmt::format("{} is no plugin of fsdpbench: it has no {}.", path.string(), kPluginSymbol));
  }
  const Plugin& plugin = *function();
  if (std::strncmp(plugin.interfaces, kInterfaceHash, sizeof kInterfaceHash) != 0) {
    throw ConfigError(
        fmt::format("{} belongs to another build of fsdpbench, whose interfaces differ from this program's: "
                    "build both together with \"make cuda\".",
                    path.string()));
  }
  return plugin;
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend(MakeHostKernels host_kernels) {
  return std::unique_ptr<Backend>(load().make_backend(std::move(host_kernels)));
}

}  // namespace fsdpbench::backend::cuda
