#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/lane_order.h"

namespace fsdpbench {

/// Blocks of an address range that starts at 0 and grows as needed: where LanePool places things.
/// A freed block remembers what must be over before it may be reused. Not thread-safe.
class LaneBlocks {
 public:
  /// Offset of a block of `size` bytes (> 0) for `lane`, which has seen `now`, and never asks with an earlier clock
  /// than before. Throws ResourceError if the range would be longer than 8 EiB.
  std::int64_t allocate(std::int64_t size, Lane lane, const LaneClock& now);
  /// The block may be reused by whoever has seen `freed_after`. Throws std::logic_error if no live block starts there.
  void free(std::int64_t offset, Lane lane, const LaneClock& freed_after);

  /// Bytes that `lane`, which has seen `now`, may not touch: live blocks, and freed ones it is not ordered after; the
  /// same holds for `now`.
  std::int64_t occupied(Lane lane, const LaneClock& now);
  /// Sizes and states of all blocks, by offset. Once everything issued so far is over, ranges with equal layouts place
  /// whatever comes next alike.
  std::vector<std::int64_t> layout() const;
  std::int64_t reserved() const { return reserved_; }
  std::int64_t reuses() const { return reuses_; }

 private:
  struct Block {
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
    bool live = false;
    Lane freed_on = Lane::compute;
    LaneClock freed_after{};
    std::array<bool, kLaneCount> known_reusable{};  ///< free, and by which lanes learn() has found it reusable
  };
  using Blocks = std::list<Block>;  // by offset, without gaps, up to reserved_
  /// Neighbouring reusable blocks.
  struct Run {
    Blocks::iterator first;
    std::int64_t bytes = 0;
  };

  /// What one lane may reuse. It may do so until somebody takes it, whatever else happens, so little is looked at
  /// twice: a large model has tens of thousands of blocks.
  class Reusable {
   public:
    struct Extent {
      std::int64_t offset = 0;
      std::int64_t bytes = 0;
    };
    void add(const Block& block);
    void remove(const Block& block);  ///< as it was added
    /// Offset of a block of just this size, the first that `lane` has freed, else the first.
    std::optional<std::int64_t> block_of_size(std::int64_t size, Lane lane) const;
    /// The smallest run of neighbouring blocks of at least `size` bytes, the first of several.
    std::optional<Extent> smallest_run(std::int64_t size) const;
    std::int64_t bytes() const { return bytes_; }

   private:
    void insert(const Extent& extent);
    void erase(std::map<std::int64_t, std::int64_t>::iterator run);

    std::map<std::pair<std::int64_t, Lane>, std::set<std::int64_t>> blocks_;  // offsets by size and who freed them
    std::map<std::int64_t, std::int64_t> runs_;                               // bytes by offset; no two touch
    std::set<std::pair<std::int64_t, std::int64_t>> by_size_;                 // bytes, offset
    std::int64_t bytes_ = 0;
  };

  /// Adds to what `lane` may reuse the free blocks that it has been ordered after since it last asked.
  Reusable& learn(Lane lane, const LaneClock& now);

  static bool reusable(const Block& block, const LaneClock& now);
  /// A block of just this size, the lane's own first (as with a pool a lane: what other lanes freed stays for them),
  /// else the smallest run that is large enough; no bytes if there is none.
  Run best_run(std::int64_t size, Lane lane, const LaneClock& now);
  Run free_tail(const LaneClock& now);
  /// Keeps the lists of free blocks; an entry is made and taken back with the same offset, size and lane.
  void list(Blocks::iterator block);
  void unlist(Blocks::iterator block);

  Blocks blocks_;
  std::map<std::int64_t, Blocks::iterator> live_;
  // Free blocks, by offset.
  std::map<std::int64_t, Blocks::iterator> free_;
  /// Free blocks of which a lane does not know that it may reuse them.
  struct Others {
    std::map<std::int64_t, Blocks::iterator> blocks;  ///< by offset
    std::optional<LaneClock> looked_at;               ///< the lane's clock when none of these was reusable
  };
  std::array<Reusable, kLaneCount> reusable_;
  std::array<Others, kLaneCount> others_;
  std::int64_t reserved_ = 0;
  std::int64_t reuses_ = 0;
};

}  // namespace fsdpbench
