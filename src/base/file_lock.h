#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace fsdpbench {

/// Locks the open file or folder for this process until it is closed (flock(2)). False: another process has it; that is
/// believed only after a second, because one that was killed while it started a program leaves a child that holds the
/// lock until that program begins. Where a file system has no locks (some network ones), there is nothing to find:
/// true.
bool lock_for_this_process(int file);

/// Opens a folder and locks it so, until it is closed. Throws OutputError: it cannot be opened, or another process has
/// it, "FOLDER is in use: " and `in_use`, which says what that one does and what to do about it.
int open_locked_folder(const std::filesystem::path& folder, std::string_view in_use);

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
