#include "backend/cuda/arena_memory.h"

#include <utility>

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

ArenaMemory::ArenaMemory(const LaneStreams& streams, const CategoryBytes& bytes, bool poison, const MakeOthers& others)
    : poison_(poison),
      arena_(static_cast<std::size_t>(sum(bytes, true))),
      others_(others(sum(bytes, false))),
      poisoned_(streams) {
  for (const bool communicated : {true, false}) {
    std::int64_t begin = 0;
    for (const MemoryCategory category : kMemoryCategories) {
      if (is_communicated(category) != communicated) continue;
      parts_[index_of(category)] = {begin, bytes[index_of(category)]};
      begin += bytes[index_of(category)];
    }
  }
}

std::byte* ArenaMemory::allocate(std::int64_t /*offset*/, const LanePool::CategoryPlace& place, std::int64_t bytes,
                                 Lane lane) {
  const Part& part = parts_[index_of(place.category)];
  if (!is_communicated(place.category)) return others_->allocate(part.begin + place.offset, place, bytes, lane);
  if (place.offset + bytes > part.bytes) return nullptr;
  std::byte* const begin = region().data() + part.begin + place.offset;
  if (poison_) poisoned_.wait(lane, begin, bytes);
  return begin;
}

void ArenaMemory::free(std::byte* memory, std::int64_t bytes, Lane lane) {
  if (memory < region().data() || memory >= region().data() + region().size()) {
    others_->free(memory, bytes, lane);
  } else if (poison_) {
    poisoned_.fill(memory, bytes, lane);
  }
}

Facts ArenaMemory::facts() const {
  Facts all{{"registered memory", format_bytes(static_cast<std::int64_t>(region().size())) +
                                      ", one region of parameters, gradients and communication buffers"}};
  for (auto& fact : others_->facts()) all.push_back(std::move(fact));
  return all;
}

}  // namespace fsdpbench::backend::cuda
