#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "launch/addresses.h"
#include "launch/control_channel.h"

namespace fsdpbench::launch {

/// Offset of one rank's base/clock.h from rank 0's, at one time.
struct ClockOffset {
  std::int64_t offset_ns = 0;    ///< to be added to the rank's times to get rank 0's
  std::int64_t residual_ns = 0;  ///< the offset is wrong by this at most: half of the quickest round trip
  std::int64_t at_ns = 0;        ///< when it was measured, on rank 0's clock
  bool same_clock = false;       ///< one clock serves both ranks: offset and residual are exactly 0
};

/// One question of rank 0 for another rank's time.
struct ClockRound {
  std::int64_t asked_ns = 0;     ///< on rank 0's clock
  std::int64_t told_ns = 0;      ///< on the other's
  std::int64_t answered_ns = 0;  ///< on rank 0's
};
/// By the quickest round: the other's time was read between question and answer, so in their middle, give or take half.
/// `rounds` must not be empty.
ClockOffset estimate_offset(std::span<const ClockRound> rounds);

/// Rank 0 gets every rank's offset, its own included; the others get an empty list. Ranks on hosts of their own are
/// asked `rounds` times, one rank after another; about 0.1 ms a round where the network is quick. Ranks whose
/// `identity` is rank 0's share its clock. Collective.
std::vector<ClockOffset> measure_clock_offsets(ControlChannel& channel, int rounds = 100,
                                               const std::string& identity = clock_identity());

/// Conversion of one rank's times to rank 0's over a whole run: clocks of two hosts differ in speed, too.
class ClockCorrection {
 public:
  /// One offset for all times.
  explicit ClockCorrection(const ClockOffset& only) : ClockCorrection(only, only) {}
  /// From two measurements, before and after the run. Between them the offset changes evenly; outside of them it stays.
  ClockCorrection(const ClockOffset& before, const ClockOffset& after);

  /// A time of the rank's clock as rank 0's clock tells it.
  std::int64_t to_root(std::int64_t rank_ns) const;
  /// By which the rank's clock is slower than rank 0's: 1e-6 is 1 µs a second. 0 if one clock serves both.
  double drift() const { return drift_; }
  /// to_root() is wrong by this at most between the two measurements, if the drift was even.
  std::int64_t residual_ns() const { return residual_ns_; }
  bool same_clock() const { return same_clock_; }

 private:
  std::int64_t begin_ns_ = 0;   ///< of the run, on the rank's clock
  std::int64_t end_ns_ = 0;     ///< on the rank's clock
  std::int64_t offset_ns_ = 0;  ///< at begin_ns_
  double drift_ = 0;
  std::int64_t residual_ns_ = 0;
  bool same_clock_ = false;
};

/// One a run: the first failure of any rank, lane or process, and the means to wake everybody who waits. Thread-safe.
class Abort {
 public:
  /// Somebody who may be blocked and must look at is_set() again.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// Called once, by the thread that sets the abort, under a lock: it must return at once.
    virtual void aborted() = 0;
  };

  /// Keeps `failure` if it is the first one and wakes every listener. A launch::Stopped is no failure of its own
  /// and changes nothing.
  void set(const std::exception_ptr& failure) noexcept;
  /// Whether somebody has failed.
  bool is_set() const { return set_.load(); }
  /// Throws launch::Stopped with the first failure's message if there is one.
  void throw_if_set() const {
    if (is_set()) throw_stopped();
  }
  /// The first failure; null if none.
  std::exception_ptr first() const;

  /// From now on `listener` hears of the first failure; it must be removed before it goes.
  void add(Listener& listener);
  void remove(Listener& listener);

 private:
  [[noreturn]] void throw_stopped() const;

  std::atomic<bool> set_{false};
  mutable std::mutex mutex_;
  std::exception_ptr first_;
  std::string message_;
  std::set<Listener*> listeners_;
};

}  // namespace fsdpbench::launch
