#pragma once

#include <functional>
#include <span>

#include "backend/cpu/collective_rules.h"

namespace fsdpbench::backend::cpu {

/// Rank `rank`'s part in moving the bytes of a collective among ranks that see each other's memory: every byte is
/// copied once, and sums are taken in rank order by who needs them. `calls` by rank, the same everywhere but for where
/// each process sees the buffers. All have called `meet` before, and must again before a buffer is the caller's own; it
/// returns when all members have called it.
void move_directly(int rank, std::span<const CollectiveCall> calls, const std::function<void()>& meet);

}  // namespace fsdpbench::backend::cpu
