#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/intervals.h"
#include "base/lane.h"
#include "base/memory_category.h"
#include "hardware/gpu_health.h"

namespace fsdpbench::trace {

/// A stretch in which a rank computed nothing, and why.
struct ExposedSpan {
  Interval time;
  std::string_view cause;   ///< one word
  std::int32_t op = -1;     ///< what was waited for, by its number in the schedule; -1: nothing
  int late_rank = -1;       ///< who came last; -1: nobody
  std::string_view advice;  ///< a sentence; may be empty
};

/// Live bytes from a moment on.
struct LiveBytes {
  std::int64_t time_ns = 0;
  CategoryBytes live{};
};

/// The least time in which a rank's ops can run as they depend on each other.
struct StepBound {
  std::int64_t ns = 0;
  Lane lane = Lane::compute;  ///< that has most of the chain of ops which takes so long
  std::int64_t lane_ns = 0;   ///< what it has of it
};

/// What is known about one rank's step beyond its records. Texts and samples must live as long as the writer.
struct StepExplanation {
  std::vector<ExposedSpan> exposed;  ///< disjoint, in order, exactly the step without its computation
  std::vector<LiveBytes> memory;     ///< in order of time, on the lanes' time; empty: the host's samples are shown
  std::int64_t kept_bytes = 0;       ///< of these, what lives on from step to step
  std::optional<StepBound> bound;
  std::span<const GpuSample>
      gpu;  ///< of the rank's GPU, in order of time: the last one before the step, and those in it
};

/// Explains a step: `rank` and `step` are places in the traces and in their steps, not numbers.
using ExplanationOf = std::function<StepExplanation(std::size_t rank, std::size_t step)>;

}  // namespace fsdpbench::trace
