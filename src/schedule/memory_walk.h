#pragma once

#include <cstdint>
#include <vector>

#include "base/lane_pool.h"
#include "schedule/op.h"

namespace fsdpbench::schedule {

/// Statistics of a device's pool (or of a rank's pinned host memory: `space`), to the byte, after `steps` >= 0
/// steps: the schedule's own allocations, frees, waits and the host's wait after each step, walked over
/// base/lane_pool.h. `peak_occupied` covers the steps, persistent buffers included. Once a steady step leaves the pool
/// as an earlier one did, the rest is counted, not walked. Throws ResourceError if that is more than 8 EiB.
PoolStatistics memory_walk(const Schedules& schedules, std::int64_t steps, MemorySpace space = MemorySpace::device);

/// Bytes of a device that each category would take in the same steps if it had an address range of its own. Throws as
/// memory_walk().
CategoryBytes category_walk(const Schedules& schedules, std::int64_t steps);

/// The op of the steady step at which most bytes of the device are live in issue order, and the buffers that are.
struct MemoryPeak {
  int op = -1;
  std::int64_t live_bytes = 0;
  std::vector<BufferId> live;  ///< of the steady step, persistent ones included, largest first
};
/// Found by walking `schedule` once, as if nothing were left over from the step before. Throws ResourceError
/// as memory_walk().
MemoryPeak memory_peak(const Schedule& schedule);

/// Whether `id` may come later: gradients of parameters, and of what goes on to the module before. Autograd makes
/// them when the loss's copies of the logits, or the first of a block's saved tensors, have been freed.
bool may_come_later(const Schedule& schedule, const Op& op, BufferId id);

}  // namespace fsdpbench::schedule
