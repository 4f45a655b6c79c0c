#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/nccl/nccl_communicator.h"
#include "base/abort_guard.h"
#include "base/error.h"
#include "launch/clock_offset.h"

namespace fsdpbench::backend::cuda {

/// State shared by the ranks of one run in this process: their end if one fails, and the news of it to other processes.
class GpuTeam {
 public:
  /// A rank's thread can be stuck in CUDA where it sees no abort: a launch waits for room behind a collective whose
  /// peer has failed. So ranks that are threads must end in time after the first failure, or `give_up` is called.
  /// Where each is a process, the job's own watch does that.
  struct Patience {
    std::chrono::milliseconds after_failure{20'000};
    std::function<void(const std::string& last_words)> give_up = exit_at_once;
  };

  /// Throws ConfigError if the options are the CPU backend's: GPUs cannot emulate links, compute or slow ranks. With a
  /// session it is collective.
  GpuTeam(const BackendOptions& options, int gpus) : GpuTeam(options, gpus, Patience{}) {}
  GpuTeam(const BackendOptions& options, int gpus, Patience patience);
  ~GpuTeam();
  GpuTeam(const GpuTeam&) = delete;
  GpuTeam& operator=(const GpuTeam&) = delete;

  const BackendOptions& options() const { return options_; }
  launch::Abort& abort() { return abort_; }
  /// Which GPU `rank` of this process uses.
  int gpu_of(int rank) const;
  /// For people.
  std::string describe() const;
  /// `failure` is why a rank of this process ended.
  void fail(const std::exception_ptr& failure) noexcept;

 private:
  /// To the other processes; or, where there are none, sets this one a deadline.
  void announce(const std::string& failure, ExitCode code);

  const BackendOptions& options_;
  const int gpus_;
  const Patience patience_;
  bool shared_ = false;  ///< some ranks of the job use the same GPU
  launch::Abort abort_;
  std::once_flag failed_;
  std::unique_ptr<AbortGuard> guard_;  ///< once a rank that is a thread has failed
};

}  // namespace fsdpbench::backend::cuda
