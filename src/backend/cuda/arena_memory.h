#pragma once

#include <array>
#include <functional>
#include <memory>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/lane_streams.h"
#include "backend/cuda/nccl/registered_arena.h"
#include "backend/cuda/poisoned_blocks.h"

namespace fsdpbench::backend::cuda {

/// One region of memory that communicators can register, for what collectives are called with: parameters, gradients
/// and communication buffers, each category in a part of its own where the bookkeeping has placed its blocks.
/// Activations and the optimizer's state, which no rank ever sends, come from other memory beside it: every
/// registration maps the whole region for all ranks of a communicator.
class ArenaMemory : public DeviceMemory {
 public:
  /// Makes the other memory, of so many bytes, in which each category has a part of its own, too.
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

}  // namespace fsdpbench::backend::cuda
