#pragma once

#include "backend/backend.h"
#include "backend/cpu/lane_worker.h"

namespace fsdpbench::backend::cpu {

/// Ranks and lanes as threads of this process, collectives through its memory.
class CpuBackend : public Backend {
 public:
  /// `kernels` makes the kernels of each lane of each rank, on the lane's own thread.
  explicit CpuBackend(KernelsFactory kernels) : kernels_(std::move(kernels)) {}

  std::string name() const override { return "cpu"; }
  Facts facts() const override;
  void run(const BackendOptions& options, const std::function<void(RankContext&)>& body) override;

 private:
  KernelsFactory kernels_;
};

}  // namespace fsdpbench::backend::cpu
