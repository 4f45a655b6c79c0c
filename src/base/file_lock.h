#pragma once

namespace fsdpbench {

/// Locks an open file or folder for this process until it is closed, whether another one comes by the same name or not.
/// False: another process has it. That is believed only after a second: one that was killed while it started a
/// program has left a child that holds the lock until that program begins. Where a file system has no locks (some
/// network ones), there is nothing to find: true.
bool lock_for_this_process(int file);

}  // namespace fsdpbench
