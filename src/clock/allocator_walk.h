#pragma once

#include <cstdint>
#include <span>

#include "clock/caching_allocator.h"
#include "clock/op_times.h"
#include "schedule/training.h"
#include "trace/record.h"

namespace fsdpbench::clock {

/// What PyTorch's caching allocator would show of a rank that issues these schedules' allocations and frees at the
/// recorded times. A buffer belongs to the stream of the op that allocates it. Where an op of another lane frees it, as
/// FSDP1 does with `record_stream`, it may be reused once the lane has come past that op, if the host asks after that.
/// `records`: of whole consecutive steps, the first of which is step `first`. `capacity`, `expandable`: as
/// CachingAllocator's.
CachingAllocator::Statistics allocator_walk(const schedule::Schedules& schedules,
                                            std::span<const trace::Record> records, std::size_t first,
                                            std::int64_t capacity = 0, bool expandable = false);

/// The same of rank 0 of a training whose ops take `times`: its first steps and two of the steady state, with
/// simulate.expandable_segments or without.
CachingAllocator::Statistics allocator_forecast(const schedule::Training& training, const OpTimes& times,
                                                std::int64_t capacity = 0);

}  // namespace fsdpbench::clock
