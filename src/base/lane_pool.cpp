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

LanePool::Run LanePool::best_run(std::int64_t size, MemoryCategory category, const LaneClock& now) {
  for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
    if (block->bytes == size && block->category == category && reusable(*block, now)) return {block, size};
  }
  Run best;
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    Run run{block, 0};
    for (; block != blocks_.end() && reusable(*block, now); ++block) run.bytes += block->bytes;
    if (run.bytes >= size && (best.bytes == 0 || run.bytes < best.bytes)) best = run;
    if (run.bytes == 0) ++block;
  }
  return best;
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
  Run run = best_run(size, category, now);
  ++statistics_.allocations;
  if (run.bytes > 0) {
    ++statistics_.reuses;
  } else {  // the range grows by what its free tail lacks
    run = {blocks_.end(), 0};
    while (run.first != blocks_.begin() && reusable(*std::prev(run.first), now)) run.bytes += (--run.first)->bytes;
    statistics_.reserved += size - run.bytes;
  }

  // The new block takes the front of the run. Blocks it covers whole go; the one it cuts keeps its rest, category and
  // clock included: other lanes may have to wait for that rest a while longer than this one.
  const std::int64_t offset = run.bytes > 0 ? run.first->offset : statistics_.reserved - size;
  auto next = run.first;
  for (std::int64_t left = std::min(size, run.bytes); left > 0;) {
    const std::int64_t taken = std::min(left, next->bytes);
    left -= taken;
    next->offset += taken;
    next->bytes -= taken;
    if (next->bytes == 0) next = blocks_.erase(next);
  }
  const auto best = blocks_.insert(next, Block{});
  best->offset = offset;
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
