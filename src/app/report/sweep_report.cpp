#include "app/report/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "app/console/json_text.h"
#include "app/console/table.h"
#include "app/experiment/trial_json.h"
#include "metrics/caveats.h"
#include "metrics/statistics.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;
using TrialsOfCell = std::map<std::uint64_t, const LoggedTrial*>;  // by trial number

json json_of(const config::Value& value) {
  return std::visit([](const auto& v) { return json(v); }, value);
}

/// A trial counts as one value, its median: the steps of a trial share its luck.
json step_summary(const std::vector<const Trial*>& done) {
  std::vector<double> medians;
  double low = 0, high = 0;
  std::size_t steps = 0;
  for (const Trial* trial : done) {
    const std::vector<double>& values = trial->metrics->steps_ms;
    const auto [least, most] = std::ranges::minmax(values);
    low = medians.empty() ? least : std::min(low, least);
    high = std::max(high, most);
    steps += values.size();
    medians.push_back(metrics::median(values));
  }
  const metrics::Summary s = metrics::summarize(medians);
  return {{"median", s.median},
          {"ci_low", s.ci_low},
          {"ci_high", s.ci_high},
          {"interval", to_string(s.interval)},
          {"min", low},
          {"max", high},
          {"n", s.n},
          {"steps", steps}};
}

/// The one or two trials of median step time: examples that happened, whose parts add up to the cell's step time. Two
/// if the number of trials is even, the faster one first.
std::vector<const Trial*> typical(std::vector<const Trial*> done) {
  std::ranges::stable_sort(done, {}, [](const Trial* trial) { return metrics::median(trial->metrics->steps_ms); });
  const auto middle = done.begin() + static_cast<std::ptrdiff_t>((done.size() - 1) / 2);
  return {middle, middle + (done.size() % 2 == 0 ? 2 : 1)};
}

/// The mean over the typical trials of every number that they have.
json metrics_summary(const std::vector<const Trial*>& done) {
  json j{{"step_ms", step_summary(done)}};
  std::map<std::string, std::vector<double>> values;
  for (const Trial* trial : typical(done)) {
    for (const auto& [name, value] : metric_numbers(*trial)) {
      if (std::isfinite(value)) values[std::string(name)].push_back(value);
    }
  }
  for (const auto& [name, numbers] : values) j[name] = metrics::median(numbers);  // of one or two: the mean
  return j;
}

json cell_json(const SweepGrid& grid, const SweepCell& cell, const TrialsOfCell& trials) {
  json j{{"id", cell.id}};
  for (std::size_t i = 0; i < cell.values.size(); ++i) j["axes"][grid.file.axes[i].key] = json_of(cell.values[i]);
  std::vector<const Trial*> done;
  const LoggedTrial* failure = nullptr;
  for (const auto& [number, logged] : trials) {
    if (logged->trial) {
      done.push_back(&*logged->trial);
    } else {
      failure = logged;
    }
  }
  j["trials"] = done.size();
  j["status"] = failure != nullptr                                           ? "failed"
                : static_cast<std::int64_t>(done.size()) >= grid.file.trials ? "ok"
                                                                             : "incomplete";
  if (failure != nullptr) j["reason"] = failure->reason;
  if (done.empty()) return j;
  j["metrics"] = metrics_summary(done);
  const json example = to_json(*typical(done).front());
  for (const char* part : {"memory", "comm", "causes"}) {
    if (example.contains(part)) j[part] = example.at(part);
  }
  const auto unrated =
      std::ranges::find_if(done, [](const Trial* trial) { return trial->fidelity && !trial->fidelity->rated(); });
  j["rated"] = unrated == done.end();
  if (unrated != done.end()) {
    j["not_rated_because"] = metrics::why_not_rated((*unrated)->fidelity);
    j.erase("causes");
  }
  return j;
}

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : json_line(value); }

}  // namespace

json sweep_json(const SweepGrid& grid, const std::vector<LoggedTrial>& trials) {
  std::map<std::string, TrialsOfCell> by_cell;
  const Trial* first = nullptr;
  bool mixed = false;
  for (const LoggedTrial& logged : trials) {
    by_cell[logged.cell][logged.number] = &logged;
    if (!logged.trial) continue;
    if (first == nullptr) first = &*logged.trial;
    mixed = mixed || !same_program_and_machine(logged.trial->world, first->world);
  }
  json j{{"title", grid.file.title},
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
    for (const config::Value& value : axis.values) values.push_back(json_of(value));
    j["axes"].push_back({{"key", axis.key}, {"values", std::move(values)}});
  }
  for (const SweepCell& cell : grid.cells) j["cells"].push_back(cell_json(grid, cell, by_cell[cell.id]));
  j["complete"] = std::ranges::none_of(j["cells"], [](const json& cell) { return cell["status"] == "incomplete"; });
  if (first != nullptr) {
    j["world"] = to_json(first->world);
    j["mixed_worlds"] = mixed;
  }
  return j;
}

std::string sweep_table(const json& sweep) {
  Table table;
  table.title = sweep["title"];
  for (const json& axis : sweep["axes"]) table.header.push_back(axis["key"]);
  const std::string interval(to_string(metrics::interval_of(sweep["trials"])));
  for (const char* name : {"step ms", interval.c_str(), "exposed ms", "overlap %", "peak MiB", ""}) {
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
    row.push_back(cell["status"] != "ok"      ? cell["status"].get<std::string>()
                  : cell.value("rated", true) ? ""
                                              : "not rated");
    table.rows.push_back(std::move(row));
  }
  std::string text = format_table(table) + "\n";
  for (const json& cell : sweep["cells"]) {
    if (cell["status"] == "failed")
      text += fmt::format("failed  {}: {}\n", json_line(cell["axes"]), text_of(cell["reason"]));
  }
  return text;
}

}  // namespace fsdpbench::app
