#pragma once

#include <mutex>
#include <string>

#include "backend/backend.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// Ranks on NVIDIA GPUs: threads of this process, each with a GPU of its own; with a session, one a process, which may
/// share GPUs where there are too few (to see that something works, never to measure).
class CudaBackend : public Backend {
 public:
  /// `host_kernels`: of the host_compute lane; none: runs that offload cannot be had. Throws ConfigError with one
  /// sentence where no GPU can be used.
  explicit CudaBackend(MakeHostKernels host_kernels = {});

  std::string name() const override { return "cuda"; }
  Facts facts() const override;
  void run(const BackendOptions& options, const std::function<void(RankContext&)>& body) override;

 private:
  MakeHostKernels host_kernels_;
  int gpus_ = 0;
  std::string ranks_;  ///< how the ranks of the last run got their GPUs
};

}  // namespace fsdpbench::backend::cuda
