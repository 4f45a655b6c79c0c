#include "backend/cpu/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/bf16.h"
#include "base/error.h"

// The loops below are free of carried dependencies even where target and source are the same array (same index), which
// `ivdep` tells the compiler: it then vectorises without a run-time check that would reject the in-place case.

namespace fsdpbench::backend::cpu {
namespace {

constexpr std::int64_t kBlockBytes = 16 * 1024;  // sum and sources of a block stay in the first-level cache

float load(float value) { return value; }
float load(std::uint16_t bits) { return bf16_to_float(bits); }
template <class T>
T store(float value);
template <>
float store<float>(float value) {
  return value;
}
template <>
std::uint16_t store<std::uint16_t>(float value) {
  return float_to_bf16(value);
}

template <class T>
void scale_one(const T* a, T* target, std::int64_t count, float scale) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) target[i] = store<T>(load(a[i]) * scale);
}

template <class T>
void scale_two(const T* a, const T* b, T* target, std::int64_t count, float scale) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) target[i] = store<T>((load(a[i]) + load(b[i])) * scale);
}

template <class T>
void add_two(const T* a, const T* b, float* sum, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) sum[i] = load(a[i]) + load(b[i]);
}

template <class T>
void add_two_more(float* sum, const T* a, const T* b, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) sum[i] = (sum[i] + load(a[i])) + load(b[i]);
}

template <class T>
void scale_sum_and_one(const float* sum, const T* a, T* target, std::int64_t count, float scale) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) target[i] = store<T>((sum[i] + load(a[i])) * scale);
}

template <class T>
void scale_sum_and_two(const float* sum, const T* a, const T* b, T* target, std::int64_t count, float scale) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) target[i] = store<T>(((sum[i] + load(a[i])) + load(b[i])) * scale);
}

/// One block of at most kBlockBytes; `at` is its first element. Two sources a pass: fewer trips through the sum.
template <class T>
void reduce_block(std::span<const std::byte* const> sources, T* target, std::int64_t at, std::int64_t count,
                  float scale) {
  const auto source = [&](std::size_t s) { return reinterpret_cast<const T*>(sources[s]) + at; };
  const std::size_t n = sources.size();
  if (n == 1) return scale_one(source(0), target + at, count, scale);
  if (n == 2) return scale_two(source(0), source(1), target + at, count, scale);
  alignas(64) std::array<float, kBlockBytes / sizeof(T)> sum;
  add_two(source(0), source(1), sum.data(), count);
  std::size_t next = 2;
  for (; next + 2 < n; next += 2) add_two_more(sum.data(), source(next), source(next + 1), count);
  if (next + 2 == n) {
    scale_sum_and_two(sum.data(), source(next), source(next + 1), target + at, count, scale);
  } else {
    scale_sum_and_one(sum.data(), source(next), target + at, count, scale);
  }
}

template <class T>
void reduce_blocks(std::span<const std::byte* const> sources, std::byte* target, std::int64_t count, float scale) {
  constexpr std::int64_t kBlock = kBlockBytes / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t at = 0; at < count; at += kBlock) {
    reduce_block<T>(sources, reinterpret_cast<T*>(target), at, std::min(kBlock, count - at), scale);
  }
}

}  // namespace

void reduce(std::span<const std::byte* const> sources, std::byte* target, std::int64_t count, DType dtype,
            float scale) {
  switch (dtype) {
    case DType::f32: return reduce_blocks<float>(sources, target, count, scale);
    case DType::bf16: return reduce_blocks<std::uint16_t>(sources, target, count, scale);
    case DType::i32: break;
  }
  throw BackendError(fmt::format("a reduction over {} is not possible, only over fp32 and bf16", to_string(dtype)));
}

}  // namespace fsdpbench::backend::cpu
