#pragma once

#include <array>
#include <cstdint>

#include "base/lane.h"

namespace fsdpbench {

/// What is known to have happened on each lane: for lane L, every op numbered <= seen[L] is complete.
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
  /// What the next op of `lane` may rely on.
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

}  // namespace fsdpbench
