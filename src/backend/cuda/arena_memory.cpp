#include "backend/cuda/arena_memory.h"

#include "backend/cuda/check.h"
#include "base/bytes.h"

namespace fsdpbench::backend::cuda {

ArenaMemory::ArenaMemory(const LaneStreams& streams, std::int64_t bytes, bool poison)
    : streams_(streams), poison_(poison), arena_(static_cast<std::size_t>(bytes)) {}

std::byte* ArenaMemory::allocate(std::int64_t offset, std::int64_t bytes, Lane lane) {
  if (offset + bytes > static_cast<std::int64_t>(region().size())) return nullptr;
  std::byte* const begin = region().data() + offset;
  // The filling is no op of the rank's order, so that poisoning does not change which blocks the bookkeeping hands out.
  // A lane that gets such a block early must therefore wait for the filling itself.
  for (const Poisoning& p : poisonings_) {
    if (p.begin < begin + bytes && begin < p.end) {
      check(cudaStreamWaitEvent(streams_[lane], p.done, 0), "waiting for an event");
    }
  }
  return begin;
}

void ArenaMemory::free(std::byte* memory, std::int64_t bytes, Lane lane) {
  if (poison_) poison(memory, bytes, lane);
}

void ArenaMemory::poison(std::byte* memory, std::int64_t bytes, Lane lane) {
  std::erase_if(poisonings_, [&](const Poisoning& p) {
    if (cudaEventQuery(p.done) != cudaSuccess) return false;
    events_.give_back(p.done);
    return true;
  });
  // All bits set is a NaN in fp32 and in bf16.
  check(cudaMemsetAsync(memory, 0xFF, static_cast<std::size_t>(bytes), streams_[lane]), "poisoning memory");
  poisonings_.push_back({memory, memory + bytes, events_.take()});
  check(cudaEventRecord(poisonings_.back().done, streams_[lane]), "recording an event");
}

Facts ArenaMemory::facts() const {
  return {{"pool reserved at most",
           format_bytes(static_cast<std::int64_t>(region().size())) + ", one region for NCCL to register"}};
}

}  // namespace fsdpbench::backend::cuda
