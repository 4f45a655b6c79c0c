#pragma once

#include <string>

#include "backend/backend.h"
#include "backend/cpu/lane_worker.h"

namespace fsdpbench::backend::cpu {

/// Lanes are threads. Ranks are threads of this process and communicate through its memory or, with a session, one a
/// process: those of one host communicate through memory that they share, if they can, the others by messages.
class CpuBackend : public Backend {
 public:
  /// `kernels` makes the kernels of each lane of each rank, on the lane's own thread.
  explicit CpuBackend(KernelsFactory kernels) : kernels_(std::move(kernels)) {}

  std::string name() const override { return "cpu"; }
  Facts facts() const override;
  /// With a session `body` runs on the calling thread, and a failure of another process is thrown as a BackendError.
  void run(const BackendOptions& options, const std::function<void(RankContext&)>& body) override;

 private:
  KernelsFactory kernels_;
  std::string ranks_ = "threads of one process";  ///< of the latest run
};

}  // namespace fsdpbench::backend::cpu
