#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdpbench {

/// Meaning in NVIDIA's list of Xids (errors that a GPU's driver reports) of those that a training meets; empty: it
/// is not among them.
std::string_view xid_meaning(std::uint64_t xid);

/// "Xid 79 (the GPU has fallen off the bus) 2 times"
std::string xid_text(std::uint64_t xid, std::int64_t times = 1);

/// Reasons for GPU clocks below the highest, as bits: NVML's clocks event (throttle) reasons.
enum class ClockLimit : std::uint64_t {
  idle = 0x1,
  application_clocks = 0x2,
  power_cap = 0x4,
  hardware_slowdown = 0x8,
  sync_boost = 0x10,
  software_thermal = 0x20,
  hardware_thermal = 0x40,
  power_brake = 0x80,
  display_clocks = 0x100,
};
using ClockLimits = std::uint64_t;
inline constexpr ClockLimits bit(ClockLimit limit) { return static_cast<ClockLimits>(limit); }
/// The GPU protects itself or its host: no healthy one does so. A power cap is not among them: most large GPUs meet
/// theirs whenever they multiply matrices.
inline constexpr ClockLimits kThrottles = bit(ClockLimit::hardware_slowdown) | bit(ClockLimit::software_thermal) |
                                          bit(ClockLimit::hardware_thermal) | bit(ClockLimit::power_brake);

/// A GPU at one moment (base/clock.h). What the driver did not tell is absent.
struct GpuSample {
  std::int64_t time_ns = 0;
  std::int64_t until_ns = 0;  ///< a sample that stands for several: the last of them
  std::optional<std::int32_t> sm_mhz;
  std::optional<std::int32_t> power_mw;
  std::optional<std::int32_t> temperature_c;
  std::optional<ClockLimits> limits;
  std::optional<std::int32_t> pcie_width;
  std::optional<std::int32_t> pcie_generation;
};

/// An error that the driver reported: an Xid, as its log has it.
struct GpuXid {
  std::int64_t time_ns = 0;
  std::uint64_t code = 0;
};

/// Errors that were counted.
struct GpuErrors {
  std::optional<std::uint64_t> ecc_corrected;
  std::optional<std::uint64_t> ecc_uncorrected;
  std::optional<std::uint64_t> nvlink_replays;  ///< as the next two, of all links together
  std::optional<std::uint64_t> nvlink_recoveries;
  std::optional<std::uint64_t> nvlink_crc;
};

/// Limits of a GPU and its settings.
struct GpuLimits {
  std::optional<std::int32_t> sm_mhz;
  std::optional<std::int32_t> power_mw;
  std::optional<std::int32_t> pcie_width;
  std::optional<std::int32_t> pcie_generation;
  std::optional<bool> ecc;
};

/// State of one GPU while it was watched.
struct GpuHealth {
  std::string unknown_because;  ///< nothing was asked, or nothing more from some moment on: a sentence; empty: all was
  GpuLimits limits;
  std::vector<GpuSample> samples;  ///< in order of time
  std::vector<GpuXid> xids;
  std::int64_t xids_left_out = 0;  ///< beyond those kept
  GpuErrors errors;                ///< by which the driver's counters grew meanwhile
};

}  // namespace fsdpbench
