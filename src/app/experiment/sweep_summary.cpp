#include "app/experiment/sweep_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "app/console/table.h"
#include "metrics/statistics.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;
using TrialsOfCell = std::map<std::uint64_t, const json*>;  // by trial number

json to_json(const config::Value& value) {
  return std::visit([](const auto& v) { return json(v); }, value);
}

double step_median(const json& trial) { return metrics::median(trial["steps_ms"].get<std::vector<double>>()); }

/// A trial counts as one value, its median: the steps of a trial share its luck.
json step_summary(const std::vector<const json*>& done) {
  std::vector<double> medians;
  double low = 0, high = 0;
  std::size_t steps = 0;
  for (const json* trial : done) {
    const auto values = (*trial)["steps_ms"].get<std::vector<double>>();
    const auto [least, most] = std::ranges::minmax(values);
    low = medians.empty() ? least : std::min(low, least);
    high = std::max(high, most);
    steps += values.size();
    medians.push_back(metrics::median(values));
  }
  const metrics::Summary s = metrics::summarize(medians);
  return {{"median", s.median}, {"ci_low", s.ci_low}, {"ci_high", s.ci_high}, {"min", low},
          {"max", high},        {"n", s.n},           {"steps", steps}};
}

/// The median over trials of every number that the trials' metrics have.
json metrics_summary(const std::vector<const json*>& done) {
  json j{{"step_ms", step_summary(done)}};
  std::map<std::string, std::vector<double>> values;
  for (const json* trial : done) {
    for (const auto& [name, value] : (*trial)["metrics"].items()) {
      if (value.is_number() && std::isfinite(value.get<double>())) values[name].push_back(value.get<double>());
    }
  }
  for (const auto& [name, numbers] : values) {
    if (name != "step_ms") j[name] = metrics::median(numbers);
  }
  return j;
}

/// The trial whose step time is the median one: an example that happened, for what has no median.
const json& typical(std::vector<const json*> done) {
  const auto middle = done.begin() + static_cast<std::ptrdiff_t>((done.size() - 1) / 2);
  std::ranges::nth_element(done, middle, {}, [](const json* trial) { return step_median(*trial); });
  return **middle;
}

json cell_json(const SweepGrid& grid, const SweepCell& cell, const TrialsOfCell& trials) {
  json j{{"id", cell.id}};
  for (std::size_t i = 0; i < cell.values.size(); ++i) j["axes"][grid.file.axes[i].key] = to_json(cell.values[i]);
  std::vector<const json*> done;
  const json* failure = nullptr;
  for (const auto& [number, trial] : trials) {
    if ((*trial)["status"] == "ok") {
      done.push_back(trial);
    } else {
      failure = trial;
    }
  }
  j["trials"] = done.size();
  j["status"] = failure != nullptr                                           ? "failed"
                : static_cast<std::int64_t>(done.size()) >= grid.file.trials ? "ok"
                                                                             : "incomplete";
  if (failure != nullptr) j["reason"] = (*failure)["reason"];
  if (done.empty()) return j;
  j["metrics"] = metrics_summary(done);
  const json& example = typical(done);
  for (const char* part : {"memory", "comm", "causes"}) {
    if (example.contains(part)) j[part] = example[part];
  }
  return j;
}

/// Everything that must be equal for trials to be comparable.
json identity(const json& world) {
  json j = world;
  for (const char* part : {"date", "command_line", "memory_bytes"}) j.erase(part);
  for (const char* part : {"emulated_link", "emulated_compute"}) j.erase(part);  // an axis may switch them
  return j;
}

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace

json sweep_json(const SweepGrid& grid, const std::vector<json>& trials) {
  std::map<std::string, TrialsOfCell> by_cell;
  const json* first = nullptr;
  bool mixed = false;
  for (const json& trial : trials) {
    by_cell[trial["cell"]][trial["trial"]] = &trial;
    if (trial["status"] != "ok") continue;
    if (first == nullptr) first = &trial;
    mixed = mixed || identity(trial["world"]) != identity((*first)["world"]);
  }
  json j{{"schema_version", kSweepSchemaVersion},
         {"title", grid.file.title},
         {"sweep_hash", grid.hash},
         {"base", grid.file.base},
         {"set", grid.base_overrides},
         {"trials", grid.file.trials},
         {"order", "rounds: trial 0 of every cell, then trial 1, and so on; shuffled anew each round"},
         {"skipped_cells", grid.skipped},
         {"axes", json::array()},
         {"cells", json::array()}};
  if (!grid.file.x.empty()) j["x"] = grid.file.x;
  if (!grid.file.series.empty()) j["series"] = grid.file.series;
  for (const config::SweepAxis& axis : grid.file.axes) {
    json values = json::array();
    for (const config::Value& value : axis.values) values.push_back(to_json(value));
    j["axes"].push_back({{"key", axis.key}, {"values", std::move(values)}});
  }
  for (const SweepCell& cell : grid.cells) j["cells"].push_back(cell_json(grid, cell, by_cell[cell.id]));
  j["complete"] = std::ranges::none_of(j["cells"], [](const json& cell) { return cell["status"] == "incomplete"; });
  if (first != nullptr) {
    j["world"] = (*first)["world"];
    j["mixed_worlds"] = mixed;
  }
  return j;
}

std::string sweep_table(const json& sweep) {
  Table table;
  table.title = sweep["title"];
  for (const json& axis : sweep["axes"]) table.header.push_back(axis["key"]);
  // Fewer than five values have no better interval than their range (metrics/statistics.h).
  const char* interval = sweep["trials"] < 5 ? "range of trials" : "95 % interval";
  for (const char* name : {"step ms", interval, "exposed ms", "overlap %", "peak MiB", ""}) {
    table.header.emplace_back(name);
  }
  for (const json& cell : sweep["cells"]) {
    std::vector<std::string> row;
    for (const json& axis : sweep["axes"]) row.push_back(text_of(cell["axes"][axis["key"].get<std::string>()]));
    const auto number = [&](const json& from, const char* key, double scale) {
      return from.is_object() && from.contains(key) && from[key].is_number()
                 ? fmt::format("{:.2f}", from[key].get<double>() * scale)
                 : std::string("-");
    };
    if (cell.contains("metrics")) {
      const json& m = cell["metrics"];
      const json& step = m["step_ms"];
      row.push_back(number(step, "median", 1));
      row.push_back(number(step, "ci_low", 1) + " to " + number(step, "ci_high", 1));
      row.push_back(number(m, "exposed_comm_ms", 1));
      row.push_back(number(m, "overlap_pct", 1));
      row.push_back(number(cell["memory"].value("peak_bytes", json()), "total", 1.0 / (1 << 20)));
    } else {
      row.insert(row.end(), 5, "-");
    }
    row.push_back(cell["status"] == "ok" ? "" : cell["status"].get<std::string>());
    table.rows.push_back(std::move(row));
  }
  std::string text = format_table(table) + "\n";
  for (const json& cell : sweep["cells"]) {
    if (cell["status"] == "failed")
      text += fmt::format("failed  {}: {}\n", cell["axes"].dump(), text_of(cell["reason"]));
  }
  return text;
}

}  // namespace fsdpbench::app
