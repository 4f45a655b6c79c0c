#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>

#include "launch/clock_offset.h"
#include "launch/control_channel.h"

namespace fsdpbench::backend::cuda {

/// Rendezvous of the ranks of one run before NCCL's own: NCCL's id travels here. Among threads of this process,
/// or over the session's control channel.
class IdExchange {
 public:
  virtual ~IdExchange() = default;
  /// Collective; everybody gets rank 0's bytes. Throws launch::Stopped if the run is aborted before that.
  virtual std::string from_root(int rank, std::string bytes) = 0;
  /// Collective; blocks the host.
  virtual void barrier(int rank) = 0;
};

/// The exchange of ranks that are threads of this process. An abort ends every wait. Thread-safe.
class ThreadExchange : public IdExchange, private launch::Abort::Listener {
 public:
  /// `abort` must outlive this.
  ThreadExchange(launch::Abort& abort, int ranks);
  ~ThreadExchange() override;

  std::string from_root(int rank, std::string bytes) override;
  void barrier(int rank) override;
  /// The rank will take part in nothing more: whoever waits for it, now or later, fails with a BackendError.
  void ended(int rank);

 private:
  void aborted() override;

  launch::Abort& abort_;
  const int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string bytes_;
  int arrived_ = 0;
  int rounds_ = 0;
  int ended_ = -1;  ///< a rank that has ended
};

/// The exchange of ranks that are processes of one job.
class SessionExchange : public IdExchange {
 public:
  explicit SessionExchange(launch::ControlChannel& control) : control_(control) {}

  std::string from_root(int /*rank*/, std::string bytes) override {
    return launch::broadcast(control_, "nccl id", std::move(bytes));
  }
  void barrier(int /*rank*/) override { launch::barrier(control_); }

 private:
  launch::ControlChannel& control_;
};

}  // namespace fsdpbench::backend::cuda
