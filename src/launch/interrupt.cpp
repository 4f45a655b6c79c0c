#include "launch/interrupt.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace fsdpbench::app {
namespace {

constexpr char kAcknowledgement[] = "\ninterrupted: stopping after this step; once more stops at once\n";
constexpr char kEnd[] = "\ninterrupted\n";

std::atomic<std::int64_t> first_ns{0};     // 0: no signal so far
std::atomic<std::int64_t> patience_ns{0};  // a second signal within it is the first one's echo
std::atomic<bool> keeps{false};
std::atomic<bool> speaks{true};
std::atomic<int> signalled{-1};  // an eventfd that is readable from the first signal on
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

extern "C" void on_signal(int) {
  const int error = errno;
  const std::int64_t now = now_ns();
  std::int64_t first = 0;
  const bool is_first = first_ns.compare_exchange_strong(first, now);
  const std::uint64_t one = 1;
  (void)!::write(signalled.load(), &one, sizeof one);
  if (is_first && keeps.load()) {
    if (speaks.load()) (void)!::write(STDERR_FILENO, kAcknowledgement, sizeof kAcknowledgement - 1);
    errno = error;
    return;
  }
  if (is_first && speaks.load()) (void)!::write(STDERR_FILENO, kEnd, sizeof kEnd - 1);
  if (is_first || now - first >= patience_ns.load()) _exit(static_cast<int>(ExitCode::interrupted));
  errno = error;
}

void handle(int signal) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

/// Without it a thread would wait for its end for ever.
int needed_event() {
  const int event = ::eventfd(0, EFD_CLOEXEC);
  if (event >= 0) return event;
  throw ResourceError(
      fmt::format("there is no file left to watch for signals with: {}; raise the limit of open files (ulimit -n).",
                  std::strerror(errno)));
}

}  // namespace

void install_interrupt_handlers() {
  if (signalled < 0) signalled = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    // nohup and background jobs of a shell have it ignored: so it stays.
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    handle(signal);
  }
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  for (const int signal : {SIGPIPE, SIGXFSZ}) sigaction(signal, &ignore, nullptr);
}

void keep_what_is_done(bool quiet) {
  speaks = !quiet;
  keeps = true;
}

void say_interrupts(bool said) { speaks = said; }

AfterInterrupt::AfterInterrupt(double seconds, std::function<void()> act)
    : over_(needed_event()),
      act_(std::move(act)),
      thread_([this, patience = static_cast<std::int64_t>(seconds * 1e9)] { wait(patience); }) {}

AfterInterrupt::~AfterInterrupt() {
  const std::uint64_t one = 1;
  (void)!::write(over_, &one, sizeof one);
  thread_.join();
  ::close(over_);
}

void AfterInterrupt::wait(std::int64_t patience_ns) const {
  for (;;) {
    const std::int64_t first = interrupt_time_ns();
    const std::int64_t left = first == 0 ? 0 : std::max<std::int64_t>(0, first + patience_ns - now_ns());
    pollfd events[]{{over_, POLLIN, 0}, {first == 0 ? signalled.load() : -1, POLLIN, 0}};
    constexpr int kLook_ms = 100;  // where no signal makes a file readable: the handler is not there, or had no file
    const int until_first = signalled.load() >= 0 ? -1 : kLook_ms;
    const int ready = ::poll(events, 2, first == 0 ? until_first : static_cast<int>(left / 1'000'000));
    if (ready < 0 && errno != EINTR) return;
    if (ready > 0 && (events[0].revents & POLLIN) != 0) return;
    if (first != 0 && now_ns() >= first + patience_ns) return act_();
  }
}

void obey_launcher() {
  patience_ns = 2'000'000'000;
  for (const int signal : {SIGINT, SIGTERM}) handle(signal);
}

bool interrupt_requested() { return interrupt_time_ns() != 0; }

std::int64_t interrupt_time_ns() { return first_ns.load(std::memory_order_relaxed); }

}  // namespace fsdpbench::app
