#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cuda/event_store.h"
#include "backend/cuda/lane_streams.h"

namespace fsdpbench::backend::cuda {

/// Fills freed blocks of a region with NaN. The filling is no op of the rank's order, so that poisoning does not change
/// which blocks the bookkeeping hands out. A lane that gets such a block early must therefore wait for the filling
/// itself.
class PoisonedBlocks {
 public:
  /// `streams` outlive it.
  explicit PoisonedBlocks(const LaneStreams& streams) : streams_(streams) {}

  /// Fills the block, of device memory or page-locked, once everything enqueued on `lane` so far is done.
  void fill(std::byte* memory, std::int64_t bytes, Lane lane);
  /// What is enqueued on `lane` from now on comes after the fillings of these bytes.
  void wait(Lane lane, const std::byte* memory, std::int64_t bytes);

 private:
  struct Filling {
    std::byte* begin = nullptr;
    std::byte* end = nullptr;
    cudaEvent_t done = nullptr;
  };

  const LaneStreams& streams_;
  EventStore events_{cudaEventDisableTiming};
  std::vector<Filling> fillings_;
};

}  // namespace fsdpbench::backend::cuda
