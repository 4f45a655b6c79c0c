#include "model/initialize.h"

#include <algorithm>
#include <cmath>

namespace fsdpbench::model {
namespace {

/// The mixing step of SplitMix64 (Steele, Lea, Flood): a bijection whose output looks random for counters.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// Inverse of the standard normal distribution to about seven digits, 0 < p < 1 (algorithm AS 241, PPND7; Wichura).
double normal_quantile(double p) {
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
           (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0);
  }
  const double tail = std::sqrt(-std::log(q < 0 ? p : 1.0 - p));
  double x = 0;
  if (tail <= 5.0) {
    const double r = tail - 1.6;
    x = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) /
        ((0.12021132975 * r + 0.73700164250) * r + 1.0);
  } else {
    const double r = tail - 5.0;
    x = (((0.017337203997 * r + 0.42868294337) * r + 3.0812263860) * r + 6.6579051150) /
        ((0.012258202635 * r + 0.24197894225) * r + 1.0);
  }
  return q < 0 ? -x : x;
}

/// Uniform in (0, 1), never its ends.
double uniform(std::uint64_t bits) { return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52; }

}  // namespace

void initialize_parameter(const plan::ParameterShape& parameter, int parameter_index, std::uint64_t seed,
                          std::int64_t begin, std::int64_t end, float* target) {
  switch (parameter.initialization) {
    case plan::Initialization::ones: std::fill_n(target, end - begin, 1.0F); return;
    case plan::Initialization::zeros: std::fill_n(target, end - begin, 0.0F); return;
    case plan::Initialization::normal: break;
  }
  const std::uint64_t key = mix(mix(seed) ^ static_cast<std::uint64_t>(parameter_index));
  for (std::int64_t i = begin; i < end; ++i) {
    const std::uint64_t bits = mix(key ^ mix(static_cast<std::uint64_t>(i)));
    target[i - begin] = static_cast<float>(parameter.deviation * normal_quantile(uniform(bits)));
  }
}

}  // namespace fsdpbench::model
