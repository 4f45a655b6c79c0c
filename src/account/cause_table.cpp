#include "account/cause_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "account/critical_path.h"
#include "base/enum_table.h"
#include "record/table.h"

namespace fsdpbench::app {
namespace {

using account::Cause;
using account::CauseShare;
using account::Counterfactual;

/// "54.2 ms [54.0 to 54.5]"; of what was not replayed nothing.
std::string without_text(const std::optional<Counterfactual>& without) {
  if (!without) return {};
  const double step = without->step_ms, whole = step + without->gain_ms;
  const std::string text = three_digits(step) + " ms";
  if (without->interval == account::IntervalKind::one_value) return text;
  return fmt::format("{} [{} to {}]", text, three_digits(whole - without->ci_high),
                     three_digits(whole - without->ci_low));
}

}  // namespace

std::string cause_table(const account::CauseReport& report, const CauseTable& how) {
  Table table;
  table.title = how.title;
  const bool replayed = std::ranges::any_of(report.causes, [](const CauseShare& c) { return c.without.has_value(); });
  table.header = {"cause", "ms", "of the step",
                  replayed ? fmt::format("{} ({} ms) without it", how.step, three_digits(report.typical_ms)) : "",
                  "worst at"};
  const auto row = [&](std::string name, double ms, double share_pct, std::string without, std::string where) {
    table.rows.push_back(
        {std::move(name), three_digits(ms), fmt::format("{:.1f} %", share_pct), std::move(without), std::move(where)});
  };
  std::string advice;
  for (const CauseShare& c : report.causes) {
    std::string where = c.op;
    if (c.late_rank >= 0) {
      where += fmt::format("{}{}: rank {}", where.empty() ? "" : ", ", c.cause == Cause::slow_link ? "slow" : "late",
                           c.late_rank);
    }
    row(std::string(to_string(c.cause)), c.ms, c.share_pct, without_text(c.without), where);
    if (!c.advice.empty()) advice += text_line(fmt::format("- {}: {}", to_string(c.cause), c.advice));
  }
  if (report.small_ms > 0) {
    row("small (each under 2 %)", report.small_ms, 100 * report.small_ms / report.step_ms, "", "");
  }
  if (report.jitter) {
    row("jitter, of no cause", report.jitter->stalled_ms, 100 * report.jitter->stalled_ms / report.step_ms, "", "");
  }
  if (!replayed) {  // a column of nothing
    table.header.erase(table.header.begin() + 3);
    for (std::vector<std::string>& cells : table.rows) cells.erase(cells.begin() + 3);
  }
  std::string knobs;
  for (const std::string& knob : how.knobs) knobs += text_line("- " + knob);
  if (!knobs.empty()) advice += "\nknobs, by what they gain:\n" + knobs;
  return format_table(table) + how.no_typical + (advice.empty() ? "" : "\n" + advice);
}
namespace {

using account::PathKind;
using account::PathRank;

constexpr std::size_t kMostPathRows = 8;

}  // namespace

std::string path_table(const account::PathReport& path) {
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
    std::vector<std::string> row{std::move(name), three_digits(rank.ms), share(rank.ms)};
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
