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

std::vector<std::filesystem::path> library_folders(const std::filesystem::path& program) {
  std::vector<std::filesystem::path> folders;
  std::error_code ignored;
  const std::filesystem::path site_packages = program.parent_path().parent_path();
  for (const auto& entry : std::filesystem::directory_iterator(site_packages / "nvidia", ignored)) {
    folders.push_back(entry.path() / "lib");
  }
  std::ranges::sort(folders);
  if (const char* const home = std::getenv("CUDA_HOME")) folders.push_back(std::filesystem::path(home) / "lib64");
  folders.emplace_back("/usr/local/cuda/lib64");
  return folders;
}

void* open_library(const std::string& name, const std::vector<std::filesystem::path>& folders, std::string& why_not) {
  for (std::string opened;;) {
    if (void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    why_not = dlerror();
    const std::size_t end = why_not.find(": cannot open shared object file");
    const std::string missing = why_not.substr(0, end);
    if (end == std::string::npos || missing == opened || missing.find('/') != std::string::npos) return nullptr;
    opened = missing;  // once it is there, whoever needs it finds it by its name
    std::error_code ignored;
    const auto in = std::ranges::find_if(folders, [&](const std::filesystem::path& folder) {
      return std::filesystem::exists(folder / missing, ignored);
    });
    if (in == folders.end()) return nullptr;
    void* const found = open_library((*in / missing).string(), folders, why_not);
    if (found == nullptr || missing == name) return found;
  }
}

const void* load_plugin(const PluginFile& file) {
  const std::filesystem::path path = plugin_path(file);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw ConfigError(fmt::format("{} is a plugin, and {} does not exist: build it with \"{}\", or name it in {}.",
                                  file.what, path.string(), file.built_by, file.variable));
  }
  std::string why_not;
  void* const library = open_library(path.string(), library_folders(program_folder()), why_not);
  if (library == nullptr) {
    throw ConfigError(
        fmt::format("{} cannot be loaded, because a library that it needs is missing or does not fit ({}): {}.",
                    file.what, why_not, file.needs));
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
