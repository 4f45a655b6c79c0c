#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fsdpbench {

/// The folder of the running program's file, links resolved; empty where the system does not say. Plugins and profiles
/// are found from here, in a build folder as where it is installed: ../lib and ../share/fsdpbench.
std::filesystem::path program_folder();

/// A part of this program in a file of its own, because it needs libraries that most machines do not have. It is loaded
/// when it is asked for. What it exports under `symbol` is a function without arguments that returns a pointer to plain
/// data; this begins with kInterfaceHash of the plugin's build (interface_hash.cmake), so that files of two builds are
/// not mixed unawares.
struct PluginFile {
  const char* what = "";      ///< for messages: "The cuda backend"
  const char* name = "";      ///< in the folder lib beside the program's bin
  const char* variable = "";  ///< of the environment; names the file instead
  const char* symbol = "";
  const char* built_by = "";  ///< for messages: "make cuda"
  const char* needs = "";     ///< for messages: "install NVIDIA's libraries by …"
};

/// The first member of what a plugin exports.
struct PluginInterfaces {
  char hash[33] = "";
};

/// The interfaces of this build. If they are equal, program and plugin were compiled with the same headers.
const PluginInterfaces& plugin_interfaces();

/// Folders of NVIDIA's libraries that the system's loader does not search: in order, those of NVIDIA's wheels beside
/// the installed package of `program` (site-packages/nvidia/*/lib, where PyTorch has them), of CUDA_HOME, of the
/// toolkit's usual place.
std::vector<std::filesystem::path> library_folders(const std::filesystem::path& program);

/// Opens a library, and before it those that it needs, where the system's loader does not find them, from `folders`.
/// Null if that does not work; `why_not` says what is missing.
void* open_library(const std::string& name, const std::vector<std::filesystem::path>& folders, std::string& why_not);

/// The file named by the environment, else the one beside the program; it need not exist.
std::filesystem::path plugin_path(const PluginFile& file);

/// Exports of a plugin, which stays loaded to the end, because threads of its libraries do. Throws ConfigError
/// with one sentence if the file does not exist, cannot be loaded, is no plugin, or belongs to another build.
const void* load_plugin(const PluginFile& file);

}  // namespace fsdpbench
