#include "app/console/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "base/clock.h"
#include "base/error.h"

namespace fsdpbench::app {
namespace {

std::atomic<std::int64_t> first_ns{0};     // 0: no signal so far
std::atomic<std::int64_t> patience_ns{0};  // a second signal within it is the first one's echo
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

extern "C" void on_signal(int) {
  const std::int64_t now = now_ns();
  std::int64_t first = 0;
  if (first_ns.compare_exchange_strong(first, now)) return;
  if (now - first >= patience_ns.load()) _exit(static_cast<int>(ExitCode::interrupted));
}

}  // namespace

void install_interrupt_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void join_repeated_interrupts() { patience_ns = 2'000'000'000; }

bool interrupt_requested() { return interrupt_time_ns() != 0; }

std::int64_t interrupt_time_ns() { return first_ns.load(std::memory_order_relaxed); }

}  // namespace fsdpbench::app
