#pragma once

#include <cuda_runtime_api.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/event_timer.h"
#include "backend/cuda/nccl/nccl_comm.h"
#include "backend/device.h"
#include "base/lane.h"
#include "base/lane_blocks.h"
#include "base/lane_pool.h"

namespace fsdpbench::backend::cuda {

/// One non-blocking stream a lane, on the current device. The compute lane has the least priority and all others the
/// greatest: a gather, or a copy that a gather waits for, that is ready shall not queue up behind the thread blocks of
/// a large kernel, for which it costs little.
class LaneStreams {
 public:
  LaneStreams();
  /// Queued work still runs.
  ~LaneStreams();
  LaneStreams(const LaneStreams&) = delete;
  LaneStreams& operator=(const LaneStreams&) = delete;

  cudaStream_t operator[](Lane lane) const { return streams_[index_of(lane)]; }
  /// "compute 0, others -5".
  std::string priorities() const;

 private:
  std::array<cudaStream_t, kLaneCount> streams_{};
  int least_ = 0;
  int greatest_ = 0;
};

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

/// Fills freed blocks of a region with NaN. The filling is no op of the rank's order, so that poisoning does not change
/// which blocks the bookkeeping hands out. A lane that gets such a block early must therefore wait for the filling
/// itself.
class PoisonedBlocks {
 public:
  /// `streams` outlive it.
  explicit PoisonedBlocks(const LaneStreams& streams) : streams_(streams) {}

  /// Fills the block, of device memory or page-locked, once everything enqueued on `lane` so far is done.
  void fill(std::byte* memory, std::int64_t bytes, Lane lane);
  /// Makes what is enqueued on `lane` from now on come after the fillings of these bytes.
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

/// Memory for the blocks of a device's pool. The pool's bookkeeping (base/lane_pool.h) is the device's own and
/// the same for all; this only finds memory for its blocks, lane-ordered in the same sense.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  /// `bytes` of memory for the block that the bookkeeping placed at `offset` of its range, and at `place` in the range
  /// of its category, 512-byte aligned, for ops of `lane` enqueued from now on; null if there is no more.
  virtual std::byte* allocate(std::int64_t offset, const LanePool::CategoryPlace& place, std::int64_t bytes,
                              Lane lane) = 0;
  /// Gives the block back once everything enqueued on `lane` so far is done.
  virtual void free(std::byte* memory, std::int64_t bytes, Lane lane) = 0;
  /// The region of all blocks that collectives are called with; empty if there is none such.
  virtual std::span<std::byte> region() const { return {}; }
  /// Bytes of the device that this holds or has held at most, and what else is worth knowing.
  virtual Facts facts() const = 0;
};

/// Log of the current device's memory use, by asking how much is free at stated moments. Other processes on the
/// GPU are counted where they change in between, and CUDA tells no better.
class MemoryLog {
 public:
  /// Makes the device's context, and notes what is then in use as the first entry.
  MemoryLog();

  /// Attributes memory taken since the last note to `what`.
  void note(const std::string& what);
  /// One entry a note, and what is in use on the whole device now.
  Facts facts() const;

 private:
  std::int64_t used_ = 0;
  Facts notes_;
};

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

/// One region of memory that communicators can register, for what collectives are called with: parameters, gradients
/// and communication buffers, each category in a part of its own where the bookkeeping has placed its blocks.
/// Activations and the optimizer's state, which no rank ever sends, come from other memory beside it: every
/// registration maps the whole region for all ranks of a communicator.
class ArenaMemory : public DeviceMemory {
 public:
  /// `bytes`: what each category needs of a range of its own; of those in the region there is never more.
  ArenaMemory(const LaneStreams& streams, const CategoryBytes& bytes, bool poison);

  std::byte* allocate(std::int64_t offset, const LanePool::CategoryPlace& place, std::int64_t bytes,
                      Lane lane) override;
  void free(std::byte* memory, std::int64_t bytes, Lane lane) override;
  std::span<std::byte> region() const override { return arena_.memory(); }
  Facts facts() const override;

 private:
  /// A part of the region, or of the other memory.
  struct Part {
    std::int64_t begin = 0;
    std::int64_t bytes = 0;
  };
  const bool poison_;
  std::array<Part, kMemoryCategoryCount> parts_;
  RegisteredArena arena_;
  FixedMemory others_;
  PoisonedBlocks poisoned_;
};

}  // namespace fsdpbench::backend::cuda
