#pragma once

#include <cstdint>

#include "clock/op_times.h"
#include "schedule/training.h"

namespace fsdpbench::tune {

/// What no order of the same ops can do with less.
struct Bound {
  double step_ns = 0;
  std::int64_t live_bytes = 0;
};

/// Bounds of the steady schedule, whatever is prefetched, limited or buffered in it: policies that differ only in these
/// issue the same ops in another order.
///
/// [Note: the bound]
/// Time is at least what each lane has to do, what each fabric has to carry, and the longest chain of ops that read
/// what another wrote, where forwards, backwards and updates follow one another as they do in every order: the first
/// gather, all computation, and the last reduction are such a chain. Memory is at least what lives from forward to
/// backward whatever the policy (masters, moments, activations) together with what the op at hand itself touches.
/// `least`: what each op takes at least (Machine::least_costs).
Bound lower_bound(const schedule::Training& training, const clock::StepCosts& least);

/// The most bytes that are live at a time in the order of issue, in blocks of the pool: no less than any allocator
/// needs for this schedule, in a fraction of the time of schedule/memory_walk.h.
std::int64_t live_in_order(const schedule::Schedule& step);

}  // namespace fsdpbench::tune
