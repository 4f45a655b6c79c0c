#pragma once

#include <filesystem>
#include <system_error>

namespace fsdpbench {

/// Whether there is something at `path`. A path that cannot exist (too long, through a file) is simply not there.
inline bool path_exists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace fsdpbench
