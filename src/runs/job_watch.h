#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "launch/control_channel.h"

namespace fsdpbench::app {

/// Looks after one process of a job, on a thread of its own, because the thread that trains may be stuck when it
/// matters. Once a failure of the job is known it says so, at once: a launcher may kill this process a second later. If
/// the process has not ended by itself 8 s after that, it ends it.
class JobWatch {
 public:
  /// Time that a process may take to end by itself.
  struct Patience {
    double after_failure_s = 8;
    double to_leave_s = 30;  ///< once it has left the job
  };
  explicit JobWatch(launch::ControlChannel& channel) : JobWatch(channel, Patience{}) {}
  JobWatch(launch::ControlChannel& channel, Patience patience);
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  /// Reaction to a signal of the user meanwhile.
  enum class Work : std::uint8_t {
    may_be_cut,  ///< it may take long: kPatienceWithAll_s after the signal the job is ended in the middle of it
    ends_soon,   ///< it is let to its end
  };
  /// Tells what the process does from now on, for the message about a hang. A literal: it is not copied.
  void doing(const char* what, Work work = Work::ends_soon) {
    doing_ = what;
    may_be_cut_ = work == Work::may_be_cut;
  }

  /// The longest time so far in which nothing of this process ran: it was stopped, swapped out, or its machine paused.
  double longest_standstill_s() const { return static_cast<double>(standstill_ns_.load()) * 1e-9; }

  /// If the job has failed, waits until that was said, and returns the exit code of this process: rank_failed, or
  /// interrupted if the user had asked for the end before. Waits up to `patience_s` for the failure to become known.
  /// Nothing if there is none.
  std::optional<int> failure_code(double patience_s = 0);

  /// The channel is about to go: it is not looked at any more.
  void leave();

 private:
  void watch(const std::stop_token& stop);
  bool look(std::int64_t now);
  void handle(const launch::JobFailure& failure, std::int64_t now);
  void say(const launch::JobFailure& failure);
  [[noreturn]] void give_up(int code) const;

  launch::ControlChannel& channel_;
  const int rank_;
  const Patience patience_;
  std::atomic<const char*> doing_ = "starting";
  std::atomic<bool> may_be_cut_ = true;
  std::atomic<std::int64_t> standstill_ns_ = 0;
  std::mutex mutex_;  // of all below
  std::optional<launch::JobFailure> failure_;
  int code_ = 0;                  // once there is a failure
  std::int64_t deadline_ns_ = 0;  // when the process is ended; 0: not yet known
  bool left_ = false;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace fsdpbench::app
