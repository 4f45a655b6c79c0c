#include "runs/compare_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "record/table.h"
#include "runs/result_fields.h"

namespace fsdpbench::app {
namespace {

using account::Verdict;
using nlohmann::json;

std::string change(double ratio) {
  const double percent = 100 * (ratio - 1);
  if (std::abs(percent) < 0.05) return "the same step time";
  return fmt::format("{:.1f} % {} step time", std::abs(percent), percent > 0 ? "more" : "less");
}

/// Median over trials; absent if a trial does not have the figure.
std::optional<double> median_of(const ComparedSide& side, std::string_view path) {
  std::vector<double> values;
  for (const Trial& trial : side.trials) {
    const std::vector<TrialFigure> figures = figures_of(trial);
    const auto figure = std::ranges::find(figures, path, &TrialFigure::path);
    if (figure == figures.end()) return std::nullopt;
    values.push_back(figure->value);
  }
  if (values.empty()) return std::nullopt;
  return account::median(values);
}

/// Facts of a machine and a program that may make two runs differ.
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
  const auto of = [](const World& world) { return world.date.empty() ? "a simulation" : world.date; };
  std::string text = fmt::format(
      "These are stored results of one run each ({} and {} steps; A of {}, B of {}). They did not take turns, so "
      "whatever the machine did in between counts as a difference. --rerun runs both in turns.\n",
      a.steps().front().size(), b.steps().front().size(), of(left), of(right));
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

std::vector<double> ComparedSide::medians() const {
  std::vector<double> all;
  for (const Trial& trial : trials) all.push_back(account::median(trial.metrics->steps_ms));
  return all;
}

double ComparedSide::median_ms() const { return account::median(medians()); }

Comparison compare_sides(ComparedSide a, ComparedSide b, Evidence evidence, double threshold) {
  Comparison c{std::move(a), std::move(b), evidence, threshold, {}, {}};
  if (evidence == Evidence::interleaved) {
    c.difference = account::judge_in_turns(c.a.steps(), c.b.steps(), threshold);
    const std::optional<double> noise_a = account::aa_noise(c.a.medians()), noise_b = account::aa_noise(c.b.medians());
    if (noise_a && noise_b) c.aa_noise = std::max(*noise_a, *noise_b);
    return c;
  }
  const auto samples = [](const ComparedSide& side) {
    const std::vector<double> steps = side.steps().front();
    return account::Samples{.results = side.medians(), .repetitions = steps, .value = account::median_interval(steps)};
  };
  const account::Samples before = samples(c.a), now = samples(c.b);
  // A simulation's steps may differ by jitter that is drawn; fewer steps cannot show how much.
  const bool few = std::cmp_less(std::min(before.repetitions.size(), now.repetitions.size()), account::kFewestTrials);
  c.difference =
      account::judge(before, now, {.threshold = threshold, .counted = few && evidence == Evidence::simulated});
  return c;
}

std::string verdict_sentence(const Comparison& comparison) {
  const account::Difference& d = comparison.difference;
  const char* suffix = comparison.evidence == Evidence::stored ? "'s run" : "";
  const double percent = 100 * comparison.threshold;
  if (comparison.evidence == Evidence::simulated && d.low == d.high) {
    if (d.verdict != Verdict::no_difference) return fmt::format("B takes {} than A, simulated.", change(d.ratio));
    if (d.ratio == 1) return "No difference: A and B take the same time, simulated.";
    return fmt::format("No relevant difference: B takes {}, simulated (threshold {:.1f} %).", change(d.ratio), percent);
  }
  const std::string interval =
      fmt::format("{:.0f} % interval of B / A: {:.3f} to {:.3f}", 100 * (1 - 2 * account::kTail), d.low, d.high);
  const bool certain = d.low > 1 || d.high < 1;
  switch (d.verdict) {
    case Verdict::faster:
    case Verdict::slower: return fmt::format("B{0} takes {1} than A{0} ({2}).", suffix, change(d.ratio), interval);
    case Verdict::no_difference:
      return fmt::format("No relevant difference: B{} takes {} (threshold {:.1f} %; {}).", suffix, change(d.ratio),
                         percent, interval);
    case Verdict::inconclusive: break;
  }
  if (certain) {
    return fmt::format("Inconclusive: B{} takes {} ({}); whether it is {:.1f} % is not known.", suffix, change(d.ratio),
                       interval, percent);
  }
  return fmt::format("No difference found ({}); it could still be up to {:.1f} %.", interval,
                     100 * std::max(std::abs(d.low - 1), std::abs(d.high - 1)));
}

std::string compare_table(const Comparison& c) {
  const ComparedSide &a = c.a, &b = c.b;
  const bool stored = c.evidence != Evidence::interleaved;  // one run a side
  Table table;
  table.header = {stored ? "median of steps" : "median of trials", "A", "B", "B / A", ""};
  const Shown time("ms", std::max(a.median_ms(), b.median_ms()));  // parts of a step have its unit
  const auto row = [&](const std::string& name, std::string_view unit, std::optional<double> left,
                       std::optional<double> right, std::optional<double> ratio, const char* note) {
    const double most = std::max(left.value_or(0), right.value_or(0));
    const Shown value = unit == "ms" ? time : Shown(unit, most);
    const auto text = [&](std::optional<double> v) { return v ? value.number(*v) : std::string("-"); };
    table.rows.push_back(
        {name, text(left), text(right), ratio ? fmt::format("{:.3f}", *ratio) : "-", value.unit() + note});
  };
  row("step time", "ms", a.median_ms(), b.median_ms(), c.difference.ratio,
      stored ? "" : "; ratio: of neighbouring trials");
  for (const char* path : {"metrics.compute_ms", "metrics.comm_ms", "metrics.exposed_comm_ms", "metrics.idle_ms",
                           "metrics.overlap_pct", "metrics.tokens_per_s", "memory.peak_bytes"}) {
    const FieldFacts& field = figure_at(path);
    const std::optional<double> left = median_of(a, path), right = median_of(b, path);
    const bool compares = left && right && *left > 0;
    row(field.figure.label, field.unit, left, right, compares ? std::optional(*right / *left) : std::nullopt, "");
  }
  std::string text = text_line("A  " + a.name) + text_line("B  " + b.name) + '\n' + format_table(table);
  text += differing_table(a, b);
  text += "\n" + verdict_sentence(c) + "\n";
  if (c.evidence == Evidence::simulated) return text + simulated_note(a, b);
  if (stored) return text + stored_note(a, b);
  text += fmt::format("{} interleaved trials each", a.trials.size());
  if (c.aa_noise) {
    text += fmt::format("; A/A noise: two halves of one side's own trials differ by up to {:.1f} %", 100 * *c.aa_noise);
  }
  return text + ".\n";
}

namespace {

bool in_turns(const Comparison& c) { return c.evidence == Evidence::interleaved; }

std::string order_of(const Comparison& c) {
  return c.evidence == Evidence::stored      ? "stored results, one run each, not in turns"
         : c.evidence == Evidence::simulated ? "simulated once each"
                                             : "ABBA: A B, B A, A B, ...";
}

// clang-format off
const Fields<Trial>& compared_trial_fields() {
  static const Fields<Trial> kAll{"ComparedTrial", "A trial of one side.", "runs/trial.h", {
    {"metrics", metrics_fields()},
    spread(&Trial::metrics, step_times_fields()),
  }};
  return kAll;
}

}  // namespace

template <>
Fields<DifferingKey> declared() {
  return {"DifferingKey", "A key whose values differ; null on a side that does not have it.", "runs/compare_report.h", {
    {"key", &DifferingKey::key, "", "dotted name of the key"},
    {"a", &DifferingKey::a, "", "value on side A"},
    {"b", &DifferingKey::b, "", "value on side B"},
  }};
}

template <>
Fields<ComparedSide> declared() {
  using S = ComparedSide;
  return {"ComparedSide", "One side of a comparison.", "runs/compare_report.h", {
    {"name", &S::name, "", "profile and overrides, or name of the result"},
    {"step_ms", &S::median_ms, "ms", "median step time"},
    {"config", &S::config, "", "every key with its resolved value"},
    {"trials", as<ListOf<compared_trial_fields>>(&S::trials), "", "trials in the order in which they ran"},
    {"memory", as<ObjectOf<memory_fields>>([](const S& s) -> const Trial& { return s.trials.back(); }), "", "memory in the last trial", when([](const S& s) { return !s.trials.empty(); })},
  }};
}

template <>
Fields<Comparison> declared() {
  using C = Comparison;
  using D = account::Difference;
  return {"Comparison", "compare.json: whether B is slower than A ([compare.md](compare.md)).", "account/judge.h", {
    {"schema_version", [](const C&) { return kCompareSchemaVersion; }, "", "version of this file's format"},
    {"verdict", via(&C::difference, &D::verdict), "", "whether B is `faster`, `slower`, there is `no difference`, or it is `inconclusive`"},
    {"sentence", verdict_sentence, "", "the verdict in a sentence"},
    {"ratio", via(&C::difference, &D::ratio), "", "step time of B divided by that of A"},
    {"ci_low", via(&C::difference, &D::low), "", "lower end of the interval of the ratio"},
    {"ci_high", via(&C::difference, &D::high), "", "upper end of that interval"},
    {"confidence", [](const C&) { return 1 - 2 * account::kTail; }, "", "confidence level of the interval"},
    {"threshold", &C::threshold, "", "smallest difference that matters, as a fraction"},
    {"interleaved", in_turns, "", "whether the trials of both sides took turns"},
    {"order", order_of, "", "order in which trials ran"},
    {"differing_keys", [](const C& c) { return differing_keys(c.a.config, c.b.config); }, "", "every key of the configurations whose two values differ"},
    {"a", &C::a, "", "side A"},
    {"b", &C::b, "", "side B"},
    {"aa_noise", &C::aa_noise, "", "by how much two halves of one side's own trials differ, as a fraction; absent for stored results, simulations and fewer than 4 trials"},
    {"world", [](const C& c) { return c.a.trials.empty() ? std::nullopt : std::optional(c.a.trials.front().world); }, "", "what A's first trial was measured with"},
  }};
}
// clang-format on

json compare_json(const Comparison& comparison) { return fields<Comparison>().write(comparison); }

const ObjectFacts& comparison_file_facts() { return fields<Comparison>().facts(); }

}  // namespace fsdpbench::app
