#include "backend/cpu/collective_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <string>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/error.h"

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

/// Sources that one pass reads. More streams than the processor prefetches well do not pay.
constexpr std::size_t kPassSources = 4;

/// Adds N sources to `sum` (or begins with them), and scales and rounds into `target` if they are the last.
template <std::size_t N, bool kFirst, bool kLast, class T>
void pass(const std::byte* const* sources, std::int64_t at, float* sum, T* target, std::int64_t count, float scale) {
  std::array<const T*, N> source;
  for (std::size_t s = 0; s < N; ++s) source[s] = reinterpret_cast<const T*>(sources[s]) + at;
    // No carried dependency even where the target is a source (same index). Told so, the compiler vectorises without a
    // run-time check that would reject the in-place case.
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    float x = kFirst ? load(source[0][i]) : sum[i] + load(source[0][i]);
    for (std::size_t s = 1; s < N; ++s) x += load(source[s][i]);
    if constexpr (kLast) {
      target[i] = store<T>(x * scale);
    } else {
      sum[i] = x;
    }
  }
}

template <bool kFirst, class T>
void last_pass(std::size_t n, const std::byte* const* sources, std::int64_t at, float* sum, T* target,
               std::int64_t count, float scale) {
  switch (n) {
    case 1: return pass<1, kFirst, true>(sources, at, sum, target, count, scale);
    case 2: return pass<2, kFirst, true>(sources, at, sum, target, count, scale);
    case 3: return pass<3, kFirst, true>(sources, at, sum, target, count, scale);
    default: return pass<4, kFirst, true>(sources, at, sum, target, count, scale);
  }
}

/// One block of at most kBlockBytes; `at` is its first element.
template <class T>
void reduce_block(std::span<const std::byte* const> sources, T* target, std::int64_t at, std::int64_t count,
                  float scale) {
  const std::byte* const* next = sources.data();
  std::size_t left = sources.size();
  if (left <= kPassSources) return last_pass<true>(left, next, at, nullptr, target + at, count, scale);
  alignas(64) std::array<float, kBlockBytes / sizeof(T)> sum;
  pass<kPassSources, true, false, T>(next, at, sum.data(), nullptr, count, scale);
  for (next += kPassSources, left -= kPassSources; left > kPassSources; next += kPassSources, left -= kPassSources) {
    pass<kPassSources, false, false, T>(next, at, sum.data(), nullptr, count, scale);
  }
  last_pass<false>(left, next, at, sum.data(), target + at, count, scale);
}

template <class T>
void reduce_blocks(std::span<const std::byte* const> sources, std::byte* target, std::int64_t count, float scale) {
  constexpr std::int64_t kBlock = kBlockBytes / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t at = 0; at < count; at += kBlock) {
    reduce_block<T>(sources, reinterpret_cast<T*>(target), at, std::min(kBlock, count - at), scale);
  }
}

bool is_reduction(Collective kind) { return kind == Collective::reduce_scatter || kind == Collective::all_reduce; }

bool match(const CollectiveCall& a, const CollectiveCall& b) {
  return a.kind == b.kind && a.count == b.count && a.dtype == b.dtype && a.scale == b.scale && a.root == b.root;
}

std::string describe_call(const CollectiveCall& call) {
  std::string text = fmt::format("{} of {} {}", to_string(call.kind), call.count, to_string(call.dtype));
  if (is_reduction(call.kind)) text += fmt::format(" scaled by {}", call.scale);
  if (call.kind == Collective::broadcast) text += fmt::format(" from {}", call.root);
  return text;
}

}  // namespace

void reduce(std::span<const std::byte* const> sources, std::byte* target, std::int64_t count, DType dtype,
            float scale) {
  switch (dtype) {
    case DType::f32: return reduce_blocks<float>(sources, target, count, scale);
    case DType::bf16: return reduce_blocks<std::uint16_t>(sources, target, count, scale);
    case DType::i32:
    case DType::f64:
    case DType::u8: break;
  }
  throw BackendError(fmt::format("a reduction over {} is not possible, only over fp32 and bf16", to_string(dtype)));
}

std::int64_t wire_bytes(const CollectiveCall& call, int size) {
  return ring_bytes(call.kind, call.count * size_of(call.dtype), size);
}

std::int64_t link_bytes(const CollectiveCall& call, int size) {
  if (call.kind == Collective::broadcast && size > 1) return call.count * size_of(call.dtype);
  return wire_bytes(call, size);
}

int hops(Collective kind, int size) {
  if (kind == Collective::send_recv) return size > 1 ? 1 : 0;
  return ring_hops(size, kind == Collective::all_reduce ? 2 : 1);
}

void check_match(std::span<const CollectiveCall> calls, std::span<const int> world_ranks) {
  for (std::size_t rank = 1; rank < calls.size(); ++rank) {
    if (match(calls.front(), calls[rank])) continue;
    throw BackendError(fmt::format("the ranks call different collectives: world rank {} {}, world rank {} {}",
                                   world_ranks.front(), describe_call(calls.front()), world_ranks[rank],
                                   describe_call(calls[rank])));
  }
}

void copy_bytes(const std::byte* source, std::byte* target, std::int64_t bytes) {
  if (source != target && bytes > 0) std::memcpy(target, source, bytes);
}

Slices Slices::divide(std::int64_t count, int size) { return {count, round_up(ceil_div(count, size), 32)}; }

}  // namespace fsdpbench::backend::cpu
