#include "app/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "base/error.h"

namespace fsdpbench::app {
namespace {

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

extern "C" void on_signal(int) {
  if (requested.exchange(true)) _exit(static_cast<int>(ExitCode::interrupted));
}

}  // namespace

void install_interrupt_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupt_requested() { return requested.load(std::memory_order_relaxed); }

}  // namespace fsdpbench::app
