#include "tune/tune_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "account/statistics.h"
#include "base/bytes.h"
#include "base/enum_table.h"
#include "config/fields.h"
#include "config/spelling.h"
#include "config/write.h"
#include "record/table.h"
#include "tune/run_doubt.h"
#include "tune/step_answer.h"

namespace fsdpbench::app {
namespace {

using tune::Objective;
using tune::settings_text;

Shown memory_shown(const Tuning& t) {
  return {"B", static_cast<double>(std::max(t.result.start().predicted_bytes, t.best().predicted_bytes))};
}
std::string in_memory(const Tuning& t, std::int64_t bytes) {
  return memory_shown(t).number(static_cast<double>(bytes));
}
std::string in_full(double number) { return fmt::format("{:.0f}", number); }

StepAnswer answer_for(const tune::Tried& tried) {
  StepAnswer answer;
  answer.step_ms.value = tried.step_ns / 1e6;
  answer.tokens_per_s = {tried.step_ns > 0 ? tried.tokens / tried.step_ns * 1e9 : 0, {}};
  answer.peak_bytes = tried.predicted_bytes;
  return answer;
}

Table front_table(const Tuning& t) {
  Table table;
  table.title = "least memory for each step time (Pareto front)";
  const Shown step("ms", t.result.start().step_ns / 1e6);
  table.header = {"", fmt::format("step, {}", step.unit()),
                  fmt::format("{} memory, {}", to_string(t.options.budget.kind), memory_shown(t).unit()), "",
                  "settings"};
  std::vector<std::size_t> front = t.answer.front;
  constexpr std::size_t kMostRows = 12;
  std::vector<std::size_t> shown;  // evenly spread, the ends among them
  for (std::size_t i = 0; i < front.size(); ++i) {
    const std::size_t slots = std::min(front.size(), kMostRows);
    if (shown.size() < slots && i * (slots - 1 + (slots == 1)) >= shown.size() * (front.size() - 1))
      shown.push_back(front[i]);
  }
  for (const std::size_t i : shown) {
    const tune::Tried& tried = t.result.tried[i];
    table.rows.push_back({i == *t.result.best ? "best"
                          : i == 0            ? "current"
                                              : "",
                          step.number(tried.step_ns / 1e6), in_memory(t, tried.predicted_bytes),
                          tried.retries ? "retries"
                          : tried.fits  ? "fits"
                                        : "too much",
                          settings_text(t.space.settings_at(tried.point))});
  }
  return table;
}

std::string gain_or_dash(const std::optional<double>& gain) {
  return gain ? fmt::format("{:+.1f} %", 100 * *gain) : "-";
}

Table turned_table(const Tuning& t) {
  Table table;
  table.title = "what each change gains: on its own, and when added last";
  table.header = {"from", "to", "alone", "last in", fmt::format("memory, {}", memory_shown(t).unit())};
  for (const tune::TurnedKnob& knob : t.answer.turned) {
    table.rows.push_back(
        {knob.was, knob.is, gain_or_dash(knob.alone), gain_or_dash(knob.last_in),
         knob.more_bytes ? fmt::format("{}{}", *knob.more_bytes < 0 ? "" : "+", in_memory(t, *knob.more_bytes)) : "-"});
  }
  return table;
}

std::string_view objective_text(const Tuning& t) {
  constexpr EnumNames<Objective> kNames{"step time", "memory", "time a token"};
  return kNames[t.options.objective];
}

/// Empty where nothing else was tried: then no best was found that could be changed.
std::string idle_knobs(const Tuning& t) {
  if (t.result.tried.size() == 1) return {};
  std::vector<std::string> names;
  for (const tune::LeftKnob& knob : t.answer.left) {
    if (!knob.matters) names.push_back(knob.key);
  }
  return names.empty() ? std::string()
                       : fmt::format("alone, each of these changes the best {} by less than {:.3g} %: {}\n",
                                     objective_text(t), 100 * t.least_gain, fmt::join(names, ", "));
}

/// How the answer changes the numbers that a training computes, which is said first; empty if it does not.
std::string numerics(const Tuning& t) {
  const auto best = t.space.config_at(t.best().point);
  if (t.answer.keep || !best) return "";
  std::string changes;
  for (const char* key : {"fsdp.param_dtype", "fsdp.reduce_dtype"}) {
    const config::Field& field = *config::find_field(key);
    const config::Value was = field.write(t.space.start()), is = field.write(*best);
    if (was != is) changes += fmt::format(", {} {} instead of {}", key, config::to_toml(is), config::to_toml(was));
  }
  return changes.empty() ? "" : fmt::format("It changes numerics, as was allowed: {}.\n", changes.substr(2));
}

constexpr const char* kMadeUpMemory =
    "No trace tells memory: --memory was compared with that of a made-up job. Measure the job's own before you rely on "
    "what fits.";

/// The policies that a verdict is about: a few say nothing of the others.
std::string of_which(const Tuning& t) {
  const auto tried = t.result.tried.size();
  const auto fit = static_cast<std::size_t>(std::ranges::count_if(t.result.tried, &tune::Tried::fits));
  return fmt::format("of the {} policies tried,{} the best", tried,
                     fit == tried ? "" : fmt::format(" of which {} fit{},", fit, fit == 1 ? "s" : ""));
}

std::string verdict(const Tuning& t) {
  const std::string_view of = objective_text(t);
  std::string interval;
  if (t.answer.gain_low) {
    interval = fmt::format(" (95 of 100 such predictions: {:.1f} to {:.1f} %)", 100 * *t.answer.gain_low,
                           100 * *t.answer.gain_high);
  } else if (t.answer.unknown) {
    interval = " (no interval)";
  }
  if (t.answer.keep) {
    const double gap = optimality_gap(t.options.objective, t.result);
    const bool of_all = t.result.bounded && gap <= 0;
    std::string why = "nothing else was tried";
    if (t.result.tried.size() > 1) {
      why = fmt::format("{} would take {:.1f} % less {}{}, which {}", of_all ? "the best of all" : of_which(t),
                        100 * std::max(0.0, t.answer.gain), of, interval,
                        t.answer.gain < t.least_gain ? "is below what counts" : "is not certain");
    }
    if (!t.result.bounded || gap >= t.least_gain) {
      why += t.result.stopped ? "; it was interrupted before the others were known"
                              : "; --evaluations was too few to know of the others";
    }
    return fmt::format("Keep what you have: {}.\n{}", why,
                       t.result.start().retries
                           ? fmt::format("It fits only where the allocator returns cached memory to the driver, whose "
                                         "time is not in the step; without that it needs {} {}.\n",
                                         in_memory(t, t.result.start().predicted_bytes + t.result.start().margin_bytes),
                                         memory_shown(t).unit())
                           : "");
  }
  if (!t.result.start().fits) {
    return fmt::format("The current configuration does not fit: it needs {} {}.\n",
                       in_memory(t, t.result.start().predicted_bytes + t.result.start().margin_bytes),
                       memory_shown(t).unit());
  }
  return fmt::format("{:.1f} % less {} than the current configuration{}.\n{}", 100 * t.answer.gain, of, interval,
                     t.answer.unknown ? fmt::format("{}, or measure the gain with --verify\n", kNoInterval) : "");
}

std::vector<std::string> row_of(const VerifiedPolicy& policy, const char* name) {
  const double measured = policy.median_ms();
  const auto& against = policy.against;
  const auto memory = [](std::int64_t bytes) { return shown(static_cast<double>(bytes), "B"); };
  const bool ran = measured > 0;
  return {name,
          shown(policy.predicted_ms, "ms"),
          ran ? shown(measured, "ms") : "-",
          ran ? fmt::format("{:+.1f} %", 100 * (policy.predicted_ms / measured - 1)) : "-",
          against ? fmt::format("{:.3f}", against->ratio) : "-",
          against ? fmt::format("{:.3f} to {:.3f}", against->low, against->high) : "-",
          memory(policy.predicted_live_bytes),
          ran ? memory(policy.live_bytes) : "-",
          std::to_string(policy.trials_ms.size()),
          policy.failed.empty() ? settings_text(policy.settings) : policy.failed};
}

/// A policy as files have it.
struct Policy {
  const tune::Tried& tried;
  tune::Settings settings;
};
Policy policy_of(const Tuning& t, const tune::Tried& tried) { return {tried, t.space.settings_at(tried.point)}; }

}  // namespace

std::string tune_text(const Tuning& t) {
  Table table = answer_table({.title = fmt::format("{}: {} ranks, by {}", t.name, t.space.start().mesh.ranks, t.basis),
                              .columns = {{"current", answer_for(t.result.start())}, {"best", answer_for(t.best())}},
                              .change = true,
                              .memory = fmt::format("{} memory", to_string(t.options.budget.kind))});
  const std::string unit = memory_shown(t).unit();
  table.rows.push_back(
      {"its margin", in_memory(t, t.result.start().margin_bytes), in_memory(t, t.best().margin_bytes), unit, ""});
  if (const std::int64_t budget = t.options.budget.bytes; budget > 0) {
    table.rows.push_back(
        {t.options.budget.of_gpu ? "its GPU has" : "budget", in_memory(t, budget), in_memory(t, budget), unit, ""});
  }
  std::string text = format_table(table) + "\n" + numerics(t) + verdict(t) + "\n";
  if (t.options.budget.made_up && t.options.budget.bytes > 0) text += fmt::format("{}\n\n", kMadeUpMemory);
  if (!t.disturbed_because.empty()) text += t.disturbed_because + "\n\n";
  if (!t.answer.turned.empty()) text += format_table(turned_table(t)) + "\n";
  text += idle_knobs(t) + "\n" + format_table(front_table(t)) + "\n";
  text += fmt::format(
      "policies: {} of {} considered: {} simulated, {} the same as one of them, {} "
      "contradictory, {} pruned by their bounds\n",
      in_full(t.result.considered()), in_full(t.result.considered() + t.result.left), in_full(t.result.evaluated),
      in_full(t.result.same), in_full(t.result.contradictory), in_full(t.result.pruned));
  const double gap = optimality_gap(t.options.objective, t.result);
  if (!t.result.bounded) {
    text += fmt::format("of {} policies no bound is known: they may be better than the best one found\n",
                        in_full(t.result.left));
  } else {
    text += gap <= 0
                ? "no policy of the search space is better than the best one found\n"
                : fmt::format("the true optimum is at most {:.2f} % better than the best policy found\n", 100 * gap);
  }
  if (t.result.stopped) text += "interrupted: this is the best so far\n";
  return text;
}

std::string points_csv(const Tuning& t) {
  std::string text = "step_ms,tokens_per_s,live_bytes,reserved_bytes,predicted_bytes,margin_bytes,memory,fits";
  for (const tune::Axis& axis : t.space.axes()) text += "," + axis.name;
  text += "\n";
  const char* exact = t.options.budget.made_up ? "made up" : "exact";
  for (const tune::Tried& tried : t.result.tried) {
    text += fmt::format("{:.6f},{:.3f},{},{},{},{},{},{}", tried.step_ns / 1e6, answer_for(tried).tokens_per_s->value,
                        tried.need.live, tried.need.reserved, tried.predicted_bytes, tried.margin_bytes,
                        tried.exact ? exact : "at least", tried.fits ? 1 : 0);
    for (std::size_t a = 0; a < tried.point.size(); ++a) {
      text += "," + t.space.axes()[a].choices[tried.point[a]].text;
    }
    text += "\n";
  }
  return text;
}

std::string nothing_fits(const tune::Space& space, const tune::MemoryBudget& budget, const tune::SearchResult& least,
                         std::int64_t squeezed) {
  const tune::Tried& tried = least.tried[*least.best];
  const std::int64_t needs = tried.predicted_bytes + tried.margin_bytes;
  const std::string given = format_bytes(budget.bytes),
                    who = budget.of_gpu ? fmt::format("The {} of the cluster's GPU (--memory says otherwise)", given)
                                        : fmt::format("--memory {}", given);
  const std::string made_up = budget.made_up ? fmt::format(" {}", kMadeUpMemory) : "";
  if (needs <= budget.bytes) {
    return fmt::format(
        "{}: nothing that was tried fits; {} would, with {}. Ask for more --evaluations, or start there.{}", who,
        settings_text(space.settings_at(tried.point)), format_bytes(needs), made_up);
  }
  return fmt::format(
      "{}: nothing fits. The least {} memory found is {} ({} and a margin of {} for the error of the "
      "prediction), by {}{}.{}",
      who, to_string(budget.kind), format_bytes(needs), format_bytes(tried.predicted_bytes),
      format_bytes(tried.margin_bytes), settings_text(space.settings_at(tried.point)),
      squeezed > 0 && squeezed < needs
          ? fmt::format("; as it is, {} would do where the allocator returns cached memory to the driver, which takes "
                        "time",
                        format_bytes(squeezed))
          : "",
      made_up);
}

double VerifiedPolicy::median_ms() const {
  std::vector<double> medians;
  for (const std::vector<double>& trial : trials_ms) medians.push_back(account::median(trial));
  return medians.empty() ? 0 : account::median(medians);
}

std::string verification_text(const Verification& verification) {
  Table table;
  table.title = "run for real, in turns";
  table.header = {"",     "predicted", "measured",        "off",    "of current",
                  "99 %", "live",      "measured memory", "trials", "settings"};
  table.rows.push_back(row_of(verification.in_force, "current"));
  table.rows.push_back(row_of(verification.control, "once more (A/A)"));
  for (const VerifiedPolicy& proposal : verification.proposals) {
    table.rows.push_back(row_of(proposal, proposal.tried == verification.chosen ? "chosen" : ""));
  }
  std::string text = format_table(table);
  if (verification.chosen == 0)
    text += "none was faster than the current configuration with certainty: keep what you have\n";
  return text;
}

// clang-format off
template <>
Fields<VerifiedPolicy> declared<VerifiedPolicy>() {
  using V = VerifiedPolicy;
  using C = account::Difference;
  return {"VerifiedPolicy", "A policy that was run for real.", "tune/tune_report.h", {
      {"settings", via(&V::settings, tune::settings_text), "", "what it changes"},
      {"predicted_ms", &V::predicted_ms, "ms", "its step as predicted"},
      {"trials_ms", &V::trials_ms, "ms", "step times by trial"},
      {"predicted_live_bytes", &V::predicted_live_bytes, "B", "live memory of a rank as predicted"},
      {"live_bytes", [](const V& v) { return v.trials_ms.empty() ? std::nullopt : std::optional(v.live_bytes); }, "B", "as measured; null without a trial", or_null},
      {"failed", &V::failed, "", "why it could not go on", if_any},
      {"ratio", via(&V::against, &C::ratio), "", "its step over that in force; absent: too few trials"},
      {"ci_low", via(&V::against, &C::low), "", "lower end of its 99 % interval"},
      {"ci_high", via(&V::against, &C::high), "", "upper end of it"}}};
}

template <>
Fields<Verification> declared<Verification>() {
  using V = Verification;
  return {"Verification", "Measurements of the best policies on this machine.", "tune/tune_report.h", {
      {"in_force", &V::in_force, "", "the configuration in force"},
      {"control", &V::control, "", "the same once more"},
      {"proposals", &V::proposals, "", "by prediction, the best first"},
      {"chosen", [](const V& v) {
         const auto chosen = std::ranges::find(v.proposals, v.chosen, &VerifiedPolicy::tried);
         return settings_text((chosen == v.proposals.end() ? v.in_force : *chosen).settings);
       }, "", "settings of the one that is faster for certain"}}};
}

template <>
Fields<tune::TurnedKnob> declared<tune::TurnedKnob>() {
  using K = tune::TurnedKnob;
  return {"TurnedKnob", "A knob that the answer turns.", "tune/answer.h", {
      {"key", &K::key, "", "the first of its keys"},
      {"was", &K::was, "", "what is in force"},
      {"is", &K::is, "", "what the answer has"},
      {"alone", &K::alone, "", "part of the step in force that it gains alone; null: contradictory", or_null},
      {"last_in", &K::last_in, "", "part that it gains if it is turned last; null: contradictory", or_null},
      {"more_bytes", as<SignedWhole>(&K::more_bytes), "B", "memory that it takes then", or_null}}};
}

template <>
Fields<tune::LeftKnob> declared<tune::LeftKnob>() {
  using K = tune::LeftKnob;
  return {"LeftKnob", "A knob that the answer leaves.", "tune/answer.h", {
      {"key", &K::key, "", "the first of its keys"},
      {"least", &K::least, "", "the least change of the answer's step by another value, as a part of it"},
      {"most", &K::most, "", "the largest"},
      {"matters", &K::matters, "", "some value changes it by what counts"}}};
}

template <>
Fields<Policy> declared<Policy>() {
  using P = Policy;
  using T = tune::Tried;
  const auto tried = [](const P& p) -> const T& { return p.tried; };
  return {"Policy", "A policy whose step was computed.", "tune/search.h", {
      {"settings", &P::settings, "", "what it changes, by the first key of each knob"},
      spread(via(tried, [](const T& t) { return answer_for(t); })),
      {"live_bytes", via(tried, &T::need, &tune::MemoryNeed::live), "B", "blocks in use"},
      {"reserved_bytes", via(tried, &T::need, &tune::MemoryNeed::reserved), "B", "what the allocator holds"},
      {"predicted_bytes", via(tried, &T::predicted_bytes), "B", "in the budget's kind of memory"},
      {"margin_bytes", via(tried, &T::margin_bytes), "B", "by how much that may be wrong"},
      {"fits", via(tried, &T::fits), "", "in the budget, margin and all"},
      {"retries", via(tried, &T::retries), "", "it fits only where the allocator returns cached memory to the driver", if_any}}};
}

template <>
Fields<Tuning> declared<Tuning>() {
  using T = Tuning;
  using A = tune::Answer;
  using B = tune::MemoryBudget;
  using R = tune::SearchResult;
  const auto answer = [](const T& t) -> const A& { return t.answer; };
  const auto budget = [](const T& t) -> const B& { return t.options.budget; };
  const auto result = [](const T& t) -> const R& { return t.result; };
  return {"Tuning", "tune.json", "tune/tune_report.h", {
      {"schema_version", [](const T&) { return 1; }, "", "version of this format"},
      {"name", &T::name, "", "what was tuned"},
      {"ranks", [](const T& t) { return t.space.start().mesh.ranks; }, "", "number of ranks"},
      {"basis", &T::basis, "", "what op times rest on"},
      {"objective", [](const T& t) { return to_string(t.options.objective); }, "", "`step`, `memory` or `tokens_per_s`"},
      {"seed", via(result, &R::seed), "", "of the order in which policies were tried"},
      {"least_gain", &T::least_gain, "", "gains below do not count"},
      {"budget", {"Budget", "Memory that a rank may take.", "tune/bound.h", {
          {"bytes", [](const T& t) { const auto n = t.options.budget.bytes; return n == 0 ? std::nullopt : std::optional(n); }, "B", "null: no limit", or_null},
          {"kind", [](const T& t) { return to_string(t.options.budget.kind); }, "", "`live`, `reserved` or `process`"},
          {"error", via(budget, &B::error), "", "of what the allocator is predicted to hold, as a part of it"},
          {"context_bytes", via(budget, &B::context_bytes), "B", "of a process beside its allocator"},
          {"communicator_bytes", via(budget, &B::communicator_bytes), "B", "of each communicator"},
          {"overhead_error", via(budget, &B::overhead_error), "", "of these two, as a part of them"}}}},
      {"in_force", [](const T& t) { return policy_of(t, t.result.start()); }, "", "the configuration in force"},
      {"best", [](const T& t) { return policy_of(t, t.best()); }, "", "the best policy found"},
      {"keep", via(answer, &A::keep), "", "no gain is worth a change"},
      {"gain", via(answer, &A::gain), "", "of the objective, as a part of that in force"},
      {"gain_low", via(answer, &A::gain_low), "", "95 of 100 such predictions hold; null: not in doubt, or nobody knows", or_null},
      {"gain_high", via(answer, &A::gain_high), "", "likewise", or_null},
      {"optimality_gap", [](const T& t) { return optimality_gap(t.options.objective, t.result); }, "", "how much better the optimum may be"},
      {"policies", {"Policies", "Number of policies.", "tune/search.h", {
          {"walked", via(result, &R::evaluated), "", "simulated"},
          {"same", via(result, &R::same), "", "with the schedule of another"},
          {"contradictory", via(result, &R::contradictory), "", "that no engine can do"},
          {"pruned", via(result, &R::pruned), "", "whose bound says that they are no better"},
          {"left", via(result, &R::left), "", "of which nothing is known but their bound"}}}},
      {"seconds", &T::seconds, "s", "that the search took"},
      {"interrupted", via(result, &R::stopped), "", "whether it was ended early"},
      {"config", [](const T& t) { return config::to_json(*t.space.config_at(t.proposed().point)); }, "", "all keys of what is proposed"},
      {"turned", via(answer, &A::turned), "", "knobs that the answer turns"},
      {"left", via(answer, &A::left), "", "knobs that it leaves"},
      {"front", [](const T& t) {
         std::vector<Policy> front;
         for (const std::size_t i : t.answer.front) front.push_back(policy_of(t, t.result.tried[i]));
         return front;
       }, "", "no other policy has less memory and a shorter step; by memory"},
      {"points", [](const T& t) {
         nlohmann::json points = nlohmann::json::array();
         for (const tune::Tried& p : t.result.tried) points.push_back({p.step_ns / 1e6, p.predicted_bytes, p.fits});
         return points;
       }, "", "step in ms, predicted bytes, and whether it fits, of every policy simulated"},
      {"disturbed_because", &T::disturbed_because, "", "why the answer holds for a busy machine only", if_any},
      {"verified", &T::verification, "", "what running them gave; absent without --verify"}}};
}
// clang-format on

}  // namespace fsdpbench::app
