#pragma once

#include <array>
#include <vector>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/event_store.h"
#include "backend/cuda/lane_streams.h"
#include "backend/cuda/nccl/registered_arena.h"
#include "backend/cuda/pool_memory.h"

namespace fsdpbench::backend::cuda {

/// One region of memory that communicators can register, for what collectives are called with: parameters, gradients
/// and communication buffers, each category in a part of its own where the bookkeeping has placed its blocks.
/// Activations and the optimizer's state, which no rank ever sends, come from a pool beside it: every registration maps
/// the whole region for all ranks of a communicator.
class ArenaMemory : public DeviceMemory {
 public:
  /// `bytes`: what each category needs of a range of its own; of those in the region there is never more. The rest as
  /// PoolMemory.
  ArenaMemory(const LaneStreams& streams, const CategoryBytes& bytes, bool poison, int gpus);

  std::byte* allocate(const LanePool::CategoryPlace& place, std::int64_t bytes, Lane lane) override;
  void free(std::byte* memory, std::int64_t bytes, Lane lane) override;
  std::span<std::byte> region() const override { return arena_.memory(); }
  Facts facts() const override;

 private:
  /// A freed block that a lane still fills.
  struct Poisoning {
    std::byte* begin = nullptr;
    std::byte* end = nullptr;
    cudaEvent_t done = nullptr;
  };
  /// A part of the region.
  struct Part {
    std::int64_t begin = 0;
    std::int64_t bytes = 0;
  };
  void poison(std::byte* memory, std::int64_t bytes, Lane lane);

  const LaneStreams& streams_;
  const bool poison_;
  std::array<Part, kMemoryCategoryCount> parts_;
  RegisteredArena arena_;
  PoolMemory others_;
  EventStore events_{cudaEventDisableTiming};
  std::vector<Poisoning> poisonings_;
};

}  // namespace fsdpbench::backend::cuda
