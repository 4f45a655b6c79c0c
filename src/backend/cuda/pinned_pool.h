#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/lane_streams.h"
#include "backend/cuda/pinned_memory.h"
#include "backend/cuda/poisoned_blocks.h"
#include "backend/device.h"
#include "base/lane_order.h"
#include "base/lane_pool.h"

namespace fsdpbench::backend::cuda {

/// Device::allocate_host(): one region of page-locked memory, as large as the run needs, where each block lies at its
/// place in the bookkeeping.
class PinnedPool {
 public:
  /// `streams` outlive it; `poison` as of PoisonedBlocks. Throws ResourceError if the host has not so much.
  PinnedPool(const LaneStreams& streams, int rank, std::int64_t bytes, bool poison);

  /// As Device::allocate_host(). Throws ResourceError, and leaves the bookkeeping as it was, where the region ends.
  std::byte* allocate(std::int64_t bytes, MemoryCategory category, Lane lane, const LaneOrder& order);
  bool contains(const std::byte* memory) const;
  /// Frees a live block of this pool.
  void free(std::byte* memory, Lane lane, const LaneOrder& order);

  const PoolStatistics& statistics() const { return pool_.statistics(); }
  void reset_peaks() { pool_.reset_peaks(); }
  std::span<std::byte> region() const { return memory_.bytes(); }
  void abandon() { memory_.abandon(); }
  Facts facts() const;

 private:
  const int rank_;
  const bool poison_;
  PinnedMemory memory_;
  LanePool pool_;
  PoisonedBlocks poisoned_;
};

}  // namespace fsdpbench::backend::cuda
