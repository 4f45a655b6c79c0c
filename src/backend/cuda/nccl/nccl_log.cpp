#include "backend/cuda/nccl/nccl_log.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace fsdpbench::backend::cuda {
namespace {

bool is_set(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

/// The file lives in memory only, so that nothing stays behind however the process ends.
class LogFile {
 public:
  ~LogFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  void open() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(asked_, true)) return;
    for (const char* const name : {"NCCL_DEBUG", "NCCL_DEBUG_FILE"}) {
      if (!is_set(name)) continue;
      why_not_ = std::string("not read: ") + name + " is set, so NCCL's log is the user's.";
      return;
    }
    descriptor_ = memfd_create("nccl-log", MFD_CLOEXEC);
    if (descriptor_ < 0) {
      why_not_ = std::string("not read: there is no file for NCCL's log: ") + std::strerror(errno) + ".";
      return;
    }
    setenv("NCCL_DEBUG_FILE", ("/proc/self/fd/" + std::to_string(descriptor_)).c_str(), 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "INIT", 0);
  }

  NcclLog read() {
    const std::lock_guard lock(mutex_);
    if (descriptor_ < 0) return {"", why_not_};
    std::string text;
    std::vector<char> part(1 << 16);
    for (off_t at = 0; text.size() < kMostBytes;) {
      const ssize_t got = pread(descriptor_, part.data(), part.size(), at);
      if (got <= 0) break;
      text.append(part.data(), static_cast<std::size_t>(got));
      at += got;
    }
    return {std::move(text), ""};
  }

 private:
  static constexpr std::size_t kMostBytes = 64 << 20;

  std::mutex mutex_;
  bool asked_ = false;
  std::string why_not_ = "not read: NCCL was not used.";
  int descriptor_ = -1;
};

LogFile& log_file() {
  static LogFile file;
  return file;
}

}  // namespace

void open_nccl_log() { log_file().open(); }
NcclLog read_nccl_log() { return log_file().read(); }

}  // namespace fsdpbench::backend::cuda
