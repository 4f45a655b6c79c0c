#pragma once

#include <vector>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/event_store.h"
#include "backend/cuda/lane_streams.h"
#include "backend/cuda/nccl/registered_arena.h"

namespace fsdpbench::backend::cuda {

/// One region of memory that communicators can register, with the blocks where the bookkeeping has placed them.
class ArenaMemory : public DeviceMemory {
 public:
  /// As PoolMemory; there is never more than `bytes`.
  ArenaMemory(const LaneStreams& streams, std::int64_t bytes, bool poison);

  std::byte* allocate(std::int64_t offset, std::int64_t bytes, Lane lane) override;
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
  void poison(std::byte* memory, std::int64_t bytes, Lane lane);

  const LaneStreams& streams_;
  const bool poison_;
  RegisteredArena arena_;
  EventStore events_{cudaEventDisableTiming};
  std::vector<Poisoning> poisonings_;
};

}  // namespace fsdpbench::backend::cuda
