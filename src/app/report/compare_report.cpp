#include "app/report/compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "app/console/table.h"
#include "app/experiment/trial_json.h"
#include "base/error.h"
#include "metrics/statistics.h"

namespace fsdpbench::app {
namespace {

using metrics::Comparison;
using nlohmann::json;

constexpr int kCompareSchemaVersion = 1;

std::string change(double ratio) {
  const double percent = 100 * (ratio - 1);
  if (std::abs(percent) < 0.05) return "0.0 %";
  return fmt::format("{:.1f} % {}", std::abs(percent), percent > 0 ? "slower" : "faster");
}

/// Of one trial; absent: it was not measured.
using Number = std::function<std::optional<double>(const Trial&)>;

Number metric(std::string_view name) {
  return [name](const Trial& trial) -> std::optional<double> {
    for (const auto& [key, value] : metric_numbers(trial)) {
      if (key == name) return value;
    }
    return std::nullopt;
  };
}

/// Median over trials; absent if a trial does not have the number.
std::optional<double> median_of(const ComparedSide& side, const Number& number) {
  std::vector<double> values;
  for (const Trial& trial : side.trials) {
    const std::optional<double> value = number(trial);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  if (values.empty()) return std::nullopt;
  return metrics::median(values);
}

const char* verdict_name(metrics::Verdict verdict) {
  using enum metrics::Verdict;
  return verdict == faster ? "faster" : verdict == slower ? "slower" : "no difference";
}

json side_json(const ComparedSide& side, double median) {
  json j{{"name", side.name}, {"step_ms", median}, {"config", side.config}, {"trials", json::array()}};
  for (const Trial& trial : side.trials) {
    const json whole = to_json(trial);
    j["trials"].push_back({{"steps_ms", whole["steps_ms"]}, {"metrics", whole["metrics"]}});
    j["memory"] = whole["memory"];
  }
  return j;
}

/// What of a machine and a program may make two runs differ.
constexpr std::array kWorldKeys{"version", "git_revision", "git_dirty", "build_type", "compiler",
                                "backend", "cpu",          "threads",   "kernel",     "realtime"};

std::string text_or_dash(const json& value) {
  return value.is_null() ? "-" : value.is_string() ? value.get<std::string>() : value.dump();
}

/// "cpu: X / Y": what differs between the worlds of two stored results.
std::string world_differences(const json& a, const json& b, std::span<const char* const> keys = kWorldKeys) {
  std::string text;
  for (const char* key : keys) {
    const json left = a.value(key, json()), right = b.value(key, json());
    if (left == right) continue;
    text += fmt::format("{}{}: {} / {}", text.empty() ? "" : ", ", key, text_or_dash(left), text_or_dash(right));
  }
  return text;
}

/// Empty if the configurations are equal.
std::string differing_table(const ComparedSide& a, const ComparedSide& b) {
  Table table;
  table.header = {"differing key", "A", "B"};
  for (const DifferingKey& key : differing_keys(a.config, b.config)) {
    table.rows.push_back({key.key, text_or_dash(key.a), text_or_dash(key.b)});
  }
  return table.rows.empty() ? "" : "\n" + format_table(table);
}

std::string stored_note(const ComparedSide& a, const ComparedSide& b) {
  const World &left = a.trials.front().world, &right = b.trials.front().world;
  std::string text = fmt::format(
      "These are stored results of one run each ({} and {} steps; A of {}, B of {}). They did not take turns, so "
      "whatever the machine did in between counts as a difference. --rerun runs both in turns.\n",
      a.steps().front().size(), b.steps().front().size(), left.date, right.date);
  if (const std::string worlds = world_differences(to_json(left), to_json(right)); !worlds.empty()) {
    text += fmt::format("They come from different programs or machines: {}.\n", worlds);
  }
  return text;
}

std::string simulated_note(const ComparedSide& a, const ComparedSide& b) {
  constexpr std::array kProgram{"version", "git_revision", "git_dirty"};  // whatever machine computed them
  const std::string programs =
      world_differences(to_json(a.trials.front().world), to_json(b.trials.front().world), kProgram);
  return std::string("Simulated once each: the same program and seed give the same steps.\n") +
         (programs.empty() ? "" : fmt::format("They come from different programs: {}.\n", programs));
}

}  // namespace

ComparedSide stored_side(const std::string& name, const ResultFile& result) {
  const json config = result.content.value("config", json());
  if (!config.is_object()) throw_damaged(result);
  ComparedSide side{name, config, {}};
  try {
    side.trials.push_back(trial_from_json(result.content));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: is damaged: {}.", result.path, error.what()));
  }
  if (!side.trials.front().metrics) throw_damaged(result);
  return side;
}

std::vector<DifferingKey> differing_keys(const json& a, const json& b) {
  std::vector<DifferingKey> all;
  const json left = a.flatten(), right = b.flatten();
  const auto name = [](std::string pointer) {
    pointer.erase(0, 1);
    std::ranges::replace(pointer, '/', '.');
    return pointer;
  };
  for (const auto& [pointer, value] : left.items()) {
    const json other = right.value(pointer, json());
    if (value != other) all.push_back({name(pointer), value, other});
  }
  for (const auto& [pointer, value] : right.items()) {
    if (!left.contains(pointer) && !value.is_null()) all.push_back({name(pointer), json(), value});
  }
  return all;
}

std::vector<std::vector<double>> ComparedSide::steps() const {
  std::vector<std::vector<double>> all;
  for (const Trial& trial : trials) all.push_back(trial.metrics->steps_ms);
  return all;
}

std::string verdict_sentence(const Comparison& c, double threshold, Evidence evidence) {
  const char* suffix = evidence == Evidence::stored ? "'s run" : "";
  if (evidence == Evidence::simulated && c.ci_low == c.ci_high) {
    if (c.verdict != metrics::Verdict::no_difference) return fmt::format("B is {} than A, simulated.", change(c.ratio));
    if (c.ratio == 1) return "No difference: A and B take the same time, simulated.";
    return fmt::format("No relevant difference: B is {}, simulated (threshold {:.1f} %).", change(c.ratio),
                       100 * threshold);
  }
  const std::string interval = fmt::format("{:.0f} % interval of B / A: {:.3f} to {:.3f}",
                                           100 * metrics::kComparisonConfidence, c.ci_low, c.ci_high);
  if (c.verdict != metrics::Verdict::no_difference) {
    return fmt::format("B{0} is {1} than A{0} ({2}).", suffix, change(c.ratio), interval);
  }
  const bool certain = c.ci_low > 1 || c.ci_high < 1;
  if (certain) {
    return fmt::format("No relevant difference: B{} is {} (threshold {:.1f} %; {}).", suffix, change(c.ratio),
                       100 * threshold, interval);
  }
  return fmt::format("No difference found ({}); it could still be up to {:.1f} %.", interval,
                     100 * std::max(std::abs(c.ci_low - 1), std::abs(c.ci_high - 1)));
}

std::string compare_table(const ComparedSide& a, const ComparedSide& b, const Comparison& c, double threshold,
                          Evidence evidence) {
  const bool stored = evidence != Evidence::interleaved;  // one run a side
  Table table;
  table.header = {stored ? "median of steps" : "median of trials", "A", "B", "B / A", ""};
  const auto row = [&](const char* name, const Number& number, const char* unit) {
    const std::optional<double> left = median_of(a, number), right = median_of(b, number);
    const auto text = [&](std::optional<double> v) { return v ? fmt::format("{:.2f}", *v) : std::string("-"); };
    const bool ratio = left && right && *left > 0;
    table.rows.push_back({name, text(left), text(right), ratio ? fmt::format("{:.3f}", *right / *left) : "-", unit});
  };
  table.rows.push_back({"step time", fmt::format("{:.2f}", c.median_a), fmt::format("{:.2f}", c.median_b),
                        fmt::format("{:.3f}", c.ratio), stored ? "ms" : "ms; ratio: of neighbouring trials"});
  row("compute", metric("compute_ms"), "ms");
  row("communication", metric("comm_ms"), "ms");
  row("exposed communication", metric("exposed_comm_ms"), "ms");
  row("idle", metric("idle_ms"), "ms");
  row("overlap", metric("overlap_pct"), "%");
  row("tokens/s", metric("tokens_per_s"), "1/s");
  const auto peak_mib = [](const Trial& trial) {
    return std::optional(static_cast<double>(trial.memory.peak_occupied_total) / (1 << 20));
  };
  row("peak memory", peak_mib, "MiB");
  std::string text = text_line("A  " + a.name) + text_line("B  " + b.name) + '\n' + format_table(table);
  text += differing_table(a, b);
  text += "\n" + verdict_sentence(c, threshold, evidence) + "\n";
  if (evidence == Evidence::simulated) return text + simulated_note(a, b);
  if (stored) return text + stored_note(a, b);
  text += fmt::format("{} interleaved trials each", a.trials.size());
  if (c.aa_noise) {
    text += fmt::format("; A/A noise: two halves of one side's own trials differ by up to {:.1f} %", 100 * *c.aa_noise);
  }
  return text + ".\n";
}

json compare_json(const ComparedSide& a, const ComparedSide& b, const Comparison& c, double threshold,
                  Evidence evidence) {
  const bool stored = evidence == Evidence::stored, simulated = evidence == Evidence::simulated;
  json j{{"schema_version", kCompareSchemaVersion},
         {"verdict", verdict_name(c.verdict)},
         {"sentence", verdict_sentence(c, threshold, evidence)},
         {"ratio", c.ratio},
         {"ci_low", c.ci_low},
         {"ci_high", c.ci_high},
         {"confidence", metrics::kComparisonConfidence},
         {"threshold", threshold},
         {"interleaved", evidence == Evidence::interleaved},
         {"order", stored      ? "stored results, one run each, not in turns"
                   : simulated ? "simulated once each"
                               : "ABBA: A B, B A, A B, ..."},
         {"differing_keys", json::array()},
         {"a", side_json(a, c.median_a)},
         {"b", side_json(b, c.median_b)}};
  for (const DifferingKey& key : differing_keys(a.config, b.config)) {
    j["differing_keys"].push_back({{"key", key.key}, {"a", key.a}, {"b", key.b}});
  }
  if (c.aa_noise) j["aa_noise"] = *c.aa_noise;
  if (!a.trials.empty()) j["world"] = to_json(a.trials.front().world);
  return j;
}

}  // namespace fsdpbench::app
