#include "trace/parsed_event.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace fsdpbench::trace {
namespace {

/// "12.3456" as 12345; nothing for exponents and the like.
std::optional<std::int64_t> plain_decimal(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  if (text.empty() || text.size() > 24) return std::nullopt;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() - 9;
  std::int64_t value = 0;
  int decimals = -1;
  for (const char c : text) {
    if (c == '.' && decimals < 0) {
      decimals = 0;
    } else if (c < '0' || c > '9') {
      return std::nullopt;
    } else if (decimals < 3) {
      if (value > kMost / 10) return std::nullopt;
      value = value * 10 + (c - '0');
      if (decimals >= 0) ++decimals;
    }
  }
  for (int i = std::max(decimals, 0); i < 3; ++i) {
    if (value > kMost / 10) return std::nullopt;
    value *= 10;
  }
  return negative ? -value : value;
}

}  // namespace

std::optional<std::int64_t> nanoseconds(const Value& value) {
  if (!value.is_number() && !value.is_text()) return std::nullopt;
  if (const auto exact = plain_decimal(value.text)) return exact;
  double number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [stopped, error] = std::from_chars(value.text.data(), end, number);
  constexpr double kMost = 9e15;  // microseconds whose nanoseconds fit
  if (error != std::errc{} || stopped != end || !(std::abs(number) < kMost)) return std::nullopt;
  return std::llround(number * 1000.0);
}

}  // namespace fsdpbench::trace
