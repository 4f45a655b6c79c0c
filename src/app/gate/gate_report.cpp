#include "app/gate/gate_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/acceptance/judgement_files.h"
#include "app/console/table.h"
#include "base/error.h"

namespace fsdpbench::app {
namespace {

using accept::Change;
using accept::Judgement;
using accept::Verdict;
using nlohmann::json;

constexpr int kGateSchemaVersion = 1;

std::string difference_text(const MachineDifference& d) {
  const auto said = [](const std::string& value) { return value.empty() ? std::string("none") : value; };
  return fmt::format("{}: {} / {}", d.name, said(d.before), said(d.now));
}

std::string why_not_comparable(const GateReport& r, OtherMachine allowed) {
  if (r.before.front().kind != r.now.front().kind) {
    return fmt::format("the baseline is of a {}, and the result of a {}", r.before.front().kind, r.now.front().kind);
  }
  if (!r.measured.empty()) {
    return fmt::format("they did not measure the same: {} keys differ, {} the first", r.measured.size(),
                       r.measured.front().key);
  }
  const auto first = std::ranges::find_if(r.machine, [&](const MachineDifference& d) {
    if (d.part == MachinePrint::Part::hardware) return allowed != OtherMachine::any;
    return d.part == MachinePrint::Part::software && allowed == OtherMachine::no;
  });
  if (first == r.machine.end()) return "";
  const bool hardware = first->part == MachinePrint::Part::hardware;
  return fmt::format("they are not of the same machine ({}); {} compares {} on purpose", difference_text(*first),
                     hardware ? "--other-machine" : "--other-software",
                     hardware ? "two machines" : "two versions of a machine's software");
}

void check_alike(const std::vector<GatedResult>& now) {
  for (const GatedResult& other : now) {
    const GatedResult& first = now.front();
    const auto all = differences(first.machine, other.machine);
    if (other.kind != first.kind || other.measured != first.measured) {
      throw ConfigError(fmt::format("{} and {} did not measure the same, so they are no results of one gate.",
                                    first.name, other.name));
    }
    if (!all.empty()) {
      throw ConfigError(
          fmt::format("{} and {} are not of the same machine and program ({}), so they are no results of "
                      "one gate.",
                      first.name, other.name, difference_text(all.front())));
    }
  }
}

/// A result that was not accepted passes no gate, however little has changed; unless the baseline was kept although the
/// same was said of it.
Judgement own_verdict(const GatedResult& result, const std::vector<GatedResult>& before) {
  Judgement j;
  j.rule = "accepted";
  j.figure = result.name;
  const std::string& why = result.not_accepted_because;
  const bool known = std::ranges::count(before, why, &GatedResult::not_accepted_because) > 0;
  j.verdict = why.empty() ? Verdict::pass : known ? Verdict::unrated : Verdict::inconclusive;
  j.sentence = why.empty() ? "the result itself was accepted"
                           : fmt::format("the result itself was not accepted: {}{}", why,
                                         known ? ", as the baseline was not" : "");
  return j;
}

std::string number_text(const accept::Interval& i) { return i.n == 0 ? "–" : fmt::format("{:.4g}", i.median); }

std::string verdict_text(const Change& c) {
  if (c.judgement.verdict == Verdict::fail) return "WORSE";
  return c.better ? "better" : std::string(to_string(c.judgement.verdict));
}

/// Bytes are the same however slow a machine has become.
bool none_was_judged(const std::vector<Change>& changes) {
  return std::ranges::none_of(changes, [](const Change& c) {
    const bool rated = c.judgement.verdict == Verdict::pass || c.judgement.verdict == Verdict::fail;
    return rated && c.evidence != accept::ChangeEvidence::counted && c.evidence != accept::ChangeEvidence::none;
  });
}

bool has_ratio(const Change& c) { return c.evidence != accept::ChangeEvidence::none; }

/// What a reader must see first: the worst, then what could not be told, then what is better.
std::vector<const Change*> by_gravity(const GateReport& r) {
  std::vector<const Change*> all;
  for (const Change& c : r.changes) all.push_back(&c);
  const auto rank = [](const Change* c) {
    switch (c->judgement.verdict) {
      case Verdict::fail: return 0;
      case Verdict::inconclusive: return 1;
      case Verdict::pass: return c->better ? 2 : 3;
      case Verdict::unrated: break;
    }
    return 4;
  };
  std::ranges::stable_sort(all, {}, rank);
  return all;
}

json interval_of(const accept::Interval& i) {
  if (i.n == 0) return nullptr;
  return {{"median", i.median}, {"low", i.low}, {"high", i.high}, {"n", i.n}};
}

json side_of(const std::vector<GatedResult>& results) {
  json j{{"kind", results.front().kind},
         {"machine", results.front().machine.to_json()},
         {"summary", results.front().machine.summary()},
         {"results", json::array()}};
  for (const GatedResult& r : results) {
    json one{{"name", r.name}, {"date", r.date}};
    if (!r.not_accepted_because.empty()) one["not_accepted_because"] = r.not_accepted_because;
    if (!r.kept_anyway_because.empty()) one["kept_anyway_because"] = r.kept_anyway_because;
    j["results"].push_back(std::move(one));
  }
  return j;
}

}  // namespace

int GateReport::exit_code() const {
  if (!not_comparable_because.empty()) return static_cast<int>(ExitCode::other_machine);
  switch (verdict) {
    case Verdict::pass: return static_cast<int>(ExitCode::ok);
    case Verdict::fail: return static_cast<int>(ExitCode::slower);
    case Verdict::unrated:
    case Verdict::inconclusive: break;
  }
  return static_cast<int>(ExitCode::inconclusive);
}

std::string GateReport::headline() const {
  if (!not_comparable_because.empty()) return "NOT COMPARED: " + not_comparable_because;
  const auto count = [&](Verdict v) {
    return std::ranges::count(changes, v, [](const Change& c) { return c.judgement.verdict; });
  };
  const auto worse = count(Verdict::fail);
  const std::string figures =
      fmt::format("{} of {} {}", worse, changes.size(), changes.size() == 1 ? "figure" : "figures");
  std::string text;
  if (verdict == Verdict::fail) {
    text = fmt::format("WORSE: {} by {:.3g} % or more than {}", figures, 100 * threshold, baseline);
  } else if (verdict == Verdict::pass) {
    text = fmt::format("PASS: none of {} figures is worse than {} by {:.3g} % or more", changes.size(), baseline,
                       100 * threshold);
  } else {
    text = fmt::format("INCONCLUSIVE against {}: not every figure could be judged", baseline);
  }
  if (const auto better = std::ranges::count(changes, true, &Change::better); better > 0) {
    text += fmt::format("; {} better", better);
  }
  return text;
}

GateReport judge_gate(const Baseline& baseline, std::vector<GatedResult> now, OtherMachine allowed, double threshold) {
  check_alike(now);
  GateReport r;
  r.baseline = baseline.name();
  r.before = baseline.results;
  r.now = std::move(now);
  r.threshold = threshold;
  r.machine = differences(r.before.front().machine, r.now.front().machine);
  r.measured = differing_keys(r.before.front().measured, r.now.front().measured);
  for (const GatedResult& result : r.now) r.judgements.push_back(own_verdict(result, r.before));
  r.not_comparable_because = why_not_comparable(r, allowed);
  if (!r.not_comparable_because.empty()) {
    Judgement j;
    j.rule = "machine";
    j.figure = r.now.front().name;
    j.sentence = r.not_comparable_because;
    r.judgements.push_back(std::move(j));
    return r;
  }
  std::vector<accept::ResultFigures> before = baseline.figures(), after;
  for (const GatedResult& result : r.now) after.push_back(result.figures);
  r.changes = accept::judge_changes(before, after, threshold);
  std::vector<Judgement> changes;
  for (const Change& c : r.changes) changes.push_back(c.judgement);
  if (none_was_judged(r.changes)) {
    changes.push_back(accept::judged("measured", r.now.front().name, Verdict::inconclusive,
                                     "no figure that was measured could be judged, only what is counted"));
  }
  r.verdict = accept::overall(changes);
  r.judgements.insert(r.judgements.end(), changes.begin(), changes.end());
  if (r.verdict == Verdict::pass) r.verdict = accept::overall(r.judgements);
  return r;
}

std::string gate_table(const GateReport& r) {
  Table table;
  table.title = r.headline();
  table.header = {"figure", "before", "now", "now / before", "interval", "verdict", "unit"};
  for (const Change* c : by_gravity(r)) {
    table.rows.push_back({c->judgement.figure, number_text(c->before), number_text(c->judgement.value),
                          has_ratio(*c) ? fmt::format("{:.3f}", c->ratio) : "–",
                          has_ratio(*c) && c->low < c->high ? fmt::format("{:.3f} to {:.3f}", c->low, c->high) : "–",
                          verdict_text(*c), c->judgement.unit});
  }
  std::string text = r.changes.empty() ? text_line(r.headline()) : format_table(table);
  std::string more;
  for (const Judgement& j : r.judgements) {
    if (j.verdict != Verdict::fail && j.verdict != Verdict::inconclusive) continue;
    if (j.rule == "machine") continue;  // the headline
    more += text_line(
        fmt::format("{}: {}: {}", j.verdict == Verdict::fail ? "worse" : "inconclusive", j.figure, j.sentence));
  }
  for (const Change& c : r.changes) {
    if (!c.left_out.empty()) {
      more += text_line(fmt::format("left out of {}: {}", c.judgement.figure, fmt::join(c.left_out, ", ")));
    }
  }
  for (const MachineDifference& d : r.machine)
    more += text_line(fmt::format("{} differs: {}", to_string(d.part), difference_text(d)));
  for (const DifferingKey& key : r.measured) {
    more += text_line(fmt::format("measured differs: {}: {} / {}", key.key, key.a.dump(), key.b.dump()));
  }
  const std::size_t k = r.before.size();
  more += fmt::format("{} of {}, {} in the baseline{}.\n",
                      r.now.size() == 1 ? "1 result" : fmt::format("{} results", r.now.size()), r.now.front().kind, k,
                      k < 3 ? ": with 3 or more, how much results of this machine scatter would count" : "");
  return text + "\n" + more;
}

std::string gate_markdown(const GateReport& r) {
  std::string text = fmt::format("# {}\n\n", markdown_cell(r.headline()));
  if (!r.machine.empty()) {
    text += "| differs | before | now |\n|---|---|---|\n";
    for (const MachineDifference& d : r.machine) {
      text += fmt::format("| {} ({}) | {} | {} |\n", markdown_cell(d.name), to_string(d.part), markdown_cell(d.before),
                          markdown_cell(d.now));
    }
    text += '\n';
  }
  for (const Judgement& j : r.judgements) {
    if (j.rule == "accepted" && j.verdict != Verdict::pass) text += fmt::format("- {}\n", markdown_cell(j.sentence));
  }
  if (r.changes.empty()) return text;
  text += "| figure | before | now | verdict | why |\n|---|---|---|---|---|\n";
  for (const Change* c : by_gravity(r)) {
    text += fmt::format("| {} | {} | {} | {} | {} |\n", markdown_cell(c->judgement.figure), number_text(c->before),
                        number_text(c->judgement.value), verdict_text(*c), markdown_cell(c->judgement.sentence));
  }
  return text;
}

json gate_json(const GateReport& r) {
  json j{{"schema_version", kGateSchemaVersion},
         {"kind", "gate"},
         {"verdict", r.not_comparable_because.empty() ? std::string(to_string(r.verdict)) : "not comparable"},
         {"sentence", r.headline()},
         {"threshold", r.threshold},
         {"baseline", r.baseline},
         {"before", side_of(r.before)},
         {"now", side_of(r.now)},
         {"differences", json::array()},
         {"differing_keys", json::array()},
         {"changes", json::array()}};
  for (const MachineDifference& d : r.machine) {
    j["differences"].push_back({{"name", d.name}, {"part", to_string(d.part)}, {"before", d.before}, {"now", d.now}});
  }
  for (const DifferingKey& key : r.measured)
    j["differing_keys"].push_back({{"key", key.key}, {"a", key.a}, {"b", key.b}});
  for (const Change& c : r.changes) {
    json one{{"figure", c.judgement.figure},
             {"unit", c.judgement.unit},
             {"better", c.higher_is_better ? "more" : "less"},
             {"before", interval_of(c.before)},
             {"now", interval_of(c.judgement.value)},
             {"verdict", c.better ? "better" : std::string(to_string(c.judgement.verdict))},
             {"why", c.judgement.sentence},
             {"by", to_string(c.evidence)}};
    if (has_ratio(c)) one.update({{"ratio", c.ratio}, {"ratio_low", c.low}, {"ratio_high", c.high}});
    if (!c.left_out.empty()) one["left_out"] = c.left_out;
    j["changes"].push_back(std::move(one));
  }
  return j;
}

}  // namespace fsdpbench::app
