#pragma once

#include <cstdint>

namespace fsdpbench {

/// What the device itself did for an op: one kernel, copy or fill, as a profiler recorded it. Times are
/// base/clock.h nanoseconds.
struct Activity {
  enum class Kind : std::uint8_t { kernel, copy, fill };

  Kind kind = Kind::kernel;
  std::int32_t step = -1;         ///< -1: belongs to no op
  std::int32_t op = -1;           ///< index into that step's schedule
  std::int32_t name = 0;          ///< index into the list of names that comes with it
  std::int32_t stream = 0;        ///< the device's number of the stream
  std::uint32_t correlation = 0;  ///< joins the host's call and the device's work
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t launch_begin_ns = 0;  ///< the host's call; 0: not recorded
  std::int64_t launch_end_ns = 0;
  std::int32_t launch_name = -1;     ///< index into the names ("cudaLaunchKernelExC"); -1: not recorded
  std::uint32_t launch_thread = 0;   ///< the system's number of the calling thread
  std::int64_t bytes = 0;            ///< copies and fills
};

}  // namespace fsdpbench
