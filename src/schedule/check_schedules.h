#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace fsdpbench::schedule {

/// A place where a schedule is wrong whatever the speed of its lanes.
struct Fault {
  int step = 0;         ///< index into Schedules::steps (one past the last: the steady step again)
  int op = -1;          ///< index into its ops; -1: the end of the step
  std::string message;  ///< a sentence with the ops' and buffers' names
};

/// Proves by happens-before (lane order, events, host waits; a collective is complete on all ranks when it ends)
/// that every read comes after its write, every write after earlier reads, every access after the allocation and
/// before the free, that nothing is freed twice or left over, and that every wait has something to wait for.
/// Runs through all steps and twice through the steady one, without relying on the host's wait between steps.
/// Returns the first faults found, at most `limit`.
std::vector<Fault> check_schedules(const Schedules& schedules, std::size_t limit = 8);

/// Shows that the ranks' collectives match: on every communicator the same kinds, counts and dtypes in the same
/// order. With that, and every wait referring to an earlier op, no set of ranks can wait for each other in a circle.
/// One schedule a rank; nothing if all is well.
std::optional<Fault> check_collectives(const std::vector<const Schedule*>& ranks);

/// One wait of the steady step that could be taken out without a race, and why.
struct RedundantWait {
  int op = 0;
  int wait = 0;          ///< index into Op::waits
  bool implied = false;  ///< other waits order the same ops; false: a `limit` wait, which only bounds memory
};
std::vector<RedundantWait> redundant_waits(const Schedules& schedules);

}  // namespace fsdpbench::schedule
