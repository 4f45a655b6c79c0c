#include "base/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.h"

namespace fsdpbench {

bool lock_for_this_process(int file) {
  const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return true;
    if (std::chrono::steady_clock::now() > last) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

int open_locked_folder(const std::filesystem::path& folder, std::string_view in_use) {
  const int file = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) {
    throw OutputError(fmt::format("{}: the folder cannot be opened: {}.", folder.string(), std::strerror(errno)));
  }
  if (lock_for_this_process(file)) return file;
  ::close(file);
  throw OutputError(fmt::format("{} is in use: {}", folder.string(), in_use));
}

}  // namespace fsdpbench
