#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "engine/rank_outcome.h"
#include "engine/setup.h"
#include "launch/control_channel.h"

namespace fsdpbench::app {

/// Results saved by a process whose run does not end well: a result.json that says so beside its config.toml, and the
/// traces of its ranks: one in a job, all in a run of threads. Thread-safe: the threads that train may be stuck.
class RunRescue {
 public:
  /// `folder`: the result folder, empty if there is none: then nothing is saved. `frame`: result_frame() of the run.
  /// `setup` must outlive this. The ranks here are `rank` and those that follow it, `ranks_here` of them.
  RunRescue(std::filesystem::path folder, nlohmann::json frame, const engine::Setup& setup, int rank,
            int ranks_here = 1);

  /// Steps that the run's ranks have completed: RunHooks::done.
  engine::DoneSteps* done() { return done_.get(); }
  /// The first rank here that has failed by itself; -1: none.
  int failed_rank() const;

  /// Writes result.json, marked as not complete and with `failure` (null: the user stopped it), then the traces of the
  /// ranks here, of their completed measured steps. Only one rank writes result.json: rank 0, or, if that died, the
  /// first other one that finds none. A rank 0 that was given up and wakes leaves the verdict that it finds. A failure
  /// is saved once. Returns a sentence about what there is; empty: nothing was written. Throws OutputError.
  std::string save(const launch::JobFailure* failure);

  /// The run has ended well: from now on save() does nothing.
  void close();

 private:
  void write_result(const launch::JobFailure* failure, const engine::DoneSteps::Snapshot& done);
  bool result_is_missing() const;
  bool verdict_is_there() const;

  const std::filesystem::path folder_;
  const nlohmann::json frame_;
  const engine::Setup& setup_;
  const int rank_;
  const int ranks_here_;
  const std::unique_ptr<engine::DoneSteps[]> done_;
  std::mutex mutex_;
  bool closed_ = false;
};

/// Looks after one process of a job, on a thread of its own, because the thread that trains may be stuck when it
/// matters. Once a failure of the job is known it says so and has the completed steps saved, at once: a launcher may
/// kill this process a second later. If the process has not ended by itself 8 s after that, it ends it.
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

  /// From now on `rescue` saves what is to be saved; null: nobody. A failure that is known by now is dealt with before
  /// this returns, and then the rescue before is not in use any more.
  void save_with(RunRescue* rescue);

  /// If the job has failed, waits until that was said and what there is was saved, and returns the exit code of this
  /// process: rank_failed, or interrupted if the user had asked for the end before. Waits up to `patience_s` for the
  /// failure to become known. Nothing if there is none.
  std::optional<int> failure_code(double patience_s = 0);

  /// The channel is about to go: it is not looked at any more.
  void leave();

 private:
  void watch(const std::stop_token& stop);
  bool look(std::int64_t now);
  void handle(const launch::JobFailure& failure, std::int64_t now);
  void save_interrupted();
  void say(const launch::JobFailure& failure, const std::string& saved);
  [[noreturn]] void give_up(int code) const;

  launch::ControlChannel& channel_;
  const int rank_;
  const Patience patience_;
  std::atomic<const char*> doing_ = "starting";
  std::atomic<bool> may_be_cut_ = true;
  std::atomic<std::int64_t> standstill_ns_ = 0;
  std::mutex mutex_;  // of all below
  RunRescue* rescue_ = nullptr;
  bool saved_interrupted_ = false;
  std::optional<launch::JobFailure> failure_;
  int code_ = 0;                  // once there is a failure
  std::int64_t deadline_ns_ = 0;  // when the process is ended; 0: not yet known
  bool left_ = false;
  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace fsdpbench::app
