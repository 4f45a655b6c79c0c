#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/lane.h"

namespace fsdpbench {

/// Progress known of each lane: for lane L, every op numbered <= seen[L] is complete.
/// A vector clock; the order of events on a device as known at issue time, whatever the true speed.
struct LaneClock {
  std::array<std::int64_t, kLaneCount> seen{};

  /// Comes after what `other` comes after, too.
  void merge(const LaneClock& other) {
    for (std::size_t i = 0; i < kLaneCount; ++i) {
      if (other.seen[i] > seen[i]) seen[i] = other.seen[i];
    }
  }
  /// True if op number `position` of `lane` is known complete.
  bool covers(Lane lane, std::int64_t position) const { return seen[index_of(lane)] >= position; }
  bool operator==(const LaneClock&) const = default;
};

/// Follows issue order on one rank: who waited for what. Used by the memory pools (which block may be reused
/// without a wait) and by the schedule's own walk (what a schedule will need), so that both agree to the byte.
/// Not thread-safe: one issuing host thread a rank.
class LaneOrder {
 public:
  /// Notes that an op is issued on `lane`; returns its number on that lane, counted from 1.
  std::int64_t issue(Lane lane) {
    LaneClock& clock = lanes_[index_of(lane)];
    clock.merge(host_);
    return clock.seen[index_of(lane)] = ++issued_[index_of(lane)];
  }
  /// The clock that an event recorded on `lane` now carries.
  LaneClock record(Lane lane) const { return now(lane); }
  /// Later ops of `lane` come after everything in `event`.
  void wait(Lane lane, const LaneClock& event) { lanes_[index_of(lane)].merge(event); }
  /// The host has seen `event` complete: all ops issued from now on, on any lane, come after it.
  void host_wait(const LaneClock& event) { host_.merge(event); }
  /// Clock that the next op of `lane` may rely on.
  LaneClock now(Lane lane) const {
    LaneClock clock = lanes_[index_of(lane)];
    clock.merge(host_);
    return clock;
  }
  /// Number of the last op issued on `lane`; 0 if none.
  std::int64_t last(Lane lane) const { return issued_[index_of(lane)]; }

 private:
  std::array<LaneClock, kLaneCount> lanes_{};
  std::array<std::int64_t, kLaneCount> issued_{};
  LaneClock host_{};
};

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

  /// Blocks a lane may reuse. It may do so until somebody takes it, whatever else happens, so little is looked at
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
