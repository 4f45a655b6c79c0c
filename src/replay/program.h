#pragma once

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace fsdpbench::replay {

/// One op of a schedule, reduced to what moves time.
struct Instruction {
  enum class Kind : std::uint8_t {
    nothing,     ///< moves no time: no work, and all that it waits for is over anyway
    run,         ///< on a lane
    collective,  ///< on a lane, together with its group
    host_wait,
    host_sync,
  };
  Kind kind = Kind::nothing;
  Lane lane = Lane::compute;
  schedule::Group group = schedule::Group::none;  ///< of a collective
  bool has_work = false;
  int first_wait = 0;  ///< into Program::waits, in the order of the schedule
  int wait_count = 0;
  int record = -1;  ///< slot that gets the time of the end; -1: nobody waits for it
};

/// The end of op `op`, kept in `slot`.
struct Awaited {
  int slot = -1;
  int op = -1;
};

/// A schedule made ready to be walked.
///
/// [Note: which waits count]
/// A step begins when the host has seen all lanes idle, so an event of an earlier step is over before any op of this
/// one. Within a step a wait is left out if what the lane has waited for before, or what the host had waited for when
/// it issued the op, implies it (base/lane_order.h): the op begins no earlier without it. What remains is kept in
/// slots: an event has one from its recording to its last wait, so that a step of thousands of events needs a few dozen
/// times a rank.
struct Program {
  std::vector<Instruction> instructions;  ///< as many as the schedule has ops, in its order
  std::vector<Awaited> waits;
  int slots = 0;
};

/// `event_count`: ids of events are below it.
Program compile(const schedule::Schedule& schedule, int event_count);

}  // namespace fsdpbench::replay
