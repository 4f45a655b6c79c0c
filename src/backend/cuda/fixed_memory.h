#pragma once

#include "backend/cuda/device_memory.h"
#include "backend/cuda/lane_streams.h"
#include "backend/cuda/poisoned_blocks.h"

namespace fsdpbench::backend::cuda {

/// One region for all blocks, each where the bookkeeping has placed it: the same schedule always gets the same
/// addresses. Nothing is asked of CUDA for a block.
class FixedMemory : public DeviceMemory {
 public:
  /// `bytes`: the range that the bookkeeping will need at most. `poison`: freed blocks are filled with NaN. Throws
  /// ResourceError if the device has not so much.
  FixedMemory(const LaneStreams& streams, std::int64_t bytes, bool poison);
  ~FixedMemory() override;

  std::byte* allocate(std::int64_t offset, const LanePool::CategoryPlace& place, std::int64_t bytes,
                      Lane lane) override;
  void free(std::byte* memory, std::int64_t bytes, Lane lane) override;
  Facts facts() const override;

 private:
  const std::int64_t bytes_;
  const bool poison_;
  std::byte* memory_ = nullptr;
  PoisonedBlocks poisoned_;
};

}  // namespace fsdpbench::backend::cuda
