#pragma once

#include <cstdint>

namespace fsdpbench {

/// The finalizer of MurmurHash3: a bijection of 64 bits without visible structure. A random number for whoever knows
/// what it is for, and the same one whenever it is asked.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

/// The output function of SplitMix64 (Steele, Lea, Flood): a bijection whose output looks random for counters.
constexpr std::uint64_t split_mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Distance from 1/2 up to which normal_quantile() uses its middle part.
inline constexpr double kCentralQuantiles = 0.425;
/// normal_quantile(1/2 + q) for q from -kCentralQuantiles to kCentralQuantiles: without branches and calls, so that
/// compilers make vectors of many.
constexpr double central_normal_quantile(double q) {
  const double r = 0.180625 - q * q;
  return q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
         (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0);
}
/// Inverse of the standard normal distribution to about seven digits, 0 < p < 1 (algorithm AS 241, PPND7; Wichura).
double normal_quantile(double p);

}  // namespace fsdpbench
