#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <vector>

#include "base/lane_order.h"

namespace fsdpbench {

/// Blocks of an address range that starts at 0 and grows as needed: where LanePool places things.
/// A freed block remembers what must be over before it may be reused. Not thread-safe.
class LaneBlocks {
 public:
  /// Offset of a block of `size` bytes (> 0) for `lane`, which has seen `now`. Throws ResourceError if the range would
  /// be longer than 8 EiB.
  std::int64_t allocate(std::int64_t size, Lane lane, const LaneClock& now);
  /// The block may be reused by whoever has seen `freed_after`. Throws std::logic_error if no live block starts there.
  void free(std::int64_t offset, Lane lane, const LaneClock& freed_after);

  /// Bytes that a lane which has seen `now` may not touch: live blocks, and freed ones it is not ordered after.
  std::int64_t occupied(const LaneClock& now) const;
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
  };
  using Blocks = std::list<Block>;  // by offset, without gaps, up to reserved_
  /// Neighbouring reusable blocks.
  struct Run {
    Blocks::iterator first;
    std::int64_t bytes = 0;
  };

  static bool reusable(const Block& block, const LaneClock& now);
  /// A block of just this size, the lane's own first (as with a pool a lane: what other lanes freed stays for them),
  /// else the smallest run that is large enough; no bytes if there is none.
  Run best_run(std::int64_t size, Lane lane, const LaneClock& now);
  Run free_tail(const LaneClock& now);

  Blocks blocks_;
  std::map<std::int64_t, Blocks::iterator> live_;
  std::int64_t reserved_ = 0;
  std::int64_t reuses_ = 0;
};

}  // namespace fsdpbench
