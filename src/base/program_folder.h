#pragma once

#include <filesystem>

namespace fsdpbench {

/// The folder of the running program's file, links resolved; empty where the system does not say. Plugins and profiles
/// are found from here, in a build folder as where it is installed: ../lib and ../share/fsdpbench.
std::filesystem::path program_folder();

}  // namespace fsdpbench
