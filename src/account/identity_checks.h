#pragma once

#include <span>

#include "base/lane_pool.h"
#include "config/run_config.h"
#include "plan/communication.h"

namespace fsdpbench::account {

/// Bytes counted on the wire, by rank, equal the closed formula; both of one step. A ring of an uneven message rounds
/// each all-reduce down, so of those up to 4 bytes a unit and microbatch may be missing. Where the data say which rows
/// go to the experts of which rank, all-to-alls have at most plan::most_expert_bytes(). Throws a check_failed Error.
void check_wire_bytes(const plan::CommunicationVolume& expected, std::span<const plan::CommunicationVolume> counted,
                      const plan::Plan& plan, const config::RunConfig& config);

/// No rank's pool ever held more than the schedule's own walk says. (A run shorter than the walk may not have reached
/// the peak.) Throws a check_failed Error.
void check_memory(const PoolStatistics& expected, std::span<const PoolStatistics> measured);

}  // namespace fsdpbench::account
