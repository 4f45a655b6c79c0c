#include "app/report/compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "app/console/table.h"
#include "metrics/statistics.h"

namespace fsdpbench::app {
namespace {

using metrics::Comparison;
using metrics::Verdict;
using nlohmann::json;

constexpr int kCompareSchemaVersion = 1;

std::string change(double ratio) {
  const double percent = 100 * (ratio - 1);
  if (std::abs(percent) < 0.05) return "0.0 %";
  return fmt::format("{:.1f} % {}", std::abs(percent), percent > 0 ? "slower" : "faster");
}

/// Median over trials; absent if a trial does not have the number.
std::optional<double> median_of(const ComparedSide& side, const json::json_pointer& number) {
  std::vector<double> values;
  for (const json& trial : side.trials) {
    if (!trial.contains(number) || !trial[number].is_number()) return std::nullopt;
    values.push_back(trial[number].get<double>());
  }
  if (values.empty()) return std::nullopt;
  return metrics::median(values);
}

const char* verdict_name(Verdict verdict) {
  return verdict == Verdict::faster ? "faster" : verdict == Verdict::slower ? "slower" : "no difference";
}

json side_json(const ComparedSide& side, double median) {
  json j{{"name", side.name}, {"step_ms", median}, {"config", side.config}, {"trials", json::array()}};
  for (const json& trial : side.trials) {
    j["trials"].push_back({{"steps_ms", trial["steps_ms"]}, {"metrics", trial["metrics"]}});
  }
  if (!side.trials.empty()) j["memory"] = side.trials.back()["memory"];
  return j;
}

}  // namespace

std::vector<std::vector<double>> ComparedSide::steps() const {
  std::vector<std::vector<double>> all;
  for (const json& trial : trials) all.push_back(trial["steps_ms"].get<std::vector<double>>());
  return all;
}

std::string verdict_sentence(const Comparison& c, double threshold) {
  const std::string interval = fmt::format("{:.0f} % interval of B / A: {:.3f} to {:.3f}",
                                           100 * metrics::kComparisonConfidence, c.ci_low, c.ci_high);
  if (c.verdict != Verdict::no_difference) {
    return fmt::format("B is {} than A ({}).", change(c.ratio), interval);
  }
  const bool certain = c.ci_low > 1 || c.ci_high < 1;
  if (certain) {
    return fmt::format("No difference that matters: B is {}, less than {:.1f} % ({}).", change(c.ratio),
                       100 * threshold, interval);
  }
  return fmt::format("No difference found ({}); it could still be up to {:.1f} %.", interval,
                     100 * std::max(std::abs(c.ci_low - 1), std::abs(c.ci_high - 1)));
}

std::string compare_table(const ComparedSide& a, const ComparedSide& b, const Comparison& c, double threshold) {
  Table table;
  table.title = fmt::format("A  {}\nB  {}\n", a.name, b.name);
  table.header = {"median of trials", "A", "B", "B / A", ""};
  const auto row = [&](const char* name, const char* pointer, double scale, const char* unit) {
    const json::json_pointer number(pointer);
    const std::optional<double> left = median_of(a, number), right = median_of(b, number);
    const auto text = [&](std::optional<double> v) { return v ? fmt::format("{:.2f}", *v * scale) : std::string("-"); };
    const bool ratio = left && right && *left > 0;
    table.rows.push_back({name, text(left), text(right), ratio ? fmt::format("{:.3f}", *right / *left) : "-", unit});
  };
  table.rows.push_back({"step time", fmt::format("{:.2f}", c.median_a), fmt::format("{:.2f}", c.median_b),
                        fmt::format("{:.3f}", c.ratio), "ms; ratio: of neighbouring trials"});
  row("compute", "/metrics/compute_ms", 1, "ms");
  row("communication", "/metrics/comm_ms", 1, "ms");
  row("exposed communication", "/metrics/exposed_comm_ms", 1, "ms");
  row("idle", "/metrics/idle_ms", 1, "ms");
  row("overlap", "/metrics/overlap_pct", 1, "%");
  row("tokens/s", "/metrics/tokens_per_s", 1, "1/s");
  row("peak memory", "/memory/peak_bytes/total", 1.0 / (1 << 20), "MiB");
  std::string text = format_table(table);
  text += "\n" + verdict_sentence(c, threshold) + "\n";
  text += fmt::format("{} interleaved trials each", a.trials.size());
  if (c.aa_noise) {
    text += fmt::format("; A/A noise: two halves of one side's own trials differ by up to {:.1f} %", 100 * *c.aa_noise);
  }
  return text + ".\n";
}

json compare_json(const ComparedSide& a, const ComparedSide& b, const Comparison& c, double threshold) {
  json j{{"schema_version", kCompareSchemaVersion},
         {"verdict", verdict_name(c.verdict)},
         {"sentence", verdict_sentence(c, threshold)},
         {"ratio", c.ratio},
         {"ci_low", c.ci_low},
         {"ci_high", c.ci_high},
         {"confidence", metrics::kComparisonConfidence},
         {"threshold", threshold},
         {"order", "ABBA: A B, B A, A B, ..."},
         {"a", side_json(a, c.median_a)},
         {"b", side_json(b, c.median_b)}};
  if (c.aa_noise) j["aa_noise"] = *c.aa_noise;
  if (!a.trials.empty()) j["world"] = a.trials.front()["world"];
  return j;
}

}  // namespace fsdpbench::app
