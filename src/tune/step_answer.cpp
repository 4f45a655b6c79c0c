#include "tune/step_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fsdpbench::app {
namespace {

/// A figure of an answer, in files and tables.
struct AnswerFigure {
  const char *name, *label, *unit;
  std::optional<Estimate> (*of)(const StepAnswer&);
  const char* meaning;
};

using A = StepAnswer;
using O = std::optional<Estimate>;
// clang-format off
constexpr AnswerFigure kFigures[]{
    {"tokens_per_s_rank", "tokens/s a rank", "1/s", [](const A& a) { return a.tokens_per_s_rank; }, "tokens of one rank a second"},
    {"tokens_per_s", "tokens/s", "1/s", [](const A& a) { return a.tokens_per_s; }, "tokens of all ranks a second"},
    {"step_ms", "step time", "ms", [](const A& a) { return O(a.step_ms); }, "the step, of its slowest rank"},
    {"mfu_pct", "MFU", "%", [](const A& a) { return a.mfu_pct; }, "model FLOPs of the GPU's dense peak"},
    {"exposed_comm_ms", "exposed communication", "ms", [](const A& a) { return a.exposed_comm_ms; }, "time of a step in which a collective ran and nothing computed"},
    {"compute_ms", "compute", "ms", [](const A& a) { return a.compute_ms; }, "time of a step in which something computed"},
    {"comm_ms", "communication", "ms", [](const A& a) { return a.comm_ms; }, "time of a step in which a collective ran"},
    {"idle_ms", "idle", "ms", [](const A& a) { return a.idle_ms; }, "time of a step in which nothing ran"},
};
// clang-format on

struct Plain {
  static nlohmann::json write(const Estimate& estimate) { return estimate.value; }
  static TypeFacts facts() { return {"number"}; }
};

template <class Form>
Fields<A> fields_as(When mfu) {
  std::vector<Field<A>> rows;
  for (const AnswerFigure& figure : kFigures) {
    const When when = figure.unit == std::string_view("%") ? mfu : if_any;
    rows.emplace_back(figure.name, as<Form>(figure.of), figure.unit, figure.meaning, when);
  }
  return {"StepAnswer", "Answer of the computed clock about a step.", "tune/step_answer.h", {rows}};
}

}  // namespace

Estimate estimate_of(const account::Summary& s) {
  if (s.interval == account::IntervalKind::one_value) return {s.median, {}};
  return {s.median, clock::Bounds{s.ci_low, s.ci_high}};
}

StepAnswer answer_of(const account::RunMetrics& m, std::int64_t peak_bytes) {
  const auto known = [](double ms) { return Estimate{ms, {}}; };
  return {{},
          {},
          estimate_of(m.step_ms),
          {},
          known(m.exposed_comm_ms),
          known(m.compute_ms),
          known(m.comm_ms),
          known(m.idle_ms),
          peak_bytes};
}

template <>
Fields<StepAnswer> declared<StepAnswer>() {
  return fields_as<Plain>(if_any);
}

const Fields<StepAnswer>& bounded_fields() {
  static const Fields<StepAnswer> kAll = fields_as<JsonType<Estimate>>(or_null);
  return kAll;
}

template <>
Fields<Estimate> declared<Estimate>() {
  using E = Estimate;
  // JSON has no number for an end at infinity, so such an end is left out.
  const auto end = [](double clock::Bounds::*which) {
    return [=](const E& e) {
      return e.bounds && std::isfinite(*e.bounds.*which) ? std::optional(*e.bounds.*which) : std::nullopt;
    };
  };
  return {"Estimate",
          "A value and where it lies 95 times of 100.",
          "tune/step_answer.h",
          {{"value", &E::value, "", "the value"},
           {"low", end(&clock::Bounds::low), "", "lower end; null: nothing is in doubt, or it has no end", or_null},
           {"high", end(&clock::Bounds::high), "", "upper end, likewise", or_null}}};
}

Table answer_table(const AnswerTable& what) {
  Table table{what.title, {""}, {}};
  for (const auto& column : what.columns) table.header.push_back(column.name);
  table.header.emplace_back("");
  if (what.change) table.header.emplace_back("change");
  if (!what.interval.empty()) table.header.push_back(what.interval);
  const auto add = [&](const std::string& label, const char* unit, const std::vector<double>& values,
                       const auto& note) {
    const Shown shown(unit, std::ranges::max(values));
    std::vector<std::string>& row = table.rows.emplace_back(std::vector{label});
    for (const double value : values) row.push_back(shown.number(value));
    row.push_back(shown.unit());
    if (what.change) {
      const double from = values[values.size() - 2];
      row.push_back(from > 0 ? fmt::format("{:+.1f} %", 100 * (values.back() / from - 1)) : "-");
    }
    if (!what.interval.empty()) row.push_back(note(shown));
  };
  for (const AnswerFigure& figure : kFigures) {
    std::vector<double> values;
    for (const auto& column : what.columns) {
      if (const auto found = figure.of(column.answer)) values.push_back(found->value);
    }
    if (values.size() != what.columns.size()) continue;
    const std::optional<clock::Bounds> bounds = figure.of(what.columns.back().answer)->bounds;
    add(figure.label, figure.unit, values,
        [&](const Shown& shown) { return bounds ? shown.range(bounds->low, bounds->high) : ""; });
  }
  std::vector<double> bytes;
  for (const auto& column : what.columns) bytes.push_back(static_cast<double>(column.answer.peak_bytes));
  if (bytes.front() > 0) add(what.memory, "B", bytes, [&](const Shown&) { return what.memory_note; });
  return table;
}

}  // namespace fsdpbench::app
