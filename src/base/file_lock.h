#pragma once

#include <chrono>

namespace fsdpbench {

/// Locks the open file or folder for this process until it is closed (flock(2)). False: another process has it; that is
/// believed only after `patience`, at least a second, because one that was killed while it started a program leaves a
/// child that holds the lock until that program begins. Where a file system has no locks (some network ones), there is
/// nothing to find: true.
bool lock_for_this_process(int file, std::chrono::seconds patience = std::chrono::seconds(1));

}  // namespace fsdpbench
