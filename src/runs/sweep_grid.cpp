#include "runs/sweep_grid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "config/load.h"
#include "config/write.h"

namespace fsdpbench::app {
namespace {

constexpr std::size_t kMostCells = 100'000;
constexpr std::size_t kMostSlug = 60;

std::string assignment(const std::string& key, const config::Value& value) {
  return fmt::format("{}={}", key, config::to_toml(value));
}

/// Values may be hostile as file names (paths, dots, any bytes): only letters, digits, dots and dashes are kept.
std::string slug(const std::vector<config::Value>& values) {
  std::string out;
  for (const config::Value& value : values) {
    const auto* text = std::get_if<std::string>(&value);
    for (const char c : text != nullptr ? *text : config::to_toml(value)) {
      const bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                        ((c == '.' || c == '_') && !out.empty());
      out += kept ? c : '-';
    }
    out += '-';
  }
  return out.substr(0, kMostSlug);
}

/// Cells that a rule of the file is for. Both may have many values.
class Rule {
 public:
  Rule(const config::CellRule& rule, const config::SweepFile& file) : set_(&rule.set) {
    for (const config::SweepAxis& condition : rule.when) {
      const auto axis = std::ranges::find(file.axes, condition.key, &config::SweepAxis::key);
      conditions_.emplace_back(axis - file.axes.begin(),
                               std::set<config::Value>(condition.values.begin(), condition.values.end()));
    }
  }
  bool matches(const std::vector<config::Value>& values) const {
    return std::ranges::all_of(
        conditions_, [&](const auto& condition) { return condition.second.contains(values[condition.first]); });
  }
  const config::Settings& set() const { return *set_; }

 private:
  std::vector<std::pair<std::ptrdiff_t, std::set<config::Value>>> conditions_;  // axis, values
  const config::Settings* set_;
};

std::vector<Rule> rules_of(const std::vector<config::CellRule>& rules, const config::SweepFile& file) {
  std::vector<Rule> all;
  for (const config::CellRule& rule : rules) all.emplace_back(rule, file);
  return all;
}

SweepCell make_cell(const config::SweepFile& file, const std::vector<Rule>& whens, std::vector<config::Value> values) {
  SweepCell cell;
  std::string all;
  for (std::size_t i = 0; i < values.size(); ++i) {
    cell.overrides.push_back(assignment(file.axes[i].key, values[i]));
    all += cell.overrides.back() + '\n';
  }
  cell.id = fmt::format("c-{}-{:012x}", slug(values), stable_hash(all) & 0xFFFF'FFFF'FFFF);
  for (const Rule& rule : whens) {
    if (!rule.matches(values)) continue;
    for (const auto& [key, value] : rule.set()) cell.overrides.push_back(assignment(key, value));
  }
  cell.values = std::move(values);
  return cell;
}

void expand_cells(SweepGrid& grid) {
  const config::SweepFile& file = grid.file;
  std::size_t product = 1;
  for (const config::SweepAxis& axis : file.axes) {
    if (product > kMostCells / axis.values.size()) {
      throw ConfigError(fmt::format("the axes have more than {} combinations; take values out.", kMostCells));
    }
    product *= axis.values.size();
  }
  const std::vector<Rule> skips = rules_of(file.skips, file), whens = rules_of(file.whens, file);
  for (std::size_t i = 0; i < product; ++i) {
    std::vector<config::Value> values(file.axes.size());
    std::size_t rest = i;
    for (std::size_t a = file.axes.size(); a-- > 0;) {
      values[a] = file.axes[a].values[rest % file.axes[a].values.size()];
      rest /= file.axes[a].values.size();
    }
    if (std::ranges::any_of(skips, [&](const Rule& rule) { return rule.matches(values); })) {
      ++grid.skipped;
    } else {
      grid.cells.push_back(make_cell(file, whens, std::move(values)));
    }
  }
  if (grid.cells.empty()) throw ConfigError("[[skip]] leaves out every cell of this sweep; there is nothing to run.");
}

}  // namespace

SweepGrid expand_sweep(config::SweepFile file, const std::vector<std::string>& overrides) {
  SweepGrid grid;
  grid.file = std::move(file);
  for (const auto& [key, value] : grid.file.set) grid.base_overrides.push_back(assignment(key, value));
  for (const std::string& text : overrides) {
    const config::Entry entry = config::read_override(text);
    for (const config::SweepAxis& axis : grid.file.axes) {
      if (axis.key != entry.name) continue;
      throw ConfigError(
          fmt::format("--set {}: {} is an axis of this sweep; change its values in the file.", text, axis.key));
    }
    grid.base_overrides.push_back(text);
  }
  expand_cells(grid);
  std::string all = config::to_toml(config::load_profile(grid.file.base, grid.base_overrides, &grid.file.notes));
  all += fmt::format("seed={}\n", grid.file.seed);  // more trials may follow
  for (const SweepCell& cell : grid.cells) all += fmt::format("{} {}\n", cell.id, fmt::join(cell.overrides, " "));
  grid.hash = fmt::format("{:016x}", stable_hash(all));
  return grid;
}

std::string describe(const SweepGrid& grid, const SweepCell& cell) {
  std::string text;
  for (std::size_t i = 0; i < cell.values.size(); ++i) {
    text += fmt::format("{}{} = {}", i == 0 ? "" : ", ", grid.file.axes[i].key, config::to_toml(cell.values[i]));
  }
  return text;
}

std::vector<std::size_t> order_of_trial(const SweepGrid& grid, std::int64_t trial) {
  std::vector<std::size_t> order(grid.cells.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(grid.file.seed * 1'000'003 + static_cast<std::uint64_t>(trial));
  for (std::size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
  return order;
}

}  // namespace fsdpbench::app
