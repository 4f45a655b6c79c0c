#include "app/experiment/cause_json.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/experiment/summary_json.h"
#include "metrics/cause_advice.h"

namespace fsdpbench::app {
namespace {

using metrics::Cause;
using metrics::CauseReport;
using metrics::CauseShare;
using metrics::Counterfactual;
using metrics::LateRank;
using metrics::StepJitter;
using nlohmann::json;

constexpr std::int64_t kMostRanks = 1'000'000'000;  // ranks, trials

json counterfactual_json(const Counterfactual& c) {
  json j{{"step_ms", c.step_ms},
         {"gain_ms", c.gain_ms},
         {"ci_low", c.ci_low},
         {"ci_high", c.ci_high},
         {"interval", to_string(c.interval)},
         {"advised", c.advised}};
  if (c.more_bytes) j["more_bytes"] = *c.more_bytes;
  return j;
}

Counterfactual counterfactual_from(const JsonPart& j, Cause cause) {
  Counterfactual c;
  c.cause = cause;
  c.step_ms = j.at("step_ms").number();
  c.gain_ms = j.at("gain_ms").number();
  c.ci_low = j.at("ci_low").number();
  c.ci_high = j.at("ci_high").number();
  const std::string interval = j.at("interval").text();
  for (const auto kind : {metrics::IntervalKind::bootstrap, metrics::IntervalKind::range}) {
    if (interval == to_string(kind)) c.interval = kind;
  }
  c.advised = j.at("advised").flag();
  if (j.has("more_bytes")) c.more_bytes = j.at("more_bytes").whole(INT64_MIN, INT64_MAX);
  return c;
}

Cause cause_from_name(const JsonPart& j) {
  if (const std::optional<Cause> cause = metrics::cause_named(j.text())) return *cause;
  j.refuse("the name of a cause");
}

CauseShare cause_from(const JsonPart& j) {
  CauseShare c;
  c.cause = cause_from_name(j.at("cause"));
  c.ms = j.at("ms").number();
  c.share_pct = j.at("share_pct").number();
  c.advice = j.at("advice").text();
  c.unit = j.text("unit", "");
  c.op = j.text("op", "");
  if (j.has("late_rank")) c.late_rank = static_cast<int>(j.at("late_rank").whole(0, kMostRanks));
  if (j.has("without")) {
    c.without = counterfactual_from(j.at("without"), c.cause);
    c.without->late_rank = c.late_rank;
  }
  return c;
}

json jitter_json(const StepJitter& jitter, double step_ms) {
  json j{{"ms", jitter.ms},
         {"share_pct", step_ms > 0 ? 100 * jitter.ms / step_ms : 0},
         {"computation_ms", jitter.computation_ms},
         {"stalled_ms", jitter.stalled_ms},
         {"ranks", json::array()}};
  for (const StepJitter::Rank& rank : jitter.ranks) {
    json mine{{"rank", rank.rank}, {"ms", rank.ms}, {"lanes", json::object()}};
    for (const Lane lane : kLanes) {
      const std::size_t l = index_of(lane);
      if (is_offload_lane(lane) && rank.longer_ms[l] == 0 && rank.later_ms[l] == 0) continue;
      mine["lanes"][std::string(to_string(lane))] = {{"longer_ms", rank.longer_ms[l]}, {"later_ms", rank.later_ms[l]}};
    }
    j["ranks"].push_back(std::move(mine));
  }
  return j;
}

StepJitter jitter_from(const JsonPart& j) {
  StepJitter jitter{j.at("ms").number(), j.at("computation_ms").number(), j.at("stalled_ms").number(), {}};
  for (const JsonPart& rank : j.at("ranks").list()) {
    StepJitter::Rank& mine = jitter.ranks.emplace_back();
    mine.rank = static_cast<int>(rank.at("rank").whole(0, kMostRanks));
    mine.ms = rank.at("ms").number();
    for (const Lane lane : kLanes) {
      if (is_offload_lane(lane) && !rank.at("lanes").has(to_string(lane))) continue;
      const JsonPart part = rank.at("lanes").at(to_string(lane));
      mine.longer_ms[index_of(lane)] = part.at("longer_ms").number();
      mine.later_ms[index_of(lane)] = part.at("later_ms").number();
    }
  }
  return jitter;
}

/// What a rank can be late at, by its name in files.
constexpr std::array<std::pair<const char*, std::optional<metrics::Lateness> LateRank::*>, 3> kLateAt{
    {{"work", &LateRank::work}, {"issue", &LateRank::issue}, {"link", &LateRank::link}}};

json late_json(const LateRank& late) {
  json j{{"rank", late.rank}};
  for (const auto& [name, part] : kLateAt) {
    const std::optional<metrics::Lateness>& lateness = late.*part;
    if (!lateness) continue;
    j[name] = {{"trials", lateness->trials},
               {"late", lateness->late},
               {"by_chance", lateness->by_chance},
               {"excess_ms", summary_json(lateness->excess_ms)}};
  }
  return j;
}

LateRank late_from(const JsonPart& j) {
  LateRank late;
  late.rank = static_cast<int>(j.at("rank").whole(0, kMostRanks));
  for (const auto& [name, part] : kLateAt) {
    if (!j.has(name)) continue;
    const JsonPart at = j.at(name);
    late.*part = metrics::Lateness{static_cast<int>(at.at("trials").whole(0, kMostRanks)),
                                   static_cast<int>(at.at("late").whole(0, kMostRanks)), at.at("by_chance").number(),
                                   summary_from(at.at("excess_ms")), true};
  }
  return late;
}

}  // namespace

json cause_json(const CauseShare& c) {
  json j{{"cause", metrics::to_string(c.cause)}, {"ms", c.ms}, {"share_pct", c.share_pct}, {"advice", c.advice}};
  if (!c.unit.empty()) j["unit"] = c.unit;
  if (!c.op.empty()) j["op"] = c.op;
  if (c.late_rank >= 0) j["late_rank"] = c.late_rank;
  if (c.without) j["without"] = counterfactual_json(*c.without);
  return j;
}

json knob_json(const Counterfactual& knob, const std::string& words) {
  json j = counterfactual_json(knob);
  j["set"] = knob.set;
  j["cause"] = metrics::to_string(knob.cause);
  if (knob.advised) j["advice"] = metrics::knob_sentence(knob, words);
  return j;
}

void add_causes(const CauseReport& report, json& trial) {
  trial["typical_ms"] = report.typical_ms;
  if (!report.no_typical_because.empty()) trial["no_typical_step_because"] = report.no_typical_because;
  if (report.jitter) trial["jitter"] = jitter_json(*report.jitter, report.step_ms);
  trial["late_ranks"] = json::array();
  for (const LateRank& late : report.late_ranks) trial["late_ranks"].push_back(late_json(late));
  trial["knobs"] = json::array();
  for (const Counterfactual& knob : report.knobs) {
    trial["knobs"].push_back(knob_json(knob, ""));
  }
  trial["causes_small_ms"] = report.small_ms;
  trial["causes"] = json::array();
  for (const CauseShare& c : report.causes) trial["causes"].push_back(cause_json(c));
}

void read_causes(const JsonPart& trial, CauseReport& report) {
  report.small_ms = trial.at("causes_small_ms").number();
  for (const JsonPart& cause : trial.at("causes").list()) report.causes.push_back(cause_from(cause));
  report.typical_ms = trial.number("typical_ms", report.step_ms);
  report.no_typical_because = trial.text("no_typical_step_because", "");
  if (trial.has("jitter")) report.jitter = jitter_from(trial.at("jitter"));
  for (const JsonPart& knob : trial.has("knobs") ? trial.at("knobs").list() : std::vector<JsonPart>()) {
    report.knobs.push_back(counterfactual_from(knob, cause_from_name(knob.at("cause"))));
    report.knobs.back().set = knob.at("set").text();
  }
  if (!trial.has("late_ranks")) return;
  for (const JsonPart& late : trial.at("late_ranks").list()) report.late_ranks.push_back(late_from(late));
}

}  // namespace fsdpbench::app
