#include "backend/cpu/wait_point.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <climits>

#include "backend/cpu/thread_setup.h"

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
namespace {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t), "a futex word is 32 bits");

constexpr std::int64_t kLongestLead_ns = 60'000;

/// Lead with which this thread must ask to be woken: about the 80th percentile of how late it used to be.
thread_local std::int64_t wake_up_lead_ns = 30'000;

void learn_wake_up_lead(std::int64_t late_ns) {
  wake_up_lead_ns += late_ns > wake_up_lead_ns ? 4'000 : -1'000;
  wake_up_lead_ns = std::clamp<std::int64_t>(wake_up_lead_ns, 0, kLongestLead_ns);
}

}  // namespace

void WaitPoint::yield() { sched_yield(); }

void WaitPoint::sleep(std::uint32_t seen) {
  syscall(SYS_futex, &epoch_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

bool WaitPoint::sleep_until(std::uint32_t seen, std::int64_t deadline_ns) {
  const std::int64_t target_ns = deadline_ns - wake_up_lead_ns;
  if (now_ns() < target_ns) {
    timespec target{};
    target.tv_sec = static_cast<time_t>(target_ns / 1'000'000'000);
    target.tv_nsec = static_cast<long>(target_ns % 1'000'000'000);
    syscall(SYS_futex, &epoch_, FUTEX_WAIT_BITSET_PRIVATE, seen, &target, nullptr, FUTEX_BITSET_MATCH_ANY);
    const std::int64_t now = now_ns();
    if (now < target_ns) return true;  // woken, not timed out
    learn_wake_up_lead(now - target_ns);
  }
  while (now_ns() < deadline_ns) {
    if (epoch_.load(std::memory_order_relaxed) != seen) return true;
    yield_to_prompt_lanes();
  }
  return false;
}

void WaitPoint::wake() { syscall(SYS_futex, &epoch_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

}  // namespace fsdpbench::backend::cpu
