#pragma once

#include <cuda_runtime_api.h>

#include <vector>

namespace fsdpbench::backend::cuda {

/// CUDA events of the current device, made when they run out and used again and again.
class EventStore {
 public:
  /// `flags`: cudaEventDisableTiming or cudaEventDefault.
  explicit EventStore(unsigned flags) : flags_(flags) {}
  ~EventStore();
  EventStore(const EventStore&) = delete;
  EventStore& operator=(const EventStore&) = delete;

  /// Belongs to the store; the caller's until give_back().
  cudaEvent_t take();
  void give_back(cudaEvent_t event) { free_.push_back(event); }

 private:
  const unsigned flags_;
  std::vector<cudaEvent_t> all_;
  std::vector<cudaEvent_t> free_;
};

}  // namespace fsdpbench::backend::cuda
