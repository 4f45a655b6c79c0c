#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "base/dtype.h"

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

/// An element stored as bf16 bits. The kernels are templates over float and Bf16 that load to and store from fp32.
struct Bf16 {
  std::uint16_t bits;
};

/// Between memory and the fp32 in which all is computed; bf16 rounds to nearest even.
inline float load(float value) { return value; }
inline float load(Bf16 value) { return bf16_to_float(value.bits); }

inline void store(float& target, float value) { target = value; }
inline void store(Bf16& target, float value) { target.bits = float_to_bf16(value); }

/// Device memory, which is host memory here, as elements of T.
template <class T>
const T* elements(const std::byte* memory) {
  return reinterpret_cast<const T*>(memory);
}
template <class T>
T* elements(std::byte* memory) {
  return reinterpret_cast<T*>(memory);
}

/// Calls `kernel(T{})` with T = float or Bf16.
template <class Kernel>
void with_element_type(DType dtype, Kernel&& kernel) {
  switch (dtype) {
    case DType::f32: return kernel(float{});
    case DType::bf16: return kernel(Bf16{});
    case DType::i32:
    case DType::f64:
    case DType::u8: break;
  }
  throw std::logic_error("a numeric kernel was called with a dtype other than fp32 and bf16");
}

/// Calls `kernel` for the gradient of a parameter of T, which may be fp32 instead.
template <class T, class Kernel>
void with_gradient_type(DType dtype, Kernel&& kernel) {
  if (dtype == DType::f32) return kernel(float{});
  kernel(T{});
}

/// Sums over rows, one a column, rows in order. Rows are first added up in blocks of 32, then the blocks: the
/// rounding error grows with rows / 32, and both accumulators stay in the cache.
class ColumnSums {
 public:
  /// `memory` is kept by the caller so that its allocation is.
  ColumnSums(std::vector<float>& memory, std::int64_t width) : memory_(memory), width_(width) {
    memory_.assign(2 * width, 0.0F);
  }

  /// Place to add the next row.
  float* next_row() {
    if (rows_ == kBlockRows) fold();
    ++rows_;
    return block();
  }

  template <class T>
  void store_to(T* target) {
    fold();
    for (std::int64_t j = 0; j < width_; ++j) store(target[j], total()[j]);
  }

 private:
  static constexpr int kBlockRows = 32;
  float* total() { return memory_.data(); }
  float* block() { return memory_.data() + width_; }
  void fold() {
    float* const sum = total();
    float* const part = block();
    for (std::int64_t j = 0; j < width_; ++j) sum[j] += part[j];
    std::fill_n(part, width_, 0.0F);
    rows_ = 0;
  }

  std::vector<float>& memory_;
  std::int64_t width_;
  int rows_ = 0;
};

}  // namespace fsdpbench::backend::cpu
