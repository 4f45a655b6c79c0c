#pragma once

#include <string>
#include <vector>

#include "schedule/op.h"

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
/// Returns the first faults found, at most `limit`; none if the schedules are right.
std::vector<Fault> check_schedules(const Schedules& schedules, std::size_t limit = 8);

}  // namespace fsdpbench::schedule
