#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "schedule/step_builder.h"

namespace fsdpbench::schedule {

/// Decides what must be waited for before a gather may be issued: fsdp.all_gather_limit.
///
/// - fsdp1_queue: FSDP1's free-event queue. Before every unshard call, even one that gathers nothing, the host pops
///   the oldest event if the queue holds at least `count`. The queue lives on from step to step, which is why a
///   nominal limit L lets L + 1 units live in the steady state.
/// - strict, bytes: the host waits until the gathers in flight, the new one included, are within the limit. A
///   prefetch that would exceed it while nothing in flight has been released yet is refused; a gather that is
///   needed now goes ahead.
/// - fsdp2_event: no host wait. per_param: the next copy-in waits for the copy-out before last
///   (Gatherer does that where it frees the all-gather output). flat: the gather waits on the device for the free
///   before last.
/// - buffers: as strict, but the gather waits on the device for the free that makes room.
/// - fetched: before a gather is waited for, the host waits for the oldest of more than `count` gathers (with their
///   copies) that were waited for in this step. It bounds how far the host runs ahead, not memory (DeepSpeed).
/// - unlimited: nothing.
///
/// A gather is in flight from its issue until its unit is freed or, if it stays gathered, until its first use is
/// done. The root, which stays gathered through the step, does not count.
class AllGatherLimiter {
 public:
  /// `builder` must outlive it.
  explicit AllGatherLimiter(StepBuilder& builder) : builder_(builder) {}

  /// False if a prefetch of `bytes` must not be issued now. Emits no op. `beside`: bytes of gathers that are decided on
  /// and not issued yet.
  bool allows_prefetch(std::int64_t bytes, const std::vector<std::int64_t>& beside = {}) const;
  /// Emits what must come before the gather of `unit` (`gathers`: a collective really follows).
  void before_unshard(int unit, std::int64_t bytes, bool gathers);
  /// The gather of `unit` was issued.
  void gathered(int unit, std::int64_t bytes);
  /// The compute lane is about to wait for a gather, whose last op records `ready`.
  void before_wait(EventId ready, int unit);
  /// `event` marks that the unit's memory was freed (or that its first use is done, for a unit that stays).
  void released(int unit, EventId event, bool freed);
  /// Nothing is in flight; frees in the queue are a step older.
  void begin_step();

  /// A free that FSDP1's queue holds.
  struct Free {
    EventId event = kNoEvent;
    int age = 0;  ///< steps since
    bool operator==(const Free&) const = default;
  };
  /// The queue between two steps: all that one step leaves to the next.
  const std::deque<Free>& queue() const { return fsdp1_queue_; }

 private:
  struct Flight {
    int unit = 0;
    std::int64_t bytes = 0;
    EventId released = kNoEvent;
  };
  /// Whether `bytes` more are within the limit, beside those in `held` and in flight, or in flight and not released.
  bool fits(std::vector<std::int64_t> held, bool with_released, std::int64_t bytes) const;

  StepBuilder& builder_;
  std::deque<Flight> flight_;     // oldest first
  std::deque<Free> fsdp1_queue_;  // oldest first; survives the step
  std::deque<EventId> fetched_;   // gathers that were waited for, oldest first
};

}  // namespace fsdpbench::schedule
