#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "base/bytes.h"
#include "base/lane_blocks.h"
#include "base/memory_space.h"

namespace fsdpbench {

/// Bytes of a pool now and at their worst. "Occupied" counts a block from its allocation until the lane that
/// allocates next may reuse it: live blocks, and freed blocks whose free that lane has not been ordered after.
/// It therefore depends on the schedule alone, never on the speed of the run.
struct PoolStatistics {
  CategoryBytes live{};  ///< allocated and not freed, in issue order
  /// Worst case of each category, as a pool of its own would need it: the sum over categories may exceed the total,
  /// because peaks come at different times and categories share the memory.
  CategoryBytes peak_occupied{};
  std::int64_t live_total = 0;
  std::int64_t peak_occupied_total = 0;
  std::int64_t reserved = 0;  ///< size of the address range ever needed (its own peak: it never shrinks)
  std::int64_t allocations = 0;
  std::int64_t reuses = 0;  ///< allocations served from freed blocks
  bool operator==(const PoolStatistics&) const = default;
};

/// Lane-ordered memory as pure bookkeeping over an address range that starts at 0: a block freed on a lane may be
/// reused by that lane at once, by another lane only after an event or a host wait orders it. The CPU device adds
/// real memory, the schedule walk adds nothing. 512-byte granules.
/// Not thread-safe: one issuing host thread a rank.
class LanePool {
 public:
  static constexpr std::int64_t kGranule = 512;
  /// Bytes that a block of `bytes` takes.
  static constexpr std::int64_t rounded(std::int64_t bytes) {
    return bytes <= kGranule ? kGranule : round_up(bytes, kGranule);
  }

  /// Offset of `bytes` (rounded up to kGranule) for use by ops of `lane` issued from now on, and by ops of other
  /// lanes that are ordered after them. `order` is the rank's issue order. bytes >= 0. Throws
  /// ResourceError if the range would be longer than 8 EiB.
  std::int64_t allocate(std::int64_t bytes, MemoryCategory category, Lane lane, const LaneOrder& order);

  /// Frees the block at `offset` after the last op issued on `lane` so far, and after what the lane has waited for.
  /// Throws std::logic_error if no live block starts there.
  void free(std::int64_t offset, Lane lane, const LaneOrder& order);

  /// Rounded size of the live block at `offset`.
  std::int64_t size_of_block(std::int64_t offset) const;
  /// A live block's category, and its offset in a range that has the blocks of that category only.
  struct CategoryPlace {
    MemoryCategory category = MemoryCategory::activations;
    std::int64_t offset = 0;
  };
  CategoryPlace category_place(std::int64_t offset) const;
  /// Size of each of those ranges so far, which never shrinks.
  CategoryBytes reserved_by_category() const;

  const PoolStatistics& statistics() const { return statistics_; }
  /// Division of the pool into blocks. Two pools of equal layout, when everything issued so far is over, serve the same
  /// requests in the same way: a schedule that leaves the layout that it found will never need more.
  std::vector<std::int64_t> layout() const;
  /// Forgets peaks (not live bytes, not the reserved range): a new measurement begins.
  void reset_peaks();

 private:
  struct Live {
    std::int64_t size = 0;
    MemoryCategory category = MemoryCategory::activations;
    std::int64_t category_offset = 0;
  };
  const Live& live_at(std::int64_t offset) const;

  LaneBlocks blocks_;
  std::array<LaneBlocks, kMemoryCategoryCount> by_category_;  // what each would need alone
  std::map<std::int64_t, Live> live_;
  PoolStatistics statistics_;
};

}  // namespace fsdpbench
