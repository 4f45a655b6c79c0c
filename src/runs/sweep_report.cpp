#include "runs/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "account/caveats.h"
#include "account/statistics.h"
#include "base/bytes.h"
#include "record/json_fields.h"
#include "record/json_part.h"
#include "record/table.h"
#include "runs/result_fields.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;
using TrialsOfCell = std::map<std::uint64_t, const LoggedTrial*>;  // by trial number

json json_of(const config::Value& value) {
  return std::visit([](const auto& v) { return json(v); }, value);
}

/// What a cell's trials came to.
struct SweptCell {
  std::string id;
  std::vector<std::pair<std::string, json>> axes;
  std::vector<const Trial*> done;
  const LoggedTrial* failure = nullptr;
  bool complete = false;

  std::string status() const { return failure != nullptr ? "failed" : complete ? "ok" : "incomplete"; }
  /// The first of those that are not rated; null: all are.
  const Trial* unrated() const {
    const auto found =
        std::ranges::find_if(done, [](const Trial* trial) { return trial->fidelity && !trial->fidelity->rated(); });
    return found == done.end() ? nullptr : *found;
  }
};

/// The step time of a cell. A trial counts as one value, its median: the steps of a trial share its luck.
struct CellStep {
  account::Summary trials;
  double min = 0, max = 0;  ///< of all steps
  std::size_t steps = 0;
};

CellStep step_of(const std::vector<const Trial*>& done) {
  std::vector<double> medians;
  CellStep cell;
  for (const Trial* trial : done) {
    const std::vector<double>& values = trial->metrics->steps_ms;
    const auto [least, most] = std::ranges::minmax(values);
    cell.min = medians.empty() ? least : std::min(cell.min, least);
    cell.max = std::max(cell.max, most);
    cell.steps += values.size();
    medians.push_back(account::median(values));
  }
  cell.trials = account::summarize(medians);
  return cell;
}

/// The one or two trials of median step time: examples that happened, whose parts add up to the cell's step time. Two
/// if the number of trials is even, the faster one first.
std::vector<const Trial*> typical(std::vector<const Trial*> done) {
  std::ranges::stable_sort(done, {}, [](const Trial* trial) { return account::median(trial->metrics->steps_ms); });
  const auto middle = done.begin() + static_cast<std::ptrdiff_t>((done.size() - 1) / 2);
  return {middle, middle + (done.size() % 2 == 0 ? 2 : 1)};
}

/// The mean over the typical trials of a figure, by its path; absent where none has it.
std::optional<double> typical_figure(const std::vector<const Trial*>& done, std::string_view path) {
  std::vector<double> values;
  for (const Trial* trial : typical(done)) {
    const std::vector<TrialFigure> figures = figures_of(*trial);
    const auto figure = std::ranges::find(figures, path, &TrialFigure::path);
    if (figure != figures.end() && std::isfinite(figure->value)) values.push_back(figure->value);
  }
  return values.empty() ? std::nullopt : std::optional(account::median(values));  // of one or two: the mean
}

SweptCell swept(const SweepGrid& grid, const SweepCell& cell, const TrialsOfCell& trials) {
  SweptCell swept{cell.id, {}, {}, nullptr, false};
  for (std::size_t i = 0; i < cell.values.size(); ++i) {
    swept.axes.emplace_back(grid.file.axes[i].key, json_of(cell.values[i]));
  }
  for (const auto& [number, logged] : trials) {
    if (logged->trial) {
      swept.done.push_back(&*logged->trial);
    } else {
      swept.failure = logged;
    }
  }
  swept.complete = static_cast<std::int64_t>(swept.done.size()) >= grid.file.trials;
  return swept;
}

/// What sweep.json is made of.
struct SweepFile {
  const SweepGrid& grid;
  std::vector<SweptCell> cells;
  const Trial* first = nullptr;  ///< null: no trial was done
  bool mixed = false;
};

bool was_done(const SweptCell& cell) { return !cell.done.empty(); }
const Trial& example(const SweptCell& cell) { return *typical(cell.done).front(); }

struct AxisOfFile {
  const config::SweepAxis& axis;
};

}  // namespace

template <>
const Fields<CellStep>& fields<CellStep>() {
  static const auto kAll =
      declare<CellStep>("CellStep", "The step time of a cell. A trial counts as one value, its median.",
                        "runs/sweep_report.cpp", [](Fields<CellStep>& f) {
                          f.spread(&CellStep::trials, fields<account::Summary>());
                          f("min", &CellStep::min, "", "shortest of all steps");
                          f("max", &CellStep::max, "", "longest of all steps");
                          f("steps", &CellStep::steps, "", "number of steps");
                        });
  return kAll;
}

namespace {

/// The metrics of a cell: every figure of a trial's.
const Fields<SweptCell>& cell_metrics_fields() {
  static const auto kAll = declare<SweptCell>(
      "CellMetrics", "Means over the trials of median step time, one or two.", "runs/sweep_report.cpp",
      [](Fields<SweptCell>& f) {
        f(
            "step_ms", [](const SweptCell& c) { return step_of(c.done); }, "ms", "step time over trials");
        for (const FieldFacts& field : metrics_fields().facts().fields) {
          if (field.figure.label.empty() || field.name == "step_ms") continue;
          f(field.name, [path = "metrics." + field.name](const SweptCell& c) { return typical_figure(c.done, path); },
            field.unit, field.meaning, {.figure = field.figure});
        }
      });
  return kAll;
}

}  // namespace

template <>
const Fields<SweptCell>& fields<SweptCell>() {
  using C = SweptCell;
  static const auto kAll =
      declare<C>("Cell", "A cell of the sweep: one configuration.", "runs/sweep_report.cpp", [](Fields<C>& f) {
        f("id", &C::id, "", "name of the cell in `trials.jsonl`");
        f("axes", &C::axes, "", "value of the cell on each axis");
        f(
            "trials", [](const C& c) { return c.done.size(); }, "", "number of trials that were done");
        f("status", &C::status, "", "`ok`, `failed` or `incomplete`");
        f(
            "reason", [](const C& c) { return c.failure != nullptr ? std::optional(c.failure->reason) : std::nullopt; },
            "", "why it failed");
        f.part("metrics", cell_metrics_fields(), was_done);
        f.object("memory", example, memory_fields(),
                 "memory in the trial with the median step time (the faster of two)", was_done);
        f.object("comm", example, comm_fields(), "bytes sent in the same trial", was_done);
        f(
            "causes",
            [](const C& c) {
              const bool known = was_done(c) && c.unrated() == nullptr && example(c).causes.has_value();
              return known ? std::optional(example(c).causes->causes) : std::nullopt;
            },
            "", "causes in the same trial; absent unless the cell is rated");
        f(
            "rated", [](const C& c) { return was_done(c) ? std::optional(c.unrated() == nullptr) : std::nullopt; }, "",
            "whether the numbers describe what was asked for");
        f("not_rated_because",
          [](const C& c) { return c.unrated() != nullptr ? account::why_not_rated(c.unrated()->fidelity) : ""; }, "",
          "why the cell is not rated", {.when = When::if_any});
      });
  return kAll;
}

template <>
const Fields<AxisOfFile>& fields<AxisOfFile>() {
  static const auto kAll =
      declare<AxisOfFile>("Axis", "A key with its values.", "config/sweep_file.h", [](Fields<AxisOfFile>& f) {
        f(
            "key", [](const AxisOfFile& a) { return a.axis.key; }, "", "dotted name of the key");
        f(
            "values",
            [](const AxisOfFile& a) {
              std::vector<json> values;
              for (const config::Value& value : a.axis.values) values.push_back(json_of(value));
              return values;
            },
            "", "values of the axis, in their order");
      });
  return kAll;
}

template <>
const Fields<SweepFile>& fields<SweepFile>() {
  using S = SweepFile;
  static const auto kAll = declare<S>(
      "Sweep", "sweep.json: a grid of cells ([sweep.md](sweep.md)).", "runs/sweep_report.cpp", [](Fields<S>& f) {
        f(
            "title", [](const S& s) { return s.grid.file.title; }, "", "title of the sweep");
        f(
            "sweep_hash", [](const S& s) { return s.grid.hash; }, "",
            "hash of everything that decides what is measured");
        f(
            "base", [](const S& s) { return s.grid.file.base; }, "", "profile that all cells share");
        f(
            "set", [](const S& s) { return s.grid.base_overrides; }, "",
            "keys that override the profile, as `key=value`");
        f(
            "trials", [](const S& s) { return s.grid.file.trials; }, "", "number of trials of each cell");
        f(
            "order",
            [](const S&) {
              return std::string("rounds: trial 0 of every cell, then trial 1, and so on; shuffled anew each round");
            },
            "", "order in which trials ran");
        f(
            "skipped_cells", [](const S& s) { return s.grid.skipped; }, "", "number of cells that `[[skip]]` left out");
        f("x", [](const S& s) { return s.grid.file.x; }, "", "key on the x axis of figures", {.when = When::if_any});
        f("series", [](const S& s) { return s.grid.file.series; }, "", "keys that figures draw as lines",
          {.when = When::if_any});
        f(
            "axes",
            [](const S& s) {
              std::vector<AxisOfFile> axes;
              for (const config::SweepAxis& axis : s.grid.file.axes) axes.push_back({axis});
              return axes;
            },
            "", "axes of the sweep; the last one changes fastest");
        f(
            "cells", [](const S& s) -> const auto& { return s.cells; }, "",
            "cells of the sweep: the product of the axes");
        f(
            "complete",
            [](const S& s) {
              return std::ranges::none_of(s.cells, [](const SweptCell& cell) { return cell.status() == "incomplete"; });
            },
            "", "whether every cell is `ok` or `failed`");
        f(
            "world", [](const S& s) { return s.first == nullptr ? std::nullopt : std::optional(s.first->world); }, "",
            "what the first trial was measured with");
        f(
            "mixed_worlds", [](const S& s) { return s.first == nullptr ? std::nullopt : std::optional(s.mixed); }, "",
            "whether trials come from different programs (revision, build, libraries) or machines (host, processor, "
            "kernel, GPU)");
      });
  return kAll;
}

namespace {

/// Empty: it fits, or nothing says what the device has.
std::string why_it_does_not_fit(const json& cell) {
  const json memory = cell.value("memory", json::object());
  if (memory.value("fits", true)) return "";
  const auto has = memory["device_bytes"].get<std::int64_t>();
  auto reserved = memory["reserved_bytes"].get<std::int64_t>();
  if (memory.contains("caching_allocator")) {
    reserved = memory["caching_allocator"]["peak_reserved_bytes"].get<std::int64_t>();
  }
  return fmt::format("does not fit: {} reserved of {}", format_bytes(reserved), format_bytes(has));
}

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : json_line(value); }

}  // namespace

json sweep_json(const SweepGrid& grid, const std::vector<LoggedTrial>& trials) {
  std::map<std::string, TrialsOfCell> by_cell;
  SweepFile file{grid, {}, nullptr, false};
  for (const LoggedTrial& logged : trials) {
    by_cell[logged.cell][logged.number] = &logged;
    if (!logged.trial) continue;
    if (file.first == nullptr) file.first = &*logged.trial;
    file.mixed = file.mixed || !same_program_and_machine(logged.trial->world, file.first->world);
  }
  for (const SweepCell& cell : grid.cells) file.cells.push_back(swept(grid, cell, by_cell[cell.id]));
  return fields<SweepFile>().write(file);
}

const ObjectFacts& sweep_file_facts() { return fields<SweepFile>().facts(); }

std::string sweep_table(const json& sweep) {
  Table table;
  table.title = sweep["title"];
  for (const json& axis : sweep["axes"]) table.header.push_back(axis["key"]);
  const account::IntervalKind interval = account::interval_of(sweep["trials"]);
  const bool with_interval = interval != account::IntervalKind::one_value;
  table.header.emplace_back("step ms");
  if (with_interval) table.header.emplace_back(to_string(interval));
  for (const char* name : {"exposed ms", "overlap %", "peak MiB", ""}) table.header.emplace_back(name);
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
      if (with_interval) row.push_back(number(step, "ci_low", 1) + " to " + number(step, "ci_high", 1));
      row.push_back(number(m, "exposed_comm_ms", 1));
      row.push_back(number(m, "overlap_pct", 1));
      row.push_back(number(cell["memory"].value("peak_bytes", json()), "total", 1.0 / (1 << 20)));
    } else {
      row.insert(row.end(), with_interval ? 5 : 4, "-");
    }
    row.push_back(cell["status"] != "ok"       ? cell["status"].get<std::string>()
                  : !cell.value("rated", true) ? "not rated"
                                               : why_it_does_not_fit(cell));
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
