#include "tune/tune_report.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "account/statistics.h"
#include "base/bytes.h"
#include "config/fields.h"
#include "config/spelling.h"
#include "config/write.h"
#include "record/table.h"
#include "tune/run_doubt.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;
using tune::Objective;

std::string in_ms(double ns) { return fmt::format("{:.3f}", ns / 1e6); }
/// The unit of every memory figure in an answer: GiB, or MiB where 0.01 GiB is too coarse for a small model.
struct MemoryUnit {
  const char* name;
  double bytes;
  std::string text(std::int64_t amount) const { return fmt::format("{:.2f}", static_cast<double>(amount) / bytes); }
};

MemoryUnit memory_unit(const Tuning& t) {
  constexpr std::int64_t kMiB = 1 << 20, kGiB = 1 << 30;
  const bool small = std::max(t.result.start().predicted_bytes, t.best().predicted_bytes) < kGiB;
  return small ? MemoryUnit{"MiB", kMiB} : MemoryUnit{"GiB", kGiB};
}
std::string in_memory(const Tuning& t, std::int64_t bytes) { return memory_unit(t).text(bytes); }
std::string signed_percent(double part) { return fmt::format("{:+.1f} %", 100 * part); }
std::string in_full(double number) { return fmt::format("{:.0f}", number); }

double tokens_per_s(const tune::Tried& tried) { return tried.step_ns > 0 ? tried.tokens / tried.step_ns * 1e9 : 0; }

std::string what_memory(const Tuning& t) {
  return fmt::format("{} memory, {}", to_string(t.options.budget.kind), memory_unit(t).name);
}

Table front_table(const Tuning& t) {
  Table table;
  table.title = "least memory for each step time (Pareto front)";
  table.header = {"", "step, ms", what_memory(t), "", "settings"};
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
    add_with_settings(table,
                      {i == *t.result.best ? "best"
                       : i == 0            ? "current"
                                           : "",
                       in_ms(tried.step_ns), in_memory(t, tried.predicted_bytes), tried.fits ? "fits" : "too much"},
                      settings_of(t.space, tried.point));
  }
  return table;
}

std::string gain_or_dash(const std::optional<double>& gain) { return gain ? signed_percent(*gain) : "-"; }

Table turned_table(const Tuning& t) {
  Table table;
  table.title = "what each change gains: on its own, and when added last";
  table.header = {"from", "to", "alone", "last in", fmt::format("memory, {}", memory_unit(t).name)};
  for (const tune::TurnedKnob& knob : t.answer.turned) {
    table.rows.push_back(
        {knob.was, knob.is, gain_or_dash(knob.alone), gain_or_dash(knob.last_in),
         knob.more_bytes ? fmt::format("{}{}", *knob.more_bytes < 0 ? "" : "+", in_memory(t, *knob.more_bytes)) : "-"});
  }
  return table;
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string idle_knobs(const Tuning& t) {
  std::vector<std::string> names;
  for (const tune::LeftKnob& knob : t.answer.left) {
    if (!knob.matters) names.push_back(t.space.axes()[knob.axis].name);
  }
  return names.empty() ? std::string() : fmt::format("of no consequence here: {}\n", list(names));
}

std::string sensitivity(const Tuning& t) {
  std::string text;
  for (const tune::Shifted& s : t.answer.shifted) {
    const bool link = s.link != 1;
    text += fmt::format("{} {:.0f} % {}: {}\n", link ? "links" : "computation",
                        std::abs(100 * ((link ? s.link : s.compute) - 1)),
                        (link ? s.link : s.compute) > 1 ? "faster" : "slower",
                        s.still_best ? std::string("the same answer holds")
                                     : fmt::format("{:.1f} % longer than with {}", 100 * s.regret,
                                                   settings_of(t.space, t.result.tried[s.best].point)));
  }
  return text;
}

/// What the answer makes of the numbers that a training gives, which is said first; empty if nothing.
std::string numerics(const Tuning& t) {
  const auto best = t.space.config_at(t.best().point);
  if (t.answer.keep || !best) return "";
  std::string changes;
  for (const char* key :
       {"fsdp.gather_quantization", "fsdp.reduce_quantization", "fsdp.param_dtype", "fsdp.reduce_dtype"}) {
    const config::Field& field = *config::find_field(key);
    const config::Value was = field.write(t.space.start()), is = field.write(*best);
    if (was != is) changes += fmt::format(", {} {} instead of {}", key, config::to_toml(is), config::to_toml(was));
  }
  return changes.empty() ? "" : fmt::format("It changes numerics, as was allowed: {}.\n", changes.substr(2));
}

std::string verdict(const Tuning& t) {
  const char* const of = t.options.objective == Objective::memory         ? "memory"
                         : t.options.objective == Objective::tokens_per_s ? "time a token"
                                                                          : "step time";
  std::string interval;
  if (t.answer.gain_low) {
    interval = fmt::format(" (95 of 100 such predictions: {:.1f} to {:.1f} %)", 100 * *t.answer.gain_low,
                           100 * *t.answer.gain_high);
  } else if (t.answer.unknown) {
    interval = " (no interval)";
  }
  if (t.answer.keep) {
    return fmt::format("Keep what you have: the best of all would take {:.1f} % less {}{}, which {}.\n",
                       100 * std::max(0.0, t.answer.gain), of, interval,
                       t.answer.gain < t.least_gain ? "is below what counts" : "is not certain");
  }
  if (!t.result.start().fits) {
    return fmt::format("The current configuration does not fit: it needs {} {}.\n",
                       in_memory(t, t.result.start().predicted_bytes + t.result.start().margin_bytes),
                       memory_unit(t).name);
  }
  return fmt::format("{:.1f} % less {} than the current configuration{}.\n{}", 100 * t.answer.gain, of, interval,
                     t.answer.unknown ? fmt::format("{}, or measure the gain with --verify\n", kNoInterval) : "");
}

json settings_json(const tune::Space& space, const tune::Point& point) {
  json j = json::object();
  for (std::size_t a = 0; a < point.size(); ++a) {
    if (point[a] != 0) j[space.axes()[a].name] = space.axes()[a].choices[point[a]].text;
  }
  return j;
}

json tried_json(const Tuning& t, const tune::Tried& tried) {
  return {{"settings", settings_json(t.space, tried.point)},
          {"step_ms", tried.step_ns / 1e6},
          {"tokens_per_s", tokens_per_s(tried)},
          {"live_bytes", tried.need.live},
          {"reserved_bytes", tried.need.reserved},
          {"predicted_bytes", tried.predicted_bytes},
          {"margin_bytes", tried.margin_bytes},
          {"fits", tried.fits}};
}

json optional_json(const std::optional<double>& value) { return value ? json(*value) : json(); }

}  // namespace

std::string settings_of(const tune::Space& space, const tune::Point& point) {
  std::string text;
  for (std::size_t a = 0; a < point.size(); ++a) {
    if (point[a] != 0) text += (text.empty() ? "" : " ") + space.axes()[a].choices[point[a]].text;
  }
  return text.empty() ? "as it is" : text;
}

void add_with_settings(Table& table, std::vector<std::string> row, const std::string& settings) {
  constexpr std::size_t kMostOfALine = 100;
  std::string_view left = settings;
  while (left.size() > kMostOfALine && left.rfind(' ', kMostOfALine) != std::string_view::npos) {
    const std::size_t end = left.rfind(' ', kMostOfALine);
    row.emplace_back(left.substr(0, end));
    left.remove_prefix(end + 1);
    const std::size_t columns = row.size();
    table.rows.push_back(std::move(row));
    row.assign(columns - 1, "");
  }
  row.emplace_back(left);
  table.rows.push_back(std::move(row));
}

std::string tune_text(const Tuning& t) {
  const tune::MemoryBudget& budget = t.options.budget;
  Table table;
  table.title = fmt::format("{}: {} ranks, by {}", t.name, t.space.start().mesh.ranks, t.basis);
  table.header = {"", "step, ms", "tokens/s", what_memory(t), "margin"};
  const auto row = [&](const char* name, const tune::Tried& tried) {
    table.rows.push_back({name, in_ms(tried.step_ns), fmt::format("{:.0f}", tokens_per_s(tried)),
                          in_memory(t, tried.predicted_bytes), in_memory(t, tried.margin_bytes)});
  };
  row("current", t.result.start());
  row("best", t.best());
  if (budget.bytes > 0) table.rows.push_back({"budget", "", "", in_memory(t, budget.bytes), ""});
  std::string text = format_table(table) + "\n" + numerics(t) + verdict(t) + "\n";
  if (!t.disturbed_because.empty()) text += t.disturbed_because + "\n\n";
  if (!t.answer.turned.empty()) text += format_table(turned_table(t)) + "\n";
  text += idle_knobs(t) + sensitivity(t) + "\n" + format_table(front_table(t)) + "\n";
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

json tune_json(const Tuning& t) {
  const tune::SearchResult& r = t.result;
  json j{{"schema_version", 1},
         {"name", t.name},
         {"ranks", t.space.start().mesh.ranks},
         {"basis", t.basis},
         {"objective", to_string(t.options.objective)},
         {"seed", r.seed},
         {"least_gain", t.least_gain},
         {"budget",
          {{"bytes", t.options.budget.bytes == 0 ? json() : json(t.options.budget.bytes)},
           {"kind", to_string(t.options.budget.kind)},
           {"error", t.options.budget.error},
           {"context_bytes", t.options.budget.context_bytes},
           {"communicator_bytes", t.options.budget.communicator_bytes},
           {"overhead_error", t.options.budget.overhead_error}}},
         {"in_force", tried_json(t, r.start())},
         {"best", tried_json(t, t.best())},
         {"keep", t.answer.keep},
         {"gain", t.answer.gain},
         {"gain_low", optional_json(t.answer.gain_low)},
         {"gain_high", optional_json(t.answer.gain_high)},
         {"optimality_gap", optimality_gap(t.options.objective, r)},
         {"policies",
          {{"walked", r.evaluated},
           {"same", r.same},
           {"contradictory", r.contradictory},
           {"pruned", r.pruned},
           {"left", r.left}}},
         {"seconds", t.seconds},
         {"interrupted", r.stopped},
         {"config", config::to_json(*t.space.config_at(t.proposed().point))},
         {"turned", json::array()},
         {"left", json::array()},
         {"shifted", json::array()},
         {"front", json::array()},
         {"points", json::array()}};
  if (!t.disturbed_because.empty()) j["disturbed_because"] = t.disturbed_because;
  for (const tune::TurnedKnob& knob : t.answer.turned) {
    j["turned"].push_back({{"key", t.space.axes()[knob.axis].name},
                           {"was", knob.was},
                           {"is", knob.is},
                           {"alone", optional_json(knob.alone)},
                           {"last_in", optional_json(knob.last_in)},
                           {"more_bytes", knob.more_bytes ? json(*knob.more_bytes) : json()}});
  }
  for (const tune::LeftKnob& knob : t.answer.left) {
    j["left"].push_back({{"key", t.space.axes()[knob.axis].name},
                         {"least", knob.least},
                         {"most", knob.most},
                         {"matters", knob.matters}});
  }
  for (const tune::Shifted& s : t.answer.shifted) {
    j["shifted"].push_back({{"link", s.link},
                            {"compute", s.compute},
                            {"still_best", s.still_best},
                            {"regret", s.regret},
                            {"best", settings_json(t.space, r.tried[s.best].point)}});
  }
  for (const std::size_t i : t.answer.front) j["front"].push_back(tried_json(t, r.tried[i]));
  for (const tune::Tried& tried : r.tried) {
    j["points"].push_back({tried.step_ns / 1e6, tried.predicted_bytes, tried.fits});
  }
  return j;
}

std::string points_csv(const Tuning& t) {
  std::string text = "step_ms,tokens_per_s,live_bytes,reserved_bytes,predicted_bytes,margin_bytes,memory,fits";
  for (const tune::Axis& axis : t.space.axes()) text += "," + axis.name;
  text += "\n";
  for (const tune::Tried& tried : t.result.tried) {
    text += fmt::format("{:.6f},{:.3f},{},{},{},{},{},{}", tried.step_ns / 1e6, tokens_per_s(tried), tried.need.live,
                        tried.need.reserved, tried.predicted_bytes, tried.margin_bytes,
                        tried.exact ? "exact" : "at least", tried.fits ? 1 : 0);
    for (std::size_t a = 0; a < tried.point.size(); ++a) {
      text += "," + t.space.axes()[a].choices[tried.point[a]].text;
    }
    text += "\n";
  }
  return text;
}

std::string nothing_fits(const tune::Space& space, const tune::MemoryBudget& budget, const tune::SearchResult& least) {
  const tune::Tried& tried = least.tried[*least.best];
  const std::int64_t needs = tried.predicted_bytes + tried.margin_bytes;
  return fmt::format(
      "--memory {}: nothing fits. The least {} memory found is {} ({} and a margin of {} for the error of the "
      "prediction), by {}.",
      format_bytes(budget.bytes), to_string(budget.kind), format_bytes(needs), format_bytes(tried.predicted_bytes),
      format_bytes(tried.margin_bytes), settings_of(space, tried.point));
}
namespace {

using nlohmann::json;

std::string mib_text(std::int64_t bytes) { return fmt::format("{:.3f}", static_cast<double>(bytes) / (1 << 20)); }

const tune::Tried& tried_of(const Tuning& tuning, const VerifiedPolicy& policy) {
  return tuning.result.tried[policy.tried];
}

std::vector<std::string> row_of(const Tuning& tuning, const VerifiedPolicy& policy, const char* name) {
  const tune::Tried& tried = tried_of(tuning, policy);
  const double predicted = tried.step_ns / 1e6, measured = policy.median_ms();
  std::vector<std::string> row{name, fmt::format("{:.3f}", predicted)};
  if (measured > 0) {
    row.insert(row.end(),
               {fmt::format("{:.3f}", measured), fmt::format("{:+.1f} %", 100 * (predicted / measured - 1))});
  } else {
    row.insert(row.end(), {"-", "-"});
  }
  row.push_back(policy.against ? fmt::format("{:.3f}", policy.against->ratio) : "-");
  row.push_back(policy.against ? fmt::format("{:.3f} to {:.3f}", policy.against->low, policy.against->high) : "-");
  row.push_back(mib_text(tried.need.live));
  row.push_back(measured > 0 ? mib_text(policy.live_bytes) : "-");
  row.push_back(fmt::format("{}", policy.trials_ms.size()));
  return row;
}

json policy_json(const Tuning& tuning, const VerifiedPolicy& policy) {
  const tune::Tried& tried = tried_of(tuning, policy);
  json j{{"settings", settings_of(tuning.space, tried.point)},
         {"predicted_ms", tried.step_ns / 1e6},
         {"trials_ms", policy.trials_ms},
         {"predicted_live_bytes", tried.need.live},
         {"live_bytes", policy.trials_ms.empty() ? json() : json(policy.live_bytes)}};
  if (!policy.failed.empty()) j["failed"] = policy.failed;
  if (policy.against) {
    j["ratio"] = policy.against->ratio;
    j["ci_low"] = policy.against->low;
    j["ci_high"] = policy.against->high;
  }
  return j;
}

}  // namespace

double VerifiedPolicy::median_ms() const {
  std::vector<double> medians;
  for (const std::vector<double>& trial : trials_ms) medians.push_back(account::median(trial));
  return medians.empty() ? 0 : account::median(medians);
}

std::optional<double> kendall_tau(const Tuning& tuning, const Verification& verification) {
  std::vector<std::pair<double, double>> pairs;
  const auto add = [&](const VerifiedPolicy& policy) {
    if (!policy.trials_ms.empty()) pairs.emplace_back(tried_of(tuning, policy).step_ns, policy.median_ms());
  };
  add(verification.in_force);
  for (const VerifiedPolicy& proposal : verification.proposals) add(proposal);
  return account::kendall_tau(pairs);
}

std::string verification_text(const Tuning& tuning, const Verification& verification) {
  Table table;
  table.title = "run for real, in turns";
  table.header = {"",     "predicted, ms",        "measured, ms", "off",    "of current",
                  "99 %", "live, predicted, MiB", "measured",     "trials", "settings"};
  const auto add_row = [&](const char* name, const VerifiedPolicy& policy) {
    add_with_settings(
        table, row_of(tuning, policy, name),
        policy.failed.empty() ? settings_of(tuning.space, tried_of(tuning, policy).point) : policy.failed);
  };
  add_row("current", verification.in_force);
  add_row("once more (A/A)", verification.control);
  for (const VerifiedPolicy& proposal : verification.proposals) {
    add_row(proposal.tried == verification.chosen ? "chosen" : "", proposal);
  }
  std::string text = format_table(table);
  if (const std::optional<double> tau = kendall_tau(tuning, verification)) {
    text += fmt::format("order, predicted against measured: Kendall's tau {:.2f}\n", *tau);
  }
  if (verification.chosen == 0)
    text += "none was faster than the current configuration with certainty: keep what you have\n";
  return text;
}

json verification_json(const Tuning& tuning, const Verification& verification) {
  json j{{"in_force", policy_json(tuning, verification.in_force)},
         {"control", policy_json(tuning, verification.control)},
         {"proposals", json::array()},
         {"chosen", settings_of(tuning.space, tuning.result.tried[verification.chosen].point)}};
  for (const VerifiedPolicy& proposal : verification.proposals) {
    j["proposals"].push_back(policy_json(tuning, proposal));
  }
  const std::optional<double> tau = kendall_tau(tuning, verification);
  j["kendall_tau"] = tau ? json(*tau) : json();
  return j;
}

}  // namespace fsdpbench::app
