#pragma once

#include <string>

#include "backend/communicator.h"
#include "backend/device.h"
#include "base/lane_pool.h"
#include "trace/record.h"

namespace fsdpbench::engine {

/// What one rank brings home from a run.
struct RankOutcome {
  trace::RankTrace trace;           ///< measured steps only
  PoolStatistics memory;
  backend::WireBytes wire_bytes{};  ///< of the measured steps
  backend::Facts device;            ///< Device::facts()
  std::string host;                 ///< name of the machine
};

}  // namespace fsdpbench::engine
