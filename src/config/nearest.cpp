#include "config/nearest.h"

#include <algorithm>
#include <vector>

#include "config/aliases.h"
#include "config/fields.h"

namespace fsdpbench::config {
namespace {

/// Edits (insert, delete, replace, swap of neighbours) that turn one text into the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

/// Longer ones are no typing errors, and comparing them letter by letter would take their length squared.
constexpr std::size_t kLongestName = 80;

std::string_view after_dot(std::string_view name) { return name.substr(name.find('.') + 1); }

}  // namespace

std::string nearest(std::string_view name, std::span<const std::string> names) {
  name = name.substr(0, kLongestName);
  const auto best =
      std::ranges::min_element(names, {}, [&](const std::string& other) { return edit_distance(name, other); });
  return best == names.end() ? std::string() : *best;
}

std::string nearest_field(std::string_view name) {
  name = name.substr(0, kLongestName);
  if (const std::string_view known = key_of_other_system(name); !known.empty()) return std::string(known);
  // The right key in the wrong table is as likely a mistake as a typing error.
  const auto distance = [&](const Field& field) {
    return std::min(edit_distance(name, field.name()), edit_distance(after_dot(name), field.key) + 1);
  };
  return std::ranges::min_element(fields(), {}, distance)->name();
}

}  // namespace fsdpbench::config
