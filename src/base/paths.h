#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace fsdpbench {

/// Whether there is something at `path`. A path that cannot exist (too long, through a file) is simply not there.
inline bool path_exists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

/// "cannot be read: " and what the system says, where it does not even tell whether there is something at `path`: a
/// folder on the way may not be searched, links go in a circle. Empty where it does.
inline std::string lookup_error(const std::filesystem::path& path) {
  std::error_code error;
  (void)std::filesystem::exists(path, error);
  const bool in_the_way = error == std::errc::permission_denied || error == std::errc::too_many_symbolic_link_levels;
  return in_the_way ? "cannot be read: " + error.message() : "";
}

/// Whether reading `path` would wait for somebody, or have no end: a pipe, a device, a socket.
inline bool is_no_plain_file(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  return !error && std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
         !std::filesystem::is_directory(status);
}

}  // namespace fsdpbench
