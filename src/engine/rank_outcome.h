#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/communicator.h"
#include "backend/device.h"
#include "base/lane_pool.h"
#include "hardware/gpu_health.h"
#include "launch/clock_offset.h"
#include "trace/record.h"

namespace fsdpbench::engine {

/// Results of one rank of a run.
struct RankOutcome {
  trace::RankTrace trace;  ///< measured steps only
  PoolStatistics memory;
  PoolStatistics host_memory;
  backend::WireBytes wire_bytes{};  ///< of the measured steps
  backend::Facts device;            ///< Device::facts()
  std::optional<GpuHealth> gpu;     ///< Device::health()
  std::int64_t early_ns = 0;        ///< Executor::early_ns()
  std::string host;                 ///< name of the machine
};

/// `outcome` as bytes, for a process of the same program on a machine of the same kind.
std::string to_bytes(const RankOutcome& outcome);

/// Reads what to_bytes() wrote. Throws BackendError if the bytes are of another layout, too few or too many.
RankOutcome outcome_from_bytes(std::string_view bytes);

/// Moves all times of a rank's trace onto rank 0's clock. Times that are 0 mean "not known" and stay.
void move_to_root_clock(trace::RankTrace& trace, const launch::ClockCorrection& clock);
/// Moves the times of its GPU's samples.
void move_to_root_clock(GpuHealth& gpu, const launch::ClockCorrection& clock);

}  // namespace fsdpbench::engine
