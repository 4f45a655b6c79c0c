#include "base/lane_pool.h"

#include <algorithm>
#include <stdexcept>

#include "base/bytes.h"

namespace fsdpbench {

bool LanePool::reusable(const Block& block, const LaneClock& now) {
  if (block.live) return false;
  for (std::size_t i = 0; i < kLaneCount; ++i) {
    if (block.freed_after.seen[i] > now.seen[i]) return false;
  }
  return true;
}

void LanePool::merge_reusable(const LaneClock& now) {
  for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
    if (!reusable(*block, now)) continue;
    for (auto next = std::next(block); next != blocks_.end() && reusable(*next, now); next = blocks_.erase(next)) {
      block->bytes += next->bytes;
      block->freed_after.merge(next->freed_after);
    }
  }
}

void LanePool::note_peak(const LaneClock& now) {
  CategoryBytes occupied{};
  for (const Block& block : blocks_) {
    if (!reusable(block, now)) occupied[index_of(block.category)] += block.bytes;
  }
  std::int64_t total = 0;
  for (std::size_t i = 0; i < kMemoryCategoryCount; ++i) {
    total += occupied[i];
    statistics_.peak_occupied[i] = std::max(statistics_.peak_occupied[i], occupied[i]);
  }
  statistics_.peak_occupied_total = std::max(statistics_.peak_occupied_total, total);
}

std::int64_t LanePool::allocate(std::int64_t bytes, MemoryCategory category, Lane lane, const LaneOrder& order) {
  const std::int64_t size = std::max(kGranule, round_up(bytes, kGranule));
  const LaneClock now = order.now(lane);
  merge_reusable(now);

  auto best = blocks_.end();
  for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
    if (reusable(*block, now) && block->bytes >= size && (best == blocks_.end() || block->bytes < best->bytes)) {
      best = block;
    }
  }
  ++statistics_.allocations;
  if (best != blocks_.end()) {
    ++statistics_.reuses;
    if (best->bytes > size) {
      Block rest = *best;
      rest.offset += size;
      rest.bytes -= size;
      blocks_.insert(std::next(best), rest);
    }
  } else if (!blocks_.empty() && reusable(blocks_.back(), now)) {
    best = std::prev(blocks_.end());  // the range grows by what its free tail lacks
    statistics_.reserved = best->offset + size;
  } else {
    Block fresh;
    fresh.offset = statistics_.reserved;
    best = blocks_.insert(blocks_.end(), fresh);
    statistics_.reserved += size;
  }
  best->bytes = size;
  best->category = category;
  best->live = true;
  best->freed_after = {};
  live_[best->offset] = best;
  statistics_.live[index_of(category)] += size;
  statistics_.live_total += size;
  note_peak(now);
  return best->offset;
}

void LanePool::free(std::int64_t offset, Lane lane, const LaneOrder& order) {
  const auto found = live_.find(offset);
  if (found == live_.end()) throw std::logic_error("LanePool::free: no live block at this offset");
  Block& block = *found->second;
  block.live = false;
  // Not only the lane's last op: what the lane has waited for must be over too before anybody reuses the block.
  block.freed_after = order.now(lane);
  statistics_.live[index_of(block.category)] -= block.bytes;
  statistics_.live_total -= block.bytes;
  live_.erase(found);
}

std::int64_t LanePool::size_of_block(std::int64_t offset) const {
  const auto found = live_.find(offset);
  if (found == live_.end()) throw std::logic_error("LanePool::size_of_block: no live block at this offset");
  return found->second->bytes;
}

void LanePool::reset_peaks() {
  statistics_.peak_occupied = statistics_.live;
  statistics_.peak_occupied_total = statistics_.live_total;
}

}  // namespace fsdpbench
