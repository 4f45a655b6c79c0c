#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fsdpbench {

/// "1.50 MiB": binary units, two decimals from KiB up, plain bytes below.
std::string format_bytes(std::int64_t bytes);

/// "8.03 B", "124 M", "49.5 k", "128": three digits of a count, in thousands, millions, billions or trillions.
std::string format_count(std::int64_t count);

/// Parses "64MiB", "1.5 GB", "4096"; KB/MB/GB/TB are powers of 1000, KiB/MiB/GiB/TiB powers of 1024.
/// Nothing if the text is not a non-negative size.
std::optional<std::int64_t> parse_bytes(std::string_view text);

/// Throws ResourceError: a size that no 64-bit integer holds.
[[noreturn]] void throw_too_large();

/// a + b of sizes, neither negative. Throws ResourceError instead of wrapping.
constexpr std::int64_t checked_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) throw_too_large();
  return sum;
}

/// a * b * c of sizes, none negative. Throws ResourceError instead of wrapping.
constexpr std::int64_t checked_product(std::int64_t a, std::int64_t b, std::int64_t c = 1) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_mul_overflow(product, c, &product)) throw_too_large();
  return product;
}

/// value / divisor, rounded up; value >= 0, divisor > 0.
constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) {
  return value / divisor + (value % divisor == 0 ? 0 : 1);
}

/// Smallest multiple of `step` that is not less than `value`. Both non-negative, step > 0. Throws ResourceError if
/// there is none.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return checked_product(ceil_div(value, step), step);
}

/// Ring algorithms over n ranks: in one pass every rank sends (n-1)/n of the message in n-1 hops. An all-gather (of its
/// output), a reduce-scatter (of its input) and a broadcast take one pass, an all-reduce two.
constexpr int ring_hops(int ranks, int passes = 1) { return passes * (ranks - 1); }

/// Share of the message that each rank sends.
constexpr double ring_share(int ranks, int passes = 1) { return static_cast<double>(ring_hops(ranks, passes)) / ranks; }

/// Bytes of a message of `bytes` that each rank sends, rounded down where it does not split evenly.
constexpr std::int64_t ring_bytes(std::int64_t bytes, int ranks, int passes = 1) {
  return ring_hops(ranks, passes) * bytes / ranks;
}

}  // namespace fsdpbench
