#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/lane_streams.h"

namespace fsdpbench::backend::cuda {

/// Blocks from CUDA's own stream-ordered allocator, in a memory pool of this rank's: it reuses a block where events
/// order the streams, and never just because a free happens to be over already, so that the same schedule always
/// needs the same memory. What the pool has got from the device it keeps.
class PoolMemory : public DeviceMemory {
 public:
  /// `expected` bytes are got from the device at once (0: none), before anything runs that growing would have to wait
  /// for. `poison`: freed blocks are filled with NaN. The GPUs 0 to `gpus` - 1, those of the ranks in this process, may
  /// use the blocks as the current one does, where the hardware lets them: between GPUs of one process NCCL reads and
  /// writes the buffers of collectives themselves, and a pool's memory is its own GPU's unless it is shared. Throws
  /// ResourceError if the device has not so much.
  PoolMemory(const LaneStreams& streams, std::int64_t expected, bool poison, int gpus);
  ~PoolMemory() override;

  std::byte* allocate(std::int64_t offset, const LanePool::CategoryPlace& place, std::int64_t bytes,
                      Lane lane) override;
  void free(std::byte* memory, std::int64_t bytes, Lane lane) override;
  Facts facts() const override;

 private:
  std::int64_t attribute(cudaMemPoolAttr attribute) const;

  const LaneStreams& streams_;
  const std::int64_t expected_;
  const bool poison_;
  cudaMemPool_t pool_ = nullptr;
};

}  // namespace fsdpbench::backend::cuda
