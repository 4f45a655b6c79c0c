#pragma once

#include <cuda_runtime_api.h>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/event_timer.h"
#include "backend/cuda/lane_streams.h"
#include "backend/cuda/nccl/nccl_comm.h"
#include "backend/device.h"
#include "base/lane.h"
#include "base/lane_pool.h"

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
  /// Function that makes the other memory, of so many bytes, in which each category has a part of its own, too.
  using MakeOthers = std::function<std::unique_ptr<DeviceMemory>(std::int64_t bytes)>;
  /// `bytes`: what each category needs of a range of its own; of those in the region there is never more.
  ArenaMemory(const LaneStreams& streams, const CategoryBytes& bytes, bool poison, const MakeOthers& others);

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
  std::unique_ptr<DeviceMemory> others_;
  PoisonedBlocks poisoned_;
};

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
