#include "backend/cpu/core_wait.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace fsdpbench::backend::cpu {

CoreWait::CoreWait() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}

CoreWait::~CoreWait() {
  if (file_ >= 0) close(file_);
}

std::int64_t CoreWait::total_ns() const {
  if (file_ < 0) return 0;
  std::array<char, 64> text;  // "CPU-TIME RUN-DELAY TIMESLICES\n"
  const ssize_t size = pread(file_, text.data(), text.size(), 0);
  if (size <= 0) return 0;
  const char* const begin = text.data();
  const char* const end = begin + size;
  const char* const second = std::find(begin, end, ' ') + 1;
  std::int64_t ns = 0;
  if (second < end) std::from_chars(second, end, ns);
  return ns;
}

}  // namespace fsdpbench::backend::cpu
