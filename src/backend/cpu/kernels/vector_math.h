#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace fsdpbench::backend::cpu {

/// e^x for x <= 88, without branches so that loops over it vectorise; the same bits wherever in a loop x lies.
/// About 1 ulp; below -87 it goes to 0 in one step (no denormals).
inline float fast_exp(float x) {
  constexpr float kLog2e = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;  // few bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer, left in the low bits
  const float clamped = x < -87.0F ? -87.0F : x;
  const float shifted = clamped * kLog2e + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) + 127U) << 23;
  const float y = p * std::bit_cast<float>(exponent);
  return x < -87.0F ? 0.0F : y;
}

/// 1 / (1 + e^-x), for any x.
inline float sigmoid(float x) {
  const float magnitude = x < 0.0F ? -x : x;
  const float e = fast_exp(-magnitude);
  const float small = e / (1.0F + e);
  return x < 0.0F ? small : 1.0F - small;
}

/// Sum of term(i) for i in [0, count): 32 running sums side by side, then pairwise. The order is fixed by `count`.
template <class Real, class Term>
Real lane_sum(std::int64_t count, Term&& term) {
  constexpr std::int64_t kLanes = 32;
  std::array<Real, kLanes> sums{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(i + lane);
  }
  for (std::int64_t lane = 0; i + lane < count; ++lane) sums[lane] += term(i + lane);
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

/// Largest of value(i) for i in [0, count), count > 0.
template <class Value>
float lane_max(std::int64_t count, Value&& value) {
  constexpr std::int64_t kLanes = 32;
  std::array<float, kLanes> best;
  best.fill(value(std::int64_t{0}));
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const float v = value(i + lane);
      best[lane] = v > best[lane] ? v : best[lane];
    }
  }
  float result = *std::max_element(best.begin(), best.end());
  for (; i < count; ++i) result = std::max(result, value(i));
  return result;
}

}  // namespace fsdpbench::backend::cpu
