#include "account/path_table.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "account/critical_path.h"
#include "base/enum_table.h"
#include "record/table.h"

namespace fsdpbench::app {
namespace {

using account::PathKind;
using account::PathRank;

constexpr std::size_t kMostPathRows = 8;

}  // namespace

std::string path_table(const account::PathReport& path, int decimals) {
  PathRank all;
  for (const PathRank& rank : path.ranks) {
    for (const PathKind kind : kEnumerators<PathKind>) all.kinds_ms[kind] += rank.kinds_ms[kind];
    all.ms += rank.ms;
  }
  Table table;
  table.title = "Critical path: what decided how long a step was";
  table.header = {"rank", "ms a step", "of the step"};
  for (const PathKind kind : kEnumerators<PathKind>) {
    if (all.kinds_ms[kind] > 0) table.header.emplace_back(to_string(kind));
  }
  const auto add_row = [&](std::string name, const PathRank& rank) {
    const auto share = [&](double ms) { return all.ms > 0 ? fmt::format("{:.1f} %", 100 * ms / all.ms) : ""; };
    std::vector<std::string> row{std::move(name), fmt::format("{:.{}f}", rank.ms, decimals), share(rank.ms)};
    for (const PathKind kind : kEnumerators<PathKind>) {
      if (all.kinds_ms[kind] > 0) row.push_back(share(rank.kinds_ms[kind]));
    }
    table.rows.push_back(std::move(row));
  };
  for (const PathRank& rank : path.ranks) {
    if (table.rows.size() == kMostPathRows) break;
    add_row(std::to_string(rank.rank), rank);
  }
  if (path.ranks.size() > 1) add_row("all", all);
  std::string text = format_table(table);
  if (path.ranks.size() > kMostPathRows) text += fmt::format("and {} ranks more\n", path.ranks.size() - kMostPathRows);
  return text;
}

}  // namespace fsdpbench::app
