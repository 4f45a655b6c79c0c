#pragma once

#include <cstdint>
#include <functional>

#include "accept/blame_devices.h"
#include "app/collectives/rank_meeting.h"
#include "backend/backend.h"

namespace fsdpbench::app {

/// What each rank computes or moves a second while all others do the same, in `rounds` rounds that begin together. All
/// ranks of the world call both; what they return means something on rank 0 only. `begin` is called by all ranks after
/// the first op with about how many seconds a round takes and how many there are to be, `goes_on` after each round: if
/// either says no, as it must to all of them, no other round is measured.
using BeginRounds = std::function<bool(double round_s, int rounds)>;
using GoesOn = std::function<bool()>;

/// FLOP/s of fp32 products of two square matrices of `rows` rows. Takes 3 such matrices of device memory.
accept::DeviceRounds measure_products(int rows, int rounds, backend::RankContext& context, RankMeeting& meeting,
                                      const BeginRounds& begin, const GoesOn& goes_on);

/// Bytes a second, read and written, of copies of `bytes` of its memory. Takes twice as much. Of a device that does not
/// compute nothing is measured.
accept::DeviceRounds measure_memory(std::int64_t bytes, int rounds, backend::RankContext& context, RankMeeting& meeting,
                                    const BeginRounds& begin, const GoesOn& goes_on);

}  // namespace fsdpbench::app
