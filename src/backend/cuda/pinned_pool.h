#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/lane_streams.h"
#include "backend/device.h"
#include "base/lane_blocks.h"
#include "base/lane_pool.h"

namespace fsdpbench::backend::cuda {

/// Page-locked host memory near the calling thread, at one address for the host and for every GPU (mapped, portable):
/// copies go at the bus's rate and beside all else, kernels and NCCL may read and write a few numbers there.
class PinnedMemory {
 public:
  /// Throws ResourceError, which says what `rank` wanted it for, if the system does not lock so much.
  PinnedMemory(int rank, std::int64_t bytes, const std::string& purpose);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::span<std::byte> bytes() const { return memory_; }
  /// It stays until the process ends: a GPU that hangs may still write there, and freeing would wait for it.
  void abandon() { memory_ = {}; }
  /// The NUMA node that its first page lies on; absent: the system does not tell.
  std::optional<int> numa_node() const;

 private:
  std::span<std::byte> memory_;
};

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
