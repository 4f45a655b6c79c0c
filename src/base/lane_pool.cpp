#include "base/lane_pool.h"

#include <algorithm>
#include <stdexcept>

#include "base/bytes.h"

namespace fsdpbench {

std::int64_t LanePool::allocate(std::int64_t bytes, MemoryCategory category, Lane lane, const LaneOrder& order) {
  const std::int64_t size = rounded(bytes);
  const LaneClock now = order.now(lane);
  const std::size_t c = index_of(category);
  const std::int64_t offset = blocks_.allocate(size, lane, now);
  live_[offset] = {size, category, by_category_[c].allocate(size, lane, now)};

  PoolStatistics& s = statistics_;
  s.live[c] += size;
  s.live_total += size;
  s.peak_occupied[c] = std::max(s.peak_occupied[c], by_category_[c].occupied(lane, now));
  s.peak_occupied_total = std::max(s.peak_occupied_total, blocks_.occupied(lane, now));
  s.reserved = blocks_.reserved();
  s.reuses = blocks_.reuses();
  ++s.allocations;
  return offset;
}

const LanePool::Live& LanePool::live_at(std::int64_t offset) const {
  const auto found = live_.find(offset);
  if (found == live_.end()) throw std::logic_error("LanePool: no live block at this offset");
  return found->second;
}

void LanePool::free(std::int64_t offset, Lane lane, const LaneOrder& order) {
  const Live block = live_at(offset);
  // Not only the lane's last op: what the lane has waited for must be over too before anybody reuses the block.
  const LaneClock freed_after = order.now(lane);
  blocks_.free(offset, lane, freed_after);
  by_category_[index_of(block.category)].free(block.category_offset, lane, freed_after);
  statistics_.live[index_of(block.category)] -= block.size;
  statistics_.live_total -= block.size;
  live_.erase(offset);
}

std::int64_t LanePool::size_of_block(std::int64_t offset) const { return live_at(offset).size; }

LanePool::CategoryPlace LanePool::category_place(std::int64_t offset) const {
  const Live& block = live_at(offset);
  return {block.category, block.category_offset};
}

CategoryBytes LanePool::reserved_by_category() const {
  CategoryBytes bytes{};
  for (std::size_t c = 0; c < bytes.size(); ++c) bytes[c] = by_category_[c].reserved();
  return bytes;
}

std::vector<std::int64_t> LanePool::layout() const {
  std::vector<std::int64_t> layout = blocks_.layout();
  for (const LaneBlocks& blocks : by_category_) {
    const std::vector<std::int64_t> category = blocks.layout();
    layout.push_back(static_cast<std::int64_t>(category.size()));
    layout.insert(layout.end(), category.begin(), category.end());
  }
  return layout;
}

void LanePool::reset_peaks() {
  statistics_.peak_occupied = statistics_.live;
  statistics_.peak_occupied_total = statistics_.live_total;
}

}  // namespace fsdpbench
