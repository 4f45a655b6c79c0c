#pragma once

#include <chrono>
#include <filesystem>
#include <string_view>

namespace fsdpbench {

/// Locks the open file or folder for this process until it is closed (flock(2)). False: another process has it; that is
/// believed only after `patience`, at least a second, because one that was killed while it started a program leaves a
/// child that holds the lock until that program begins. Where a file system has no locks (some network ones), there is
/// nothing to find: true.
bool lock_for_this_process(int file, std::chrono::seconds patience = std::chrono::seconds(1));

/// Opens a folder and locks it so, until it is closed. Throws OutputError: it cannot be opened, or another process has
/// it, "FOLDER is in use: " and `in_use`, which says what that one does and what to do about it.
int open_locked_folder(const std::filesystem::path& folder, std::string_view in_use);

}  // namespace fsdpbench
