#pragma once

#include <cstdint>

#include "schedule/schedule.h"

namespace fsdpbench::schedule {

/// What of a step is done, to see what each part takes alone.
enum class StepPart : std::uint8_t {
  whole,
  computation,    ///< all but the collectives
  communication,  ///< the collectives alone
};

/// `schedule` with only that part of its work. Of every other op its place remains, and its waits, event, allocations
/// and frees (OpKind::left_out): the same ops in the same places, with the same memory. It is for times: what such a
/// step computes means nothing.
Schedule only(const Schedule& schedule, StepPart part);

}  // namespace fsdpbench::schedule
