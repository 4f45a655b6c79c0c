#include "runs/sweep_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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

std::vector<json> json_list(const std::vector<config::Value>& values) {
  std::vector<json> all;
  for (const config::Value& value : values) all.push_back(json_of(value));
  return all;
}

/// Result of a cell's trials.
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

/// Parts of sweep.json.
struct SweepFile {
  const SweepGrid* grid;
  std::vector<SweptCell> cells;
  const Trial* first = nullptr;  ///< null: no trial was done
  bool mixed = false;
};

bool was_done(const SweptCell& cell) { return !cell.done.empty(); }
const Trial& example(const SweptCell& cell) { return *typical(cell.done).front(); }
bool is_unrated(const SweptCell& cell) { return cell.unrated() != nullptr; }
bool has_causes(const SweptCell& cell) {
  return was_done(cell) && !is_unrated(cell) && example(cell).causes.has_value();
}
bool is_complete(const SweepFile& file) {
  return std::ranges::none_of(file.cells, [](const SweptCell& cell) { return cell.status() == "incomplete"; });
}

/// The metrics of a cell: every figure of a trial's.
std::vector<Field<SweptCell>> figures_of_cell() {
  std::vector<Field<SweptCell>> rows;
  for (const FieldFacts& field : metrics_fields().facts().fields) {
    if (field.figure.label.empty() || field.name == "step_ms") continue;
    const auto figure = [path = "metrics." + field.name](const SweptCell& c) { return typical_figure(c.done, path); };
    rows.push_back({field.name, figure, field.unit, field.meaning, field.figure});
  }
  return rows;
}

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

/// A number of a cell by its path; nothing where it was not measured.
std::optional<double> number_of(const json& cell, const char* path) {
  const json found = cell.value(json::json_pointer(path), json());
  return found.is_number() ? std::optional(found.get<double>()) : std::nullopt;
}
std::optional<double> step_of_cell(const json& cell) { return number_of(cell, "/metrics/step_ms/median"); }

/// It can be called the fastest.
bool competes(const json& cell) {
  return cell["status"] == "ok" && cell.value("rated", true) && step_of_cell(cell) && why_it_does_not_fit(cell).empty();
}

/// "fsdp.layout=flat, mesh.ranks=4" of the axes that vary, and that are settings or not.
std::string axes_text(const json& sweep, const json& cell, bool settings) {
  // They make a step other work, or the machine another one: times compare within their values only.
  constexpr std::array<std::string_view, 6> kWork{"model.", "train.", "mesh.", "emulate.", "data.", "inject."};
  std::string text;
  for (const json& axis : sweep["axes"]) {
    const std::string key = axis["key"];
    const bool work = std::ranges::any_of(kWork, [&](std::string_view room) { return key.starts_with(room); });
    if (axis["values"].size() < 2 || work == settings) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", key, text_of(cell["axes"][key]));
  }
  return text;
}

/// Cells that do the same work, the fastest first; those that do not compete come last.
struct SameWork {
  std::string name;  ///< empty: all cells do
  std::vector<const json*> cells;
  const json* best = nullptr;  ///< what needs the least memory of those as fast as the fastest; null: none competes

  bool is_as_fast(const json& cell) const {
    constexpr double kSame = 0.005;
    const double fastest = *step_of_cell(*cells.front());
    const double bound =
        std::max(fastest * (1 + kSame), number_of(*cells.front(), "/metrics/step_ms/ci_high").value_or(0));
    return competes(cell) && number_of(cell, "/metrics/step_ms/ci_low").value_or(*step_of_cell(cell)) <= bound;
  }
};

std::vector<SameWork> by_work(const json& sweep) {
  std::vector<SameWork> all;
  for (const json& cell : sweep["cells"]) {
    const std::string name = axes_text(sweep, cell, false);
    auto same = std::ranges::find(all, name, &SameWork::name);
    if (same == all.end()) same = all.insert(all.end(), {name, {}});
    same->cells.push_back(&cell);
  }
  for (SameWork& same : all) {
    std::ranges::stable_sort(
        same.cells, {}, [](const json* cell) { return std::pair(!competes(*cell), step_of_cell(*cell).value_or(0)); });
    if (!competes(*same.cells.front())) continue;
    const auto needs = [](const json* cell) { return number_of(*cell, "/memory/peak_bytes/total").value_or(INFINITY); };
    for (const json* cell : same.cells) {
      if (same.is_as_fast(*cell) && (same.best == nullptr || needs(cell) < needs(same.best))) same.best = cell;
    }
  }
  return all;
}

/// The answer of the sweep, a line for each work.
std::string fastest_lines(const json& sweep, const std::vector<SameWork>& all) {
  constexpr std::size_t kMostNamed = 4;
  std::string text;
  for (const SameWork& same : all) {
    if (same.best == nullptr || same.cells.size() < 2) continue;
    std::string equal;
    std::size_t count = 0;
    for (const json* cell : same.cells) {
      if (cell == same.best || !same.is_as_fast(*cell) || ++count > kMostNamed) continue;
      equal += fmt::format("{}{}", equal.empty() ? "; as fast: " : "; ", axes_text(sweep, *cell, true));
    }
    if (count > kMostNamed) equal += fmt::format("; and {} more", count - kMostNamed);
    text += text_line(fmt::format("{}{}fastest with {}, {} a step{}", same.name, same.name.empty() ? "" : ": ",
                                  axes_text(sweep, *same.best, true), shown(*step_of_cell(*same.best), "ms"), equal));
  }
  return text;
}

}  // namespace

// clang-format off
template <>
Fields<CellStep> declared() {
  return {"CellStep", "The step time of a cell. A trial counts as one value, its median.", "runs/sweep_report.cpp", {
    spread(&CellStep::trials),
    {"min", &CellStep::min, "", "shortest of all steps"},
    {"max", &CellStep::max, "", "longest of all steps"},
    {"steps", &CellStep::steps, "", "number of steps"},
  }};
}

template <>
Fields<SweptCell> declared() {
  using C = SweptCell;
  return {"Cell", "A cell of the sweep: one configuration.", "runs/sweep_report.cpp", {
    {"id", &C::id, "", "name of the cell in `trials.jsonl`"},
    {"axes", &C::axes, "", "value of the cell on each axis"},
    {"trials", [](const C& c) { return c.done.size(); }, "", "number of trials that were done"},
    {"status", &C::status, "", "`ok`, `failed` or `incomplete`"},
    {"reason", via(&C::failure, &LoggedTrial::reason), "", "why it failed", when(&C::failure)},
    {"metrics", {"CellMetrics", "Means over the trials of median step time, one or two.", "runs/sweep_report.cpp", {
      {"step_ms", via(&C::done, step_of), "ms", "step time over trials"},
      figures_of_cell(),
    }}, when(was_done)},
    {"memory", as<ObjectOf<memory_fields>>(example), "", "memory in the trial with the median step time (the faster of two)", when(was_done)},
    {"comm", as<ObjectOf<comm_fields>>(example), "", "bytes sent in the same trial", when(was_done)},
    {"causes", via(example, &Trial::causes, &account::CauseReport::causes), "", "causes in the same trial; absent unless the cell is rated", when(has_causes)},
    {"rated", via(is_unrated, std::logical_not<>()), "", "whether the numbers describe what was asked for", when(was_done)},
    {"not_rated_because", [](const C& c) { return account::why_not_rated(c.unrated()->fidelity); }, "", "why the cell is not rated", when(is_unrated)},
  }};
}

template <>
Fields<config::SweepAxis> declared() {
  using A = config::SweepAxis;
  return {"Axis", "A key with its values.", "config/sweep_file.h", {
    {"key", &A::key, "", "dotted name of the key"},
    {"values", via(&A::values, json_list), "", "values of the axis, in their order"},
  }};
}

template <>
Fields<SweepFile> declared() {
  using S = SweepFile;
  return {"Sweep", "sweep.json: a grid of cells ([sweep.md](sweep.md)).", "runs/sweep_report.cpp", {
    {"title", via(&S::grid, &SweepGrid::file, &config::SweepFile::title), "", "title of the sweep"},
    {"sweep_hash", via(&S::grid, &SweepGrid::hash), "", "hash of everything that decides what is measured"},
    {"base", via(&S::grid, &SweepGrid::file, &config::SweepFile::base), "", "profile that all cells share"},
    {"set", via(&S::grid, &SweepGrid::base_overrides), "", "keys that override the profile, as `key=value`"},
    {"trials", via(&S::grid, &SweepGrid::file, &config::SweepFile::trials), "", "number of trials of each cell"},
    {"order", [](const S&) { return "rounds: trial 0 of every cell, then trial 1, and so on; shuffled anew each round"; }, "", "order in which trials ran"},
    {"skipped_cells", via(&S::grid, &SweepGrid::skipped), "", "number of cells that `[[skip]]` left out"},
    {"x", via(&S::grid, &SweepGrid::file, &config::SweepFile::x), "", "key on the x axis of figures", if_any},
    {"series", via(&S::grid, &SweepGrid::file, &config::SweepFile::series), "", "keys that figures draw as lines", if_any},
    {"axes", via(&S::grid, &SweepGrid::file, &config::SweepFile::axes), "", "axes of the sweep; the last one changes fastest"},
    {"cells", &S::cells, "", "cells of the sweep: the product of the axes"},
    {"complete", is_complete, "", "whether every cell is `ok` or `failed`"},
    {"world", via(&S::first, &Trial::world), "", "what the first trial was measured with", when(&S::first)},
    {"mixed_worlds", &S::mixed, "", "whether trials come from different programs (revision, build, libraries) or machines (host, processor, kernel, GPU)", when(&S::first)},
  }};
}
// clang-format on

json sweep_json(const SweepGrid& grid, const std::vector<LoggedTrial>& trials) {
  std::map<std::string, TrialsOfCell> by_cell;
  SweepFile file{&grid, {}, nullptr, false};
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
  struct Shows {
    const char *name, *path, *unit;
  };
  constexpr std::array kColumns{
      Shows{"step", "/metrics/step_ms/median", "ms"}, Shows{"exposed", "/metrics/exposed_comm_ms", "ms"},
      Shows{"overlap", "/metrics/overlap_pct", "%"}, Shows{"peak", "/memory/peak_bytes/total", "B"}};
  Table table;
  table.title = sweep["title"];
  for (const json& axis : sweep["axes"]) table.header.push_back(axis["key"]);
  const account::IntervalKind interval = account::interval_of(sweep["trials"]);
  std::vector<Shown> columns;  // each has one unit
  for (const Shows& column : kColumns) {
    double most = 0;
    for (const json& cell : sweep["cells"]) most = std::max(most, number_of(cell, column.path).value_or(0));
    columns.emplace_back(column.unit, most);
    table.header.push_back(fmt::format("{}, {}", column.name, columns.back().unit()));
    if (columns.size() == 1 && interval != account::IntervalKind::one_value)
      table.header.emplace_back(to_string(interval));
  }
  table.header.emplace_back("");
  const std::vector<SameWork> all = by_work(sweep);
  for (const SameWork& same : all) {
    for (const json* one : same.cells) {
      const json& cell = *one;
      std::vector<std::string> row;
      for (const json& axis : sweep["axes"]) row.push_back(text_of(cell["axes"][axis["key"].get<std::string>()]));
      for (std::size_t c = 0; c < kColumns.size(); ++c) {
        const std::optional<double> value = number_of(cell, kColumns[c].path);
        row.push_back(value ? columns[c].number(*value) : "-");
        if (c > 0 || interval == account::IntervalKind::one_value) continue;
        const auto low = number_of(cell, "/metrics/step_ms/ci_low"), high = number_of(cell, "/metrics/step_ms/ci_high");
        row.push_back(low && high ? columns[c].range(*low, *high) : "-");
      }
      row.push_back(cell["status"] != "ok"       ? cell["status"].get<std::string>()
                    : !cell.value("rated", true) ? "not rated"
                    : !competes(cell)            ? why_it_does_not_fit(cell)
                    : same.cells.size() < 2      ? ""
                    : one == same.best           ? "best"
                    : same.is_as_fast(cell)      ? "as fast"
                                                 : "");
      table.rows.push_back(std::move(row));
    }
  }
  std::string text = fastest_lines(sweep, all) + format_table(table) + "\n";
  for (const json& cell : sweep["cells"]) {
    if (cell["status"] == "failed")
      text += fmt::format("failed  {}: {}\n", json_line(cell["axes"]), text_of(cell["reason"]));
  }
  return text;
}

}  // namespace fsdpbench::app
