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
  return {"StepAnswer", "What the clock answers about a step.", "tune/step_answer.h", {rows}};
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
  // What is without end has no number in JSON.
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
  const auto add = [&](const std::string& label, const char* unit, const std::vector<double>& values, const auto& text,
                       const std::string& note) {
    std::vector<std::string>& row = table.rows.emplace_back(std::vector{label});
    for (const double value : values) row.push_back(text(value));
    row.emplace_back(unit);
    if (what.change) {
      const double from = values[values.size() - 2];
      row.push_back(from > 0 ? fmt::format("{:+.1f} %", 100 * (values.back() / from - 1)) : "-");
    }
    if (!what.interval.empty()) row.push_back(note);
  };
  for (const AnswerFigure& figure : kFigures) {
    std::vector<double> values;
    for (const auto& column : what.columns) {
      if (const auto found = figure.of(column.answer)) values.push_back(found->value);
    }
    if (values.size() != what.columns.size()) continue;
    const std::string_view unit = figure.unit;
    const int digits = unit == "ms" ? 3 : unit == "%" ? 1 : values.front() < 100 ? 2 : 0;
    const auto text = [digits](double value) { return fmt::format("{:.{}f}", value, digits); };
    const std::optional<clock::Bounds> bounds = figure.of(what.columns.back().answer)->bounds;
    add(figure.label, figure.unit, values, text, bounds ? text(bounds->low) + " to " + text(bounds->high) : "");
  }
  std::vector<double> bytes;
  for (const auto& column : what.columns) bytes.push_back(static_cast<double>(column.answer.peak_bytes));
  const MemoryUnit unit(static_cast<std::int64_t>(std::ranges::max(bytes)));
  const auto text = [&](double amount) { return unit.text(static_cast<std::int64_t>(amount)); };
  if (bytes.front() > 0) add(what.memory, unit.name(), bytes, text, what.memory_note);
  return table;
}

std::string MemoryUnit::text(std::int64_t bytes) const {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / (small ? 1 << 20 : 1 << 30));
}

}  // namespace fsdpbench::app
