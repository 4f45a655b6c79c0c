#include "app/console/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/clock.h"
#include "base/error.h"

namespace fsdpbench::app {
namespace {

constexpr char kAcknowledgement[] = "\ninterrupted: stopping after this step; once more stops at once\n";

std::atomic<std::int64_t> first_ns{0};     // 0: no signal so far
std::atomic<std::int64_t> patience_ns{0};  // a second signal within it is the first one's echo
std::atomic<int> keepers{0};
std::atomic<bool> speaks{false};
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

extern "C" void on_signal(int) {
  const int error = errno;
  const std::int64_t now = now_ns();
  std::int64_t first = 0;
  const bool is_first = first_ns.compare_exchange_strong(first, now);
  if (is_first && keepers.load() > 0) {
    if (speaks.load()) (void)!::write(STDERR_FILENO, kAcknowledgement, sizeof kAcknowledgement - 1);
    errno = error;
    return;
  }
  if (is_first || now - first >= patience_ns.load()) _exit(static_cast<int>(ExitCode::interrupted));
  errno = error;
}

}  // namespace

void install_interrupt_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    // nohup and background jobs of a shell have it ignored: so it stays.
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaction(signal, &ignore, nullptr);
}

KeepingWhatIsDone::KeepingWhatIsDone(bool quiet) {
  speaks = !quiet;
  ++keepers;
}

KeepingWhatIsDone::~KeepingWhatIsDone() { --keepers; }

void join_repeated_interrupts() { patience_ns = 2'000'000'000; }

bool interrupt_requested() { return interrupt_time_ns() != 0; }

std::int64_t interrupt_time_ns() { return first_ns.load(std::memory_order_relaxed); }

}  // namespace fsdpbench::app
