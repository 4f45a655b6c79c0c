#pragma once

#include <cmath>
#include <cstdint>
#include <ctime>

namespace fsdpbench {

/// Nanoseconds of CLOCK_MONOTONIC: one time line for all threads of this machine. About 20 ns a call.
inline std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

/// The longest time that a computed one can be, in nanoseconds: 73 years. Three of them add up without overflow.
inline constexpr std::int64_t kLongest_ns = std::int64_t{1} << 61;

/// A computed time as whole nanoseconds, the nearest ones; longer ones than kLongest_ns and NaN are as long as that,
/// and negative ones are 0.
inline std::int64_t whole_ns(double nanoseconds) {
  if (!(nanoseconds < static_cast<double>(kLongest_ns))) return kLongest_ns;
  return nanoseconds <= 0 ? 0 : std::llround(nanoseconds);
}

}  // namespace fsdpbench
