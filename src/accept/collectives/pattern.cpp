#include "accept/collectives/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bf16.h"
#include "base/bytes.h"
#include "base/random.h"

namespace fsdpbench::app {
namespace {

/// Up to here all integers are exact.
std::int64_t exact_up_to(DType dtype) { return dtype == DType::bf16 ? 256 : std::int64_t{1} << 24; }

void put(DType dtype, double value, std::byte* at) {
  const auto write = [&](auto element) { std::memcpy(at, &element, sizeof element); };
  switch (dtype) {
    case DType::f32: return write(static_cast<float>(value));
    case DType::bf16: return write(float_to_bf16(static_cast<float>(value)));
    case DType::i32: return write(static_cast<std::int32_t>(value));
    case DType::f64: return write(value);
    case DType::u8: return write(static_cast<std::uint8_t>(value));
  }
}

template <class T>
T element_at(const std::byte* at) {
  T element;
  std::memcpy(&element, at, sizeof element);
  return element;
}

double number_at(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::f32: return element_at<float>(at);
    case DType::bf16: return bf16_to_float(element_at<std::uint16_t>(at));
    case DType::i32: return element_at<std::int32_t>(at);
    case DType::f64: return element_at<double>(at);
    case DType::u8: return element_at<std::uint8_t>(at);
  }
  return 0;
}

}  // namespace

Pattern::Pattern(DType dtype, bool reduced, int ranks, std::uint64_t round)
    : dtype_(dtype), ranks_(ranks), round_(split_mixed(round)) {
  constexpr int kPeak = 250;
  if (!reduced) {
    peak_ = kPeak;
    least_ = 1;  // a buffer that nobody wrote to is all zeros
    return;
  }
  const std::int64_t most = exact_up_to(dtype);
  stride_ = static_cast<int>(ceil_div(ranks, most));
  peak_ = static_cast<int>(std::clamp<std::int64_t>(most / ceil_div(ranks, stride_), 1, kPeak));
}

int Pattern::value(int rank, std::int64_t index) const {
  const std::uint64_t place = split_mixed(round_ ^ static_cast<std::uint64_t>(index));
  if (stride_ > 1 && (static_cast<std::uint64_t>(rank) + place) % static_cast<std::uint64_t>(stride_) != 0) return 0;
  const std::uint64_t mine = mixed(place + static_cast<std::uint64_t>(rank) * 0x9E3779B97F4A7C15ULL);
  return least_ + static_cast<int>((mine >> 32) % static_cast<std::uint64_t>(peak_ - least_ + 1));
}

void Pattern::fill(int rank, std::int64_t first, std::span<std::byte> out) const {
  const auto size = static_cast<std::size_t>(size_of(dtype_));
  for (std::size_t at = 0; at < out.size(); at += size, ++first) put(dtype_, value(rank, first), out.data() + at);
}

std::int64_t Pattern::wrong(int rank, std::int64_t first, std::span<const std::byte> got) const {
  const auto size = static_cast<std::size_t>(size_of(dtype_));
  std::int64_t count = 0;
  for (std::size_t at = 0; at < got.size(); at += size, ++first) {
    count += number_at(dtype_, got.data() + at) != value(rank, first) ? 1 : 0;
  }
  return count;
}

std::int64_t Pattern::wrong_sums(Reduction reduction, std::int64_t first, std::span<const std::byte> got) const {
  const auto size = static_cast<std::size_t>(size_of(dtype_));
  const bool inexact = reduction == Reduction::average && (ranks_ & (ranks_ - 1)) != 0;
  const double tolerance = inexact ? std::ldexp(1.0, dtype_ == DType::bf16 ? -6 : -18) : 0;
  std::int64_t count = 0;
  for (std::size_t at = 0; at < got.size(); at += size, ++first) {
    double expected = 0;
    for (int rank = 0; rank < ranks_; ++rank) expected += value(rank, first);
    if (reduction == Reduction::average) expected /= ranks_;
    // Not "above": a NaN is wrong, too.
    count += std::abs(number_at(dtype_, got.data() + at) - expected) <= tolerance * expected ? 0 : 1;
  }
  return count;
}

}  // namespace fsdpbench::app
