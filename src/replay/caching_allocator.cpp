#include "replay/caching_allocator.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "base/bytes.h"

namespace fsdpbench::replay {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kLeastBlock = 512;
constexpr std::int64_t kMostSmall = kMiB;
constexpr std::int64_t kSmallSegment = 2 * kMiB;
constexpr std::int64_t kLargeSegment = 20 * kMiB;
constexpr std::int64_t kLeastOwnSegment = 10 * kMiB;
constexpr std::int64_t kSegmentGranule = 2 * kMiB;

std::int64_t segment_size(std::int64_t size) {
  if (size <= kMostSmall) return kSmallSegment;
  if (size < kLeastOwnSegment) return kLargeSegment;
  return round_up(size, kSegmentGranule);
}

bool is_worth_splitting(std::int64_t rest, bool small) { return small ? rest >= kLeastBlock : rest > kMostSmall; }

}  // namespace

CachingAllocator::BlockId CachingAllocator::allocate(std::int64_t bytes, Lane stream, double now_ns) {
  if (bytes == 0) return kNone;  // PyTorch does not ask its allocator for an empty tensor, so no event is asked either
  take_back(now_ns);
  const std::int64_t size = bytes < kLeastBlock ? kLeastBlock : round_up(bytes, kLeastBlock);
  const bool small = size <= kMostSmall;
  int block = find_free(size, small, stream);
  if (block == kNone) block = new_segment(size, small, stream);
  if (is_worth_splitting(at(block).bytes - size, small)) split(block, size);
  at(block).in_use = true;
  statistics_.allocated = checked_sum(statistics_.allocated, at(block).bytes);
  statistics_.peak_allocated = std::max(statistics_.peak_allocated, statistics_.allocated);
  return block;
}

void CachingAllocator::free(BlockId block) {
  if (block == kNone) return;
  statistics_.allocated -= at(block).bytes;
  make_free(block);
}

void CachingAllocator::free_after(BlockId block, double passed_ns) {
  if (block == kNone) return;
  statistics_.allocated -= at(block).bytes;
  pending_.emplace(passed_ns, block);
}

void CachingAllocator::list(int block) {
  const Block& b = at(block);
  free_blocks(b.small).emplace(b.stream, b.bytes, b.address, block);
}

void CachingAllocator::unlist(int block) {
  const Block& b = at(block);
  free_blocks(b.small).erase({b.stream, b.bytes, b.address, block});
}

int CachingAllocator::new_block(const Block& block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<int>(blocks_.size()) - 1;
  }
  const int number = unused_.back();
  unused_.pop_back();
  at(number) = block;
  return number;
}

int CachingAllocator::find_free(std::int64_t size, bool small, Lane stream) {
  const Free& blocks = free_blocks(small);
  const auto found = blocks.lower_bound({stream, size, std::numeric_limits<std::int64_t>::min(), 0});
  if (found == blocks.end() || std::get<0>(*found) != stream) return kNone;
  const int block = std::get<3>(*found);
  unlist(block);
  return block;
}

int CachingAllocator::new_segment(std::int64_t size, bool small, Lane stream) {
  const std::int64_t bytes = segment_size(size);
  const auto is_room = [&] { return capacity_ == 0 || statistics_.reserved + bytes <= capacity_; };
  if (!is_room()) {
    return_segments();
    ++statistics_.retries;
    if (!is_room()) ++statistics_.failures;
  }
  statistics_.reserved = checked_sum(statistics_.reserved, bytes);
  statistics_.peak_reserved = std::max(statistics_.peak_reserved, statistics_.reserved);
  const std::int64_t address = next_address_;
  next_address_ = checked_sum(next_address_, bytes);
  return new_block({.stream = stream, .small = small, .address = address, .bytes = bytes});
}

void CachingAllocator::split(int block, std::int64_t size) {
  const Block whole = at(block);
  const int rest = new_block({.stream = whole.stream,
                              .small = whole.small,
                              .address = whole.address + size,
                              .bytes = whole.bytes - size,
                              .previous = block,
                              .next = whole.next});
  if (whole.next != kNone) at(whole.next).previous = rest;
  at(block).next = rest;
  at(block).bytes = size;
  list(rest);
}

/// `neighbour` becomes a part of `block`, if it is free.
void CachingAllocator::merge(int block, int neighbour) {
  if (neighbour == kNone || at(neighbour).in_use) return;
  unlist(neighbour);
  Block& b = at(block);
  const Block& n = at(neighbour);
  b.bytes += n.bytes;
  if (b.previous == neighbour) {
    b.address = n.address;
    b.previous = n.previous;
    if (b.previous != kNone) at(b.previous).next = block;
  } else {
    b.next = n.next;
    if (b.next != kNone) at(b.next).previous = block;
  }
  unused_.push_back(neighbour);
}

void CachingAllocator::make_free(int block) {
  merge(block, at(block).previous);
  merge(block, at(block).next);
  at(block).in_use = false;
  list(block);
}

/// Asks the events.
void CachingAllocator::take_back(double now_ns) {
  while (!pending_.empty() && pending_.top().first <= now_ns) {
    const int block = pending_.top().second;
    pending_.pop();
    make_free(block);
  }
}

/// Waits for all events; then what is wholly free goes back to the driver.
void CachingAllocator::return_segments() {
  take_back(std::numeric_limits<double>::infinity());
  for (Free& blocks : free_) {
    std::erase_if(blocks, [&](const auto& entry) {
      const int block = std::get<3>(entry);
      if (at(block).is_split()) return false;
      statistics_.reserved -= at(block).bytes;
      unused_.push_back(block);
      return true;
    });
  }
}

}  // namespace fsdpbench::replay
