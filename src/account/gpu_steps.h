#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hardware/gpu_health.h"
#include "trace/record.h"

namespace fsdpbench::account {

/// State of a GPU in one measured step, by the samples taken in it; absent is what none of them tells.
struct GpuStep {
  int samples = 0;
  std::optional<std::int32_t> sm_mhz;         ///< median
  std::optional<std::int32_t> power_mw;       ///< median
  std::optional<std::int32_t> temperature_c;  ///< highest
  std::optional<std::int32_t> pcie_width;     ///< lowest, as the next
  std::optional<std::int32_t> pcie_generation;
  ClockLimits limits = 0;  ///< of all samples together
};
/// By step of `steps`, whose times are of the same clock as the samples'.
std::vector<GpuStep> gpu_steps(const GpuHealth& health, const std::vector<trace::StepWindow>& steps);

/// "hardware thermal slowdown, power brake", those of `limits` that hold clocks down in a training.
std::string limits_text(ClockLimits limits);

/// A GPU that did not run as fast as it could in some measured steps.
struct Throttling {
  int rank = 0;
  ClockLimits why = 0;
  std::vector<std::int32_t> steps;           ///< as traces number them
  int seen = 0;                              ///< steps of which there is a sample
  std::optional<std::int32_t> sm_mhz;        ///< median of those steps
  std::optional<std::int32_t> other_sm_mhz;  ///< of the other ones seen
  std::optional<std::int32_t> most_sm_mhz;   ///< that the GPU can do
  std::optional<double> longer_pct;          ///< by which the median of those steps is above the others'; absent if
                                             ///< there are fewer than kFewestOfEither of either
};
inline constexpr int kFewestOfEither = 3;

/// Who throttled (kThrottles) in any step; and whose power cap or partner clocks (sync boost) made steps longer than
/// the others by more than kNoisyPct (caveats.h). `health` by rank, `traces` as Measurement has them.
std::vector<Throttling> find_throttling(const std::vector<std::optional<GpuHealth>>& health,
                                        const std::vector<trace::RankTrace>& traces);

/// A sentence without its full stop, "the GPU of rank 2 throttled …".
std::string to_string(const Throttling& throttling);

/// Complaints about a GPU, to read before its first number, whoever's it is: sentences without their full stops, the
/// gravest first; none if all is well. It is lost; it reported errors (Xids, memory, NVLink); its PCIe link is narrower
/// than it could be.
std::vector<std::string> gpu_complaints(const GpuHealth& health);

/// The complaints of all GPUs, by rank, each with its rank; then who throttled.
std::vector<std::string> gpu_caveats(const std::vector<std::optional<GpuHealth>>& health,
                                     const std::vector<Throttling>& throttled);

/// A sentence about ops that began before the host had issued them, or none. `early_ns`: by
/// rank, by how much at most (engine: DeviceRecords::early_ns).
std::vector<std::string> clock_caveats(const std::vector<std::int64_t>& early_ns);

}  // namespace fsdpbench::account
