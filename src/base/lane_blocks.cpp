#include "base/lane_blocks.h"

#include <algorithm>
#include <stdexcept>

#include "base/bytes.h"

namespace fsdpbench {

bool LaneBlocks::reusable(const Block& block, const LaneClock& now) {
  if (block.live) return false;
  for (std::size_t i = 0; i < kLaneCount; ++i) {
    if (block.freed_after.seen[i] > now.seen[i]) return false;
  }
  return true;
}

LaneBlocks::Run LaneBlocks::best_run(std::int64_t size, Lane lane, const LaneClock& now) {
  Run best;
  for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
    if (block->bytes != size || !reusable(*block, now)) continue;
    if (block->freed_on == lane) return {block, size};
    if (best.bytes == 0) best = {block, size};
  }
  if (best.bytes > 0) return best;
  for (auto block = blocks_.begin(); block != blocks_.end();) {
    Run run{block, 0};
    for (; block != blocks_.end() && reusable(*block, now); ++block) run.bytes += block->bytes;
    if (run.bytes >= size && (best.bytes == 0 || run.bytes < best.bytes)) best = run;
    if (run.bytes == 0) ++block;
  }
  return best;
}

LaneBlocks::Run LaneBlocks::free_tail(const LaneClock& now) {
  Run run{blocks_.end(), 0};
  while (run.first != blocks_.begin() && reusable(*std::prev(run.first), now)) run.bytes += (--run.first)->bytes;
  return run;
}

std::int64_t LaneBlocks::allocate(std::int64_t size, Lane lane, const LaneClock& now) {
  Run run = best_run(size, lane, now);
  if (run.bytes > 0) {
    ++reuses_;
  } else {
    run = free_tail(now);
    reserved_ = checked_sum(reserved_, size - run.bytes);
  }

  // The new block takes the front of the run. Blocks it covers whole go; the one it cuts keeps its rest and its
  // clock: other lanes may have to wait for that rest longer than this one.
  const std::int64_t offset = run.bytes > 0 ? run.first->offset : reserved_ - size;
  auto next = run.first;
  for (std::int64_t left = std::min(size, run.bytes); left > 0;) {
    const std::int64_t taken = std::min(left, next->bytes);
    left -= taken;
    next->offset += taken;
    next->bytes -= taken;
    if (next->bytes == 0) next = blocks_.erase(next);
  }
  live_[offset] = blocks_.insert(next, {offset, size, true, lane, {}});
  return offset;
}

void LaneBlocks::free(std::int64_t offset, Lane lane, const LaneClock& freed_after) {
  const auto found = live_.find(offset);
  if (found == live_.end()) throw std::logic_error("LaneBlocks::free: no live block at this offset");
  found->second->live = false;
  found->second->freed_on = lane;
  found->second->freed_after = freed_after;
  live_.erase(found);
}

std::vector<std::int64_t> LaneBlocks::layout() const {
  std::vector<std::int64_t> layout;
  for (const Block& block : blocks_) {
    layout.push_back(block.bytes);
    layout.push_back(block.live ? -1 : static_cast<std::int64_t>(index_of(block.freed_on)));
  }
  return layout;
}

std::int64_t LaneBlocks::occupied(const LaneClock& now) const {
  std::int64_t bytes = 0;
  for (const Block& block : blocks_) {
    if (!reusable(block, now)) bytes += block.bytes;
  }
  return bytes;
}

}  // namespace fsdpbench
