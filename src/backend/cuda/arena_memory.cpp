#include "backend/cuda/arena_memory.h"

#include <utility>

#include "backend/cuda/check.h"
#include "base/bytes.h"

namespace fsdpbench::backend::cuda {
namespace {

bool is_communicated(MemoryCategory category) {
  return category != MemoryCategory::activations && category != MemoryCategory::optimizer;
}

std::int64_t sum(const CategoryBytes& bytes, bool communicated) {
  std::int64_t all = 0;
  for (const MemoryCategory category : kMemoryCategories) {
    if (is_communicated(category) == communicated) all = checked_sum(all, bytes[index_of(category)]);
  }
  return all;
}

}  // namespace

ArenaMemory::ArenaMemory(const LaneStreams& streams, const CategoryBytes& bytes, bool poison, int gpus)
    : streams_(streams),
      poison_(poison),
      arena_(static_cast<std::size_t>(sum(bytes, true))),
      others_(streams, sum(bytes, false), poison, gpus) {
  std::int64_t begin = 0;
  for (const MemoryCategory category : kMemoryCategories) {
    if (!is_communicated(category)) continue;
    parts_[index_of(category)] = {begin, bytes[index_of(category)]};
    begin += bytes[index_of(category)];
  }
}

std::byte* ArenaMemory::allocate(const LanePool::CategoryPlace& place, std::int64_t bytes, Lane lane) {
  if (!is_communicated(place.category)) return others_.allocate(place, bytes, lane);
  const Part& part = parts_[index_of(place.category)];
  if (place.offset + bytes > part.bytes) return nullptr;
  std::byte* const begin = region().data() + part.begin + place.offset;
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
  if (memory < region().data() || memory >= region().data() + region().size()) {
    others_.free(memory, bytes, lane);
  } else if (poison_) {
    poison(memory, bytes, lane);
  }
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
  Facts all{{"registered memory", format_bytes(static_cast<std::int64_t>(region().size())) +
                                      ", one region of parameters, gradients and communication buffers"}};
  for (auto& fact : others_.facts()) all.push_back(std::move(fact));
  return all;
}

}  // namespace fsdpbench::backend::cuda
