#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "account/gpu_steps.h"
#include "hardware/gpu_health.h"

namespace fsdpbench::account {

/// What a reader must know of a GPU before its first number, whoever's it is: sentences without their full stops, the
/// gravest first; none if all is well. It is lost; it reported errors (Xids, memory, NVLink); its PCIe link is narrower
/// than it could be.
std::vector<std::string> gpu_complaints(const GpuHealth& health);

/// The complaints of all GPUs, by rank, each with its rank; then who throttled.
std::vector<std::string> gpu_caveats(const std::vector<std::optional<GpuHealth>>& health,
                                     const std::vector<Throttling>& throttled);

/// A sentence about ops that began before the host had issued them, or none. `early_ns`: by
/// rank, by how much at most (engine: Executor::early_ns).
std::vector<std::string> clock_caveats(const std::vector<std::int64_t>& early_ns);

}  // namespace fsdpbench::account
