#include "runs/job_watch.h"

#include <fmt/format.h>
#include <unistd.h>
#include <chrono>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "launch/interrupt.h"
#include "record/console.h"

namespace fsdpbench::app {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr auto kBetweenLooks = std::chrono::milliseconds(20);
/// A signal this long before the first rank was lost was the user's; launchers send theirs when a rank is lost.
constexpr std::int64_t kUsersLead_ns = 500 * kMs;
/// Message of a rank to the others when it ends the job because of the user's signal, which they may not have had.
constexpr std::string_view kCut = "interrupted by its user before it was ready";

std::int64_t ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

}  // namespace

JobWatch::JobWatch(launch::ControlChannel& channel, Patience patience)
    : channel_(channel),
      rank_(channel.rank()),
      patience_(patience),
      thread_([this](const std::stop_token& stop) { watch(stop); }) {}

JobWatch::~JobWatch() = default;

void JobWatch::watch(const std::stop_token& stop) {
  std::int64_t looked_ns = now_ns();
  while (!stop.stop_requested()) {
    const std::int64_t late_ns = now_ns() - looked_ns - std::chrono::nanoseconds(kBetweenLooks).count();
    if (late_ns > standstill_ns_.load()) standstill_ns_.store(late_ns);
    {
      const std::lock_guard lock(mutex_);
      const std::int64_t now = now_ns();
      if (!left_) look(now);
      if (deadline_ns_ > 0 && now > deadline_ns_) give_up(code_);
    }
    looked_ns = now_ns();  // what a failure took to be dealt with is no standstill
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

bool JobWatch::look(std::int64_t now) {
  if (failure_) return true;
  if (const std::optional<launch::JobFailure> failure = channel_.failure()) {
    handle(*failure, now);
    return true;
  }
  if (interrupt_requested() && may_be_cut_ && now - interrupt_time_ns() > ns(kPatienceWithAll_s)) {
    channel_.fail(fmt::format("rank {} was {}: it was {}", rank_, kCut, doing_.load()));
  }
  return false;
}

void JobWatch::handle(const launch::JobFailure& failure, std::int64_t now) {
  failure_ = failure;
  deadline_ns_ = now + ns(patience_.after_failure_s);
  const std::int64_t interrupted = interrupt_time_ns();
  const bool users =
      (interrupted > 0 && now - interrupted > kUsersLead_ns) || failure.message.find(kCut) != std::string::npos;
  code_ = static_cast<int>(users ? ExitCode::interrupted : failure.code);
  say(failure);
}

void JobWatch::say(const launch::JobFailure& failure) {
  const bool without_root = failure.rank == 0 && failure.died;
  const bool speaks = rank_ == 0 || failure.rank == rank_ || (without_root && rank_ == 1);
  if (!speaks) return;
  if (code_ == static_cast<int>(ExitCode::interrupted)) {
    console().warning("interrupted before the step was over");
  } else {
    console().error(failure.message);
  }
}

void JobWatch::give_up(int code) const {
  console().error(
      fmt::format("rank {} had to be ended: it was still {} {}", rank_, doing_.load(),
                  failure_ ? fmt::format("{:g} s after the failure of the job was known", patience_.after_failure_s)
                           : fmt::format("{:g} s after its work had ended", patience_.to_leave_s)));
  _exit(code);
}

std::optional<int> JobWatch::failure_code(double patience_s) {
  const std::int64_t until = now_ns() + ns(patience_s);
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (look(now_ns())) return code_;
    }
    if (now_ns() >= until) return std::nullopt;
    std::this_thread::sleep_for(kBetweenLooks / 4);
  }
}

void JobWatch::leave() {
  const std::lock_guard lock(mutex_);
  left_ = true;
  doing_ = "leaving";
  if (!failure_) code_ = static_cast<int>(ExitCode::rank_failed);
  if (deadline_ns_ == 0) deadline_ns_ = now_ns() + ns(patience_.to_leave_s);
}

}  // namespace fsdpbench::app
