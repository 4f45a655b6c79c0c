#pragma once

// Runs of the CUDA backend on imagined GPUs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/fake/fake_stream.h"
#include "backend/cuda/lane_access.h"
#include "backend/support.h"

namespace fsdpbench::backend {

inline std::unique_ptr<Backend> make_cuda() { return std::make_unique<cuda::CudaBackend>(); }
/// That can offload.
inline std::unique_ptr<Backend> make_cuda_with(MakeHostKernels host_kernels) {
  return std::make_unique<cuda::CudaBackend>(std::move(host_kernels));
}

inline cuda::LaneAccess& lanes_of(RankContext& rank) { return dynamic_cast<cuda::LaneAccess&>(rank.device); }

/// A value of Facts; empty if there is none of this name.
inline std::string fact(const Facts& facts, const std::string& name) {
  for (const auto& [key, value] : facts) {
    if (key == name) return value;
  }
  return {};
}

/// An op that does not end until release().
class StuckOp {
 public:
  ~StuckOp() { release(); }
  void enqueue(RankContext& rank, Lane lane) {
    lanes_of(rank).run_op(
        lane, "stuck",
        [released = released_](cudaStream_t stream) {
          fake::run_on_stream(stream, [released] { released->wait(false); });
        },
        nullptr);
  }
  void release() {
    released_->store(true);
    released_->notify_all();
  }

 private:
  std::shared_ptr<std::atomic<bool>> released_ = std::make_shared<std::atomic<bool>>(false);
};

/// So many imagined GPUs while it lives; the injected faults are gone after it.
class FakeGpus {
 public:
  explicit FakeGpus(int count) { setenv("FSDPBENCH_FAKE_GPUS", std::to_string(count).c_str(), 1); }
  ~FakeGpus() {
    unsetenv("FSDPBENCH_FAKE_GPUS");
    fake::reset();
  }
};

}  // namespace fsdpbench::backend
