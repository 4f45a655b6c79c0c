#pragma once

#include <exception>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/nccl/make_communicator.h"
#include "launch/abort.h"

namespace fsdpbench::backend::cuda {

/// What the ranks of one run in this process share: their end if one fails, and the news of it to other processes.
class GpuWorld {
 public:
  /// Throws ConfigError if the options ask for what GPUs cannot do: emulated links or compute, slow ranks. With a
  /// session it is collective.
  GpuWorld(const BackendOptions& options, int gpus);
  ~GpuWorld();
  GpuWorld(const GpuWorld&) = delete;
  GpuWorld& operator=(const GpuWorld&) = delete;

  const BackendOptions& options() const { return options_; }
  launch::Abort& abort() { return abort_; }
  /// Which GPU `rank` of this process uses.
  int gpu_of(int rank) const;
  /// For people.
  std::string describe() const;
  /// `failure` is why a rank of this process ended.
  void fail(const std::exception_ptr& failure) noexcept;

 private:
  const BackendOptions& options_;
  const int gpus_;
  bool shared_ = false;  ///< some ranks of the job use the same GPU
  launch::Abort abort_;
};

}  // namespace fsdpbench::backend::cuda
