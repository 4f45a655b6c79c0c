#pragma once

#include <cstdint>
#include <functional>

#include "accept/blame_devices.h"
#include "accept/collectives/rank_meeting.h"
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

/// Bytes a second, read and written by the processors, of copies of `bytes` of a host's memory to other memory of it, on
/// the ranks' host threads. Takes twice as much.
accept::DeviceRounds measure_host_copies(std::int64_t bytes, int rounds, backend::RankContext& context,
                                         RankMeeting& meeting, const BeginRounds& begin, const GoesOn& goes_on);

/// Bytes a second between page-locked memory of the host and the device, one way; takes `bytes` of both.
enum class HostCopy : std::uint8_t { to_device, from_device };
accept::DeviceRounds measure_device_copies(HostCopy way, std::int64_t bytes, int rounds, backend::RankContext& context,
                                           RankMeeting& meeting, const BeginRounds& begin, const GoesOn& goes_on);

/// Microseconds from the host's launch of a kernel that has next to nothing to do until the host knows that it is done,
/// on an idle device: the median of a round's launches.
accept::DeviceRounds measure_launches(int rounds, backend::RankContext& context, RankMeeting& meeting,
                                      const BeginRounds& begin, const GoesOn& goes_on);

}  // namespace fsdpbench::app
