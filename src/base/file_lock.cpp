#include "base/file_lock.h"

#include <sys/file.h>

#include <cerrno>
#include <thread>

namespace fsdpbench {

bool lock_for_this_process(int file, std::chrono::seconds patience) {
  const auto last = std::chrono::steady_clock::now() + patience;
  while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return true;
    if (std::chrono::steady_clock::now() > last) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace fsdpbench
