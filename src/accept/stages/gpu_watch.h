#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accept/finding.h"
#include "accept/verdict.h"
#include "hardware/gpu_health.h"
#include "record/json_fields.h"

namespace fsdpbench::app {

/// State of one rank's GPU during an acceptance, in the few numbers that are judged.
struct WatchedGpu {
  std::string unknown_because;          ///< a sentence; then there is nothing else; empty: it was watched
  ClockLimits limits = 0;               ///< that held its clocks down at any time
  double throttled = 0;                 ///< the part of all samples in which it throttled (kThrottles)
  std::optional<std::int32_t> sm_mhz;   ///< median of those samples, or of all if there are none
  std::vector<std::string> complaints;  ///< account::gpu_complaints()
};

/// Absent of what is no GPU.
std::optional<WatchedGpu> watched_gpu(const std::optional<GpuHealth>& health);
/// Adds what was seen of the same ranks' GPUs in another stage: the worse part of time throttled, with its clock,
/// all that held clocks down, every complaint once. A rank that was not watched before has what was seen now.
void add_watched(std::vector<std::optional<WatchedGpu>>& so_far, const std::vector<std::optional<GpuHealth>>& now);
/// Between ranks.
template <>
Fields<WatchedGpu> declared();

/// Settings equal on all GPUs: clocks and power that they are allowed, PCIe, ECC; those not told are left out.
std::vector<std::pair<std::string, std::string>> gpu_settings(const GpuHealth& health);

/// Judges all ranks. One that reported an error, has a narrow link or throttled for more than kShortly of the time
/// fails, by name; one that throttled for less makes it inconclusive; none of whom anything is known is unrated.
/// Nothing without GPUs.
std::vector<accept::Judgement> judge_gpus(const std::vector<std::optional<WatchedGpu>>& gpus,
                                          const std::vector<std::string>& hosts);
inline constexpr double kShortly = 0.05;

/// Adds to each finding about a GPU that it throttled, if it did: why it is slow.
void name_throttling(std::vector<accept::Finding>& findings, const std::vector<std::optional<WatchedGpu>>& gpus);

}  // namespace fsdpbench::app
