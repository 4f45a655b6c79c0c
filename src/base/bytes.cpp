#include "base/bytes.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "base/error.h"

namespace fsdpbench {

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array<std::string_view, 6> kUnits{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024.0;
  std::size_t unit = 0;
  while (value >= 999.995 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

void throw_too_large() {
  throw ResourceError(
      "a rank needs more than 8 EiB of memory, which no computer has; use a smaller model, train.seq_len or "
      "train.batch_per_rank");
}

std::string format_count(std::int64_t count) {
  constexpr std::array<std::pair<std::string_view, double>, 4> kUnits{
      {{"T", 1e12}, {"B", 1e9}, {"M", 1e6}, {"k", 1e3}}};
  for (const auto& [unit, size] : kUnits) {
    const double value = static_cast<double>(count) / size;
    if (value < 0.9995) continue;  // 999.6 thousand is 1.00 M, not 1000 k
    return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0, unit);
  }
  return fmt::format("{}", count);
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || !(number >= 0)) return std::nullopt;
  std::string_view unit = text.substr(end - text.data());
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  constexpr std::array<std::pair<std::string_view, double>, 10> kUnits{{{"", 1},
                                                                        {"B", 1},
                                                                        {"KB", 1e3},
                                                                        {"MB", 1e6},
                                                                        {"GB", 1e9},
                                                                        {"TB", 1e12},
                                                                        {"KiB", 1024.0},
                                                                        {"MiB", 1048576.0},
                                                                        {"GiB", 1073741824.0},
                                                                        {"TiB", 1099511627776.0}}};
  for (const auto& [name, factor] : kUnits) {
    if (unit == name && number * factor < 9.2e18) return static_cast<std::int64_t>(number * factor);
  }
  return std::nullopt;
}

}  // namespace fsdpbench
