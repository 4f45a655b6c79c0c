#pragma once

#include <filesystem>
#include <system_error>

namespace fsdpbench {

/// Whether there is something at `path`. A path that cannot exist (too long, through a file) is simply not there.
inline bool path_exists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

/// Whether reading `path` would wait for somebody, or have no end: a pipe, a device, a socket.
inline bool is_no_plain_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  return !error && std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
         !std::filesystem::is_directory(status);
}

}  // namespace fsdpbench
