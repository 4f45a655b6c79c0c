#include "accept/gate/gate_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "accept/stages/judgement_files.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "record/json_fields.h"
#include "record/table.h"

namespace fsdpbench::app {
namespace {

using accept::Change;
using accept::Judgement;
using accept::Verdict;
using nlohmann::json;

std::string difference_text(const MachineDifference& d) {
  const auto said = [](const std::string& value) { return value.empty() ? std::string("none") : value; };
  return fmt::format("{}: {} / {}", d.name, said(d.before), said(d.now));
}

std::string why_not_comparable(const GateReport& r, OtherMachine allowed) {
  if (r.before.results.front().kind != r.now.front().kind) {
    return fmt::format("the baseline is of a {}, and the result of a {}", r.before.results.front().kind,
                       r.now.front().kind);
  }
  if (!r.measured.empty()) {
    return fmt::format("they did not measure the same: {} {}", r.measured.front().key,
                       r.measured.size() == 1 ? "differs" : fmt::format("and {} more differ", r.measured.size() - 1));
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

/// Why the later results cannot be gated together; empty: they can.
std::string why_not_alike(const std::vector<GatedResult>& now) {
  for (const GatedResult& other : now) {
    const GatedResult& first = now.front();
    const auto all = differences(first.machine, other.machine);
    if (other.kind != first.kind || other.measured != first.measured) {
      return fmt::format("{} and {} did not measure the same, so they are no results of one gate", first.name,
                         other.name);
    }
    if (!all.empty()) {
      return fmt::format("{} and {} are not of the same machine and program ({}), so they are no results of one gate",
                         first.name, other.name, difference_text(all.front()));
    }
  }
  return {};
}

/// A result that was not accepted passes no gate, however little has changed; unless the
/// same is said of a result of the baseline.
Judgement own_verdict(const GatedResult& result, const std::vector<GatedResult>& before) {
  const std::string& why = result.not_accepted_because;
  if (why.empty()) return accept::judged("accepted", result.name, Verdict::pass, "the result itself was accepted");
  const bool known = std::ranges::find(before, why, &GatedResult::not_accepted_because) != before.end();
  return accept::judged(
      "accepted", result.name, known ? Verdict::unrated : Verdict::inconclusive,
      fmt::format("the result itself was not accepted: {}{}", why, known ? ", as the baseline was not" : ""));
}

/// Whether times are modelled, in part or in all.
bool is_emulated(const MachinePrint& machine) {
  return machine.value("links") == "emulated" || machine.value("computation") == "emulated";
}

std::string number_text(const accept::Interval& i, std::string_view unit) {
  return i.n == 0 ? "–" : shown(i.median, unit);
}

/// Bytes are the same however slow a machine has become.
bool none_was_judged(const std::vector<Change>& changes) {
  return std::ranges::none_of(changes, [](const Change& c) {
    const bool rated = c.judgement.verdict == Verdict::pass || c.judgement.verdict == Verdict::fail;
    return rated && c.difference.evidence != account::RestsOn::counted &&
           c.difference.evidence != account::RestsOn::nothing;
  });
}

bool has_ratio(const Change& c) { return c.difference.evidence != account::RestsOn::nothing; }

/// Changes as a reader must see them: the worst first, then those that could not be told, then the better ones.
std::vector<const Change*> by_gravity(const GateReport& r) {
  std::vector<const Change*> all;
  for (const Change& c : r.changes) all.push_back(&c);
  std::ranges::stable_sort(
      all, {}, [](const Change* c) { return std::pair(accept::place_in_tables(c->judgement.verdict), !c->better()); });
  return all;
}

/// Lines that say why something did not pass. Why several figures could not be judged is said once, with their names:
/// their numbers are in the table.
std::string reasons_text(const GateReport& r) {
  std::string text;
  std::set<std::string> said;
  for (const Judgement& j : r.judgements) {
    if (j.verdict == Verdict::fail) text += text_line(fmt::format("worse: {}: {}", j.figure, j.sentence));
    if (j.verdict != Verdict::inconclusive || j.rule == "machine") continue;  // that is the headline
    const auto change = std::ranges::find(r.changes, j.figure, [](const Change& c) { return c.judgement.figure; });
    const std::string reason = j.rule == "change" ? change->reason : "";
    std::vector<std::string> alike;
    for (const Change& c : r.changes) {
      if (c.judgement.verdict == j.verdict && c.reason == reason) alike.push_back(c.judgement.figure);
    }
    if (reason.empty() || alike.size() == 1) {
      text += text_line(fmt::format("inconclusive: {}: {}", j.figure, j.sentence));
    } else if (said.insert(reason).second) {
      text += text_line(fmt::format("inconclusive: {} figures ({}): {}", alike.size(), fmt::join(alike, "; "),
                                    reason.substr(reason.find_first_not_of(";, "))));
    }
  }
  return text;
}

std::optional<accept::Interval> known(const accept::Interval& interval) {
  return interval.n == 0 ? std::nullopt : std::optional(interval);
}

std::string word_of(const Change& c) { return c.better() ? "better" : std::string(to_string(c.judgement.verdict)); }

/// In tables.
std::string verdict_text(const Change& c) { return c.judgement.verdict == Verdict::fail ? "WORSE" : word_of(c); }

std::string verdict_of(const GateReport& r) {
  return r.not_comparable_because.empty() ? std::string(to_string(r.verdict)) : "not comparable";
}

// clang-format off
const Fields<GatedResult>& side_result_fields() {
  using R = GatedResult;
  static const Fields<R> kAll{"GateResult", "A result of one side.", "accept/gate/gated_result.h", {
    {"name", &R::name, "", "of its folder"},
    {"date", &R::date, "", "when it was measured; empty for simulations"},
    {"not_accepted_because", &R::not_accepted_because, "", "why its own verdict is no pass", if_any},
    {"injected", &R::injected, "", "faults that were injected", if_any},
  }};
  return kAll;
}

/// Results of the same machine that measured the same.
const Fields<std::vector<GatedResult>>& side_fields() {
  using S = std::vector<GatedResult>;
  static const Fields<S> kAll{"GateSide", "The results of one side.", "accept/gate/gated_result.h", {
    {"kind", [](const S& s) { return s.front().kind; }, "", "`acceptance` or `run`"},
    {"machine", [](const S& s) { return s.front().machine.to_json(); }, "", "`name` and `value` of each fact, by `hardware`, `software`, `program`"},
    {"summary", [](const S& s) { return s.front().machine.summary(); }, "", "the machine in short"},
    {"results", as<ListOf<side_result_fields>>(kItself), "", "each by its name"},
  }};
  return kAll;
}

}  // namespace

template <>
Fields<MachineDifference> declared() {
  using D = MachineDifference;
  return {"MachineDifference", "A fact of the machine that the sides do not share; empty where one lacks it.", "accept/gate/gated_result.h", {
    {"name", &D::name, "", "of the fact"},
    {"part", &D::part, "", "`hardware`, `software` or `program`"},
    {"before", &D::before, "", "its value before"},
    {"now", &D::now, "", "its value now"},
  }};
}

template <>
Fields<Change> declared() {
  using J = Judgement;
  using D = account::Difference;
  return {"Change", "A figure now and before.", "accept/regression.h", {
    {"figure", via(&Change::judgement, &J::figure), "", "its name"},
    {"unit", via(&Change::judgement, &J::unit), "", "of `before` and `now`"},
    {"better", [](const Change& c) { return c.higher_is_better ? "more" : "less"; }, "", "`more` or `less` of it"},
    {"before", [](const Change& c) { return known(c.before); }, "", "in the baseline; null if it is not there", or_null},
    {"now", [](const Change& c) { return known(c.judgement.value); }, "", "in the result; null likewise", or_null},
    {"verdict", word_of, "", "`better`, `pass`, `unrated`, `inconclusive` or `fail`"},
    {"why", via(&Change::judgement, &J::sentence), "", "a sentence with the numbers"},
    {"by", via(&Change::difference, &D::evidence), "", "what the verdict rests on"},
    {"ratio", via(&Change::difference, &D::ratio), "", "now / before; absent if one is missing", when(has_ratio)},
    {"ratio_low", via(&Change::difference, &D::low), "", "lower end of its interval", when(has_ratio)},
    {"ratio_high", via(&Change::difference, &D::high), "", "upper end", when(has_ratio)},
    {"at_most", via(&Change::difference, &D::at_most), "", "how many times as bad it is at most, with 96 % certainty", when(has_ratio)},
    {"left_out", &Change::left_out, "", "results of the baseline that are outliers", if_any},
  }};
}

template <>
Fields<GateReport> declared() {
  using R = GateReport;
  return {"Gate", "gate.json: later results against accepted ones ([gate.md](gate.md)).", "accept/gate/gate_report.h", {
    {"schema_version", [](const R&) { return kGateSchemaVersion; }, "", "version of this file's format"},
    {"kind", [](const R&) { return "gate"; }, "", "`gate`"},
    {"verdict", verdict_of, "", "`pass`, `inconclusive`, `fail` or `not comparable`"},
    {"sentence", &R::headline, "", "the verdict in a sentence"},
    {"threshold", &R::threshold, "", "smaller changes do not matter, as a fraction"},
    {"baseline", via(&R::before, &Baseline::name), "", "its name"},
    {"before", as<ObjectOf<side_fields>>(&R::before, &Baseline::results), "", "the baseline's results"},
    {"now", as<ObjectOf<side_fields>>(&R::now), "", "the later results"},
    {"differences", &R::machine, "", "facts of the machine that differ"},
    {"differing_keys", &R::measured, "", "what was measured differently"},
    {"left_out", via(&R::before, &Baseline::left_out), "", "results of the folder that were not accepted, with the reason", if_any},
    {"changes", &R::changes, "", "each figure"},
  }};
}
// clang-format on

int GateReport::exit_code() const {
  if (!not_comparable_because.empty()) return static_cast<int>(ExitCode::other_machine);
  return accept::exit_code(verdict, ExitCode::slower);
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
    text = fmt::format("WORSE: {} by {:.3g} % or more than {}", figures, 100 * threshold, before.name);
  } else if (verdict == Verdict::pass) {
    text = fmt::format("PASS: none of {} figures is worse than {} by {:.3g} % or more", changes.size(), before.name,
                       100 * threshold);
  } else {
    const auto open = count(Verdict::inconclusive);
    text = fmt::format("INCONCLUSIVE against {}", before.name);
    if (open > 0) text += fmt::format(": {} of {} figures could not be judged", open, changes.size());
  }
  if (const auto better = std::ranges::count_if(changes, &Change::better); better > 0) {
    text += fmt::format("; {} better", better);
  }
  if (is_emulated(now.front().machine)) text += "; EMULATED";
  if (!now.front().injected.empty()) text += fmt::format("; INJECTED: {}", fmt::join(now.front().injected, ", "));
  return text;
}

GateReport judge_gate(const Baseline& baseline, std::vector<GatedResult> now, OtherMachine allowed, double threshold) {
  GateReport r;
  r.not_comparable_because = why_not_alike(now);
  r.before = baseline;
  r.now = std::move(now);
  r.threshold = threshold;
  r.machine = differences(r.before.results.front().machine, r.now.front().machine);
  r.measured = differing_keys(r.before.results.front().measured, r.now.front().measured);
  for (const GatedResult& result : r.now) r.judgements.push_back(own_verdict(result, r.before.results));
  if (r.not_comparable_because.empty()) r.not_comparable_because = why_not_comparable(r, allowed);
  if (!r.not_comparable_because.empty()) {
    r.judgements.push_back(
        accept::judged("machine", r.now.front().name, Verdict::inconclusive, r.not_comparable_because));
    return r;
  }
  std::vector<accept::ResultFigures> before, after;
  for (const GatedResult& result : baseline.results) before.push_back(result.figures);
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

std::string gate_table(const GateReport& r, bool verbose) {
  Table table{.title = r.headline(),
              .header = {"verdict", "figure", "before", "now", "unit", "now / before", "interval"},
              .rows = {}};
  std::int64_t hidden = 0;
  for (const Change* c : by_gravity(r)) {
    if (c->judgement.verdict == Verdict::unrated && !verbose) {
      ++hidden;
      continue;
    }
    const accept::Interval &before = c->before, &now = c->judgement.value;
    const Shown value(c->judgement.unit, std::max(before.median, now.median));
    const auto number = [&](const accept::Interval& i) { return i.n == 0 ? "–" : value.number(i.median); };
    const account::Difference& d = c->difference;
    table.rows.push_back({verdict_text(*c), c->judgement.figure, number(before), number(now), value.unit(),
                          has_ratio(*c) ? fmt::format("{:.3f}", d.ratio) : "–",
                          has_ratio(*c) && d.low < d.high ? fmt::format("{:.3f} to {:.3f}", d.low, d.high) : "–"});
  }
  std::string text = table.rows.empty() ? text_line(r.headline()) : format_table(table);
  if (hidden > 0) text += fmt::format("{} figures were not rated: --verbose shows them\n", hidden);
  std::string more = reasons_text(r);
  for (const std::string& one : r.before.left_out) more += text_line("left out: " + one);
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
  const std::size_t k = r.before.results.size();
  more += fmt::format("{} of {}, {} in the baseline{}.\n",
                      r.now.size() == 1 ? "1 result" : fmt::format("{} results", r.now.size()), r.now.front().kind, k,
                      k < 3 ? ": with 3 or more, how much results of this machine scatter would count" : "");
  return text + "\n" + more;
}

std::string gate_markdown(const GateReport& r) {
  std::string text = fmt::format("# {}\n\n", markdown_cell(r.headline()));
  Table differs{.title = "", .header = {"differs", "before", "now"}, .rows = {}};
  for (const MachineDifference& d : r.machine) {
    differs.rows.push_back({fmt::format("{} ({})", d.name, to_string(d.part)), d.before, d.now});
  }
  if (!differs.rows.empty()) text += markdown_table(differs) + '\n';
  for (const Judgement& j : r.judgements) {
    if (j.rule == "accepted" && j.verdict != Verdict::pass) text += fmt::format("- {}\n", markdown_cell(j.sentence));
  }
  Table changes{.title = "", .header = {"figure", "before", "now", "verdict", "why"}, .rows = {}};
  for (const Change* c : by_gravity(r)) {
    changes.rows.push_back({c->judgement.figure, number_text(c->before, c->judgement.unit),
                            number_text(c->judgement.value, c->judgement.unit), verdict_text(*c),
                            c->judgement.sentence});
  }
  return changes.rows.empty() ? text : text + markdown_table(changes);
}

json gate_json(const GateReport& r) { return fields<GateReport>().write(r); }

const ObjectFacts& gate_file_facts() { return fields<GateReport>().facts(); }

namespace {

namespace fs = std::filesystem;

bool is_result_folder(const fs::path& folder) { return path_exists(folder / "result.json"); }

/// By name: each folder that holds a result, and each JSON file. `left_out`: what cannot be gated, and why.
std::vector<GatedResult> results_in(const fs::path& folder, std::vector<std::string>& left_out) {
  std::set<fs::path> paths;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const bool file = entry.path().extension() == ".json" && !entry.is_directory(error);
    if (file || is_result_folder(entry.path())) paths.insert(entry.path());
  }
  std::vector<GatedResult> all;
  for (const fs::path& path : paths) {
    try {
      all.push_back(read_gated_result(path.string()));
    } catch (const NotGated& refused) {
      left_out.emplace_back(refused.what());
    }
  }
  return all;
}

/// Distance of a result from the same measurement and machine.
std::tuple<bool, std::ptrdiff_t, std::ptrdiff_t> distance(const GatedResult& a, const GatedResult& b) {
  const auto all = differences(a.machine, b.machine);
  return {a.measured != b.measured, std::ranges::count(all, MachinePrint::Part::hardware, &MachineDifference::part),
          std::ranges::count(all, MachinePrint::Part::software, &MachineDifference::part)};
}

}  // namespace

Baseline find_baseline(const std::string& given, const GatedResult& now) {
  std::error_code error;
  if (!fs::is_directory(given, error) || is_result_folder(given)) {
    const GatedResult alone = read_gated_result(given);
    return {alone.name, {alone}, {}};
  }
  Baseline baseline{fs::weakly_canonical(given, error).filename().string(), {}, {}};
  std::vector<GatedResult> all = results_in(given, baseline.left_out);
  if (all.empty()) {
    throw ConfigError(baseline.left_out.empty()
                          ? fmt::format("{}: holds no result; expected folders or files of results, as `fsdpbench "
                                        "run` writes them.",
                                        given)
                          : fmt::format("{}: holds no result that can be gated: {}", given, baseline.left_out[0]));
  }
  std::set<std::string> kinds, seen{now.digest};
  std::erase_if(all, [&](const GatedResult& result) {
    kinds.insert(result.kind);
    return result.kind != now.kind || !seen.insert(result.digest).second;
  });
  if (all.empty() && kinds.contains(now.kind)) {
    throw ConfigError(fmt::format("{}: each result of its kind ({}) there is {} itself.", given, now.kind, now.name));
  }
  if (all.empty()) {
    throw ConfigError(fmt::format("{}: no other result there is of a{} {}, as {} is; there are results of: {}.", given,
                                  now.kind.starts_with('a') ? "n" : "", now.kind, now.name, fmt::join(kinds, ", ")));
  }
  const GatedResult nearest =
      *std::ranges::min_element(all, {}, [&](const GatedResult& result) { return distance(result, now); });
  for (GatedResult& result : all) {
    if (distance(result, nearest) != std::tuple(false, 0, 0)) continue;
    const std::string& why = result.not_accepted_because;
    if (why.empty() || why == now.not_accepted_because) {
      baseline.results.push_back(std::move(result));
    } else {
      baseline.left_out.push_back(fmt::format("{} was not accepted: {}", result.name, why));
    }
  }
  if (baseline.results.empty()) {
    throw ConfigError(fmt::format("{}: no result there was accepted: {}.", given, fmt::join(baseline.left_out, "; ")));
  }
  return baseline;
}

}  // namespace fsdpbench::app
