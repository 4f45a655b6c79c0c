#pragma once

#include <array>

#include "schedule/op.h"

namespace fsdpbench::schedule {

/// The order of a communicator's collectives, whatever lanes they are on: each begins after the one issued before it.
/// NCCL keeps it, and so a gather that follows a reduction says that the reduction's input may be reused: with slow
/// reductions FSDP1 holds three units' gradients (the one reduced, the one in line, the one computed), not all of them.
class CommunicatorOrder {
 public:
  /// The event that a collective's lane waits for before it; kNoEvent: none. In issue order, every op once.
  EventId before(const Op& op) {
    if (!op.is_collective()) return kNoEvent;
    const Last before = last_[static_cast<std::size_t>(op.group())];
    last_[static_cast<std::size_t>(op.group())] = {op.record, op.lane};
    return before.lane == op.lane ? kNoEvent : before.event;
  }

 private:
  struct Last {
    EventId event = kNoEvent;
    Lane lane = Lane::compute;
  };
  std::array<Last, plan::kGroupCount> last_{};
};

}  // namespace fsdpbench::schedule
