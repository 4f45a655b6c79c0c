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

/// Smallest multiple of `step` that is not less than `value`. Both non-negative, step > 0.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

/// value / divisor, rounded up; value >= 0, divisor > 0.
constexpr std::int64_t ceil_div(std::int64_t value, std::int64_t divisor) { return (value + divisor - 1) / divisor; }

}  // namespace fsdpbench
