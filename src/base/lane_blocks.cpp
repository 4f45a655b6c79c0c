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

std::optional<std::int64_t> LaneBlocks::Reusable::block_of_size(std::int64_t size, Lane lane) const {
  std::optional<std::int64_t> first;
  for (const Lane freed_on : kLanes) {
    const auto found = blocks_.find({size, freed_on});
    if (found == blocks_.end()) continue;
    const std::int64_t offset = *found->second.begin();
    if (freed_on == lane) return offset;
    first = std::min(first.value_or(offset), offset);
  }
  return first;
}

LaneBlocks::Run LaneBlocks::best_run(std::int64_t size, Lane lane, const LaneClock& now) {
  const Reusable& reusable = learn(lane, now);
  if (const auto offset = reusable.block_of_size(size, lane)) return {free_.at(*offset), size};
  if (const auto run = reusable.smallest_run(size)) return {free_.at(run->offset), run->bytes};
  return {};
}

void LaneBlocks::Reusable::add(const Block& block) {
  blocks_[{block.bytes, block.freed_on}].insert(block.offset);
  bytes_ += block.bytes;
  Extent extent{block.offset, block.bytes};
  const auto after = runs_.find(extent.offset + extent.bytes);
  if (after != runs_.end()) {
    extent.bytes += after->second;
    erase(after);
  }
  const auto next = runs_.lower_bound(extent.offset);
  if (next != runs_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == extent.offset) {
      extent = {before->first, before->second + extent.bytes};
      erase(before);
    }
  }
  insert(extent);
}

void LaneBlocks::Reusable::remove(const Block& block) {
  const auto same = blocks_.find({block.bytes, block.freed_on});
  same->second.erase(block.offset);
  if (same->second.empty()) blocks_.erase(same);
  bytes_ -= block.bytes;
  const auto around = std::prev(runs_.upper_bound(block.offset));
  const Extent front{around->first, block.offset - around->first};
  const Extent rest{block.offset + block.bytes, around->second - front.bytes - block.bytes};
  erase(around);
  if (front.bytes > 0) insert(front);
  if (rest.bytes > 0) insert(rest);
}

std::optional<LaneBlocks::Reusable::Extent> LaneBlocks::Reusable::smallest_run(std::int64_t size) const {
  const auto found = by_size_.lower_bound({size, 0});
  if (found == by_size_.end()) return std::nullopt;
  return Extent{found->second, found->first};
}

void LaneBlocks::Reusable::insert(const Extent& extent) {
  runs_.emplace(extent.offset, extent.bytes);
  by_size_.emplace(extent.bytes, extent.offset);
}

void LaneBlocks::Reusable::erase(std::map<std::int64_t, std::int64_t>::iterator run) {
  by_size_.erase({run->second, run->first});
  runs_.erase(run);
}

LaneBlocks::Reusable& LaneBlocks::learn(Lane lane, const LaneClock& now) {
  const std::size_t index = index_of(lane);
  auto& [others, looked_at] = others_[index];
  LaneClock clock = now;
  clock.seen[index] = 0;  // what the lane itself has issued meanwhile orders it after nothing
  if (looked_at == clock) return reusable_[index];
  looked_at = clock;
  for (auto other = others.begin(); other != others.end();) {
    Block& block = *other->second;
    if (!reusable(block, now)) {
      ++other;
      continue;
    }
    block.known_reusable[index] = true;
    reusable_[index].add(block);
    other = others.erase(other);
  }
  return reusable_[index];
}

void LaneBlocks::list(Blocks::iterator block) {
  free_.emplace(block->offset, block);
  for (std::size_t i = 0; i < kLaneCount; ++i) {
    if (block->known_reusable[i]) {
      reusable_[i].add(*block);
    } else {
      others_[i].blocks.emplace(block->offset, block);
      others_[i].looked_at.reset();
    }
  }
}

void LaneBlocks::unlist(Blocks::iterator block) {
  free_.erase(block->offset);
  for (std::size_t i = 0; i < kLaneCount; ++i) {
    if (block->known_reusable[i]) {
      reusable_[i].remove(*block);
    } else {
      others_[i].blocks.erase(block->offset);
    }
  }
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
    unlist(next);
    next->offset += taken;
    next->bytes -= taken;
    if (next->bytes == 0) {
      next = blocks_.erase(next);
    } else {
      list(next);
    }
  }
  live_[offset] = blocks_.insert(next, {offset, size, true, lane, {}, {}});
  return offset;
}

void LaneBlocks::free(std::int64_t offset, Lane lane, const LaneClock& freed_after) {
  const auto found = live_.find(offset);
  if (found == live_.end()) throw std::logic_error("LaneBlocks::free: no live block at this offset");
  found->second->live = false;
  found->second->freed_on = lane;
  found->second->freed_after = freed_after;
  found->second->known_reusable = {};
  list(found->second);
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

std::int64_t LaneBlocks::occupied(Lane lane, const LaneClock& now) { return reserved_ - learn(lane, now).bytes(); }

}  // namespace fsdpbench
