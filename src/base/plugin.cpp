#include "base/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <interface_hash.h>  // generated
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <system_error>

#include "base/error.h"

namespace fsdpbench {

std::filesystem::path program_folder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

const PluginInterfaces& plugin_interfaces() {
  static const PluginInterfaces kOwn = [] {
    PluginInterfaces own;
    std::copy(std::begin(kInterfaceHash), std::end(kInterfaceHash), own.hash);
    return own;
  }();
  return kOwn;
}

std::filesystem::path plugin_path(const PluginFile& file) {
  if (const char* const chosen = std::getenv(file.variable)) return chosen;
  return program_folder().parent_path() / "lib" / file.name;
}

const void* load_plugin(const PluginFile& file) {
  const std::filesystem::path path = plugin_path(file);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw ConfigError(fmt::format("{} is a plugin, and {} does not exist: build it with \"{}\", or name it in {}.",
                                  file.what, path.string(), file.built_by, file.variable));
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw ConfigError(fmt::format(
        "{} cannot be loaded, because a library that it needs is missing or does not fit: {}.", file.what, dlerror()));
  }
  const auto function = reinterpret_cast<const void* (*)()>(dlsym(library, file.symbol));
  if (function == nullptr) {
    throw ConfigError(fmt::format("{} is no plugin of fsdpbench: it has no {}.", path.string(), file.symbol));
  }
  const void* const plugin = function();
  if (std::strncmp(static_cast<const PluginInterfaces*>(plugin)->hash, kInterfaceHash, sizeof kInterfaceHash) != 0) {
    throw ConfigError(
        fmt::format("{} belongs to another build of fsdpbench, whose interfaces differ from this program's: "
                    "build both together with \"{}\".",
                    path.string(), file.built_by));
  }
  return plugin;
}

}  // namespace fsdpbench
