#include "accept/stages/acceptance_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "accept/stages/judgement_files.h"
#include "accept/verdict.h"
#include "base/enum_table.h"
#include "record/json_fields.h"
#include "record/json_part.h"
#include "record/table.h"
#include "runs/result_fields.h"

namespace fsdpbench::app {
namespace {

using accept::Finding;
using accept::Judgement;
using accept::Verdict;

std::string upper(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return out;
}

/// A line each, with the UUID of a GPU, by which its vendor knows it; what to check is said once for those that follow
/// each other with the same.
std::vector<std::string> finding_lines(const AcceptanceReport& report) {
  const std::vector<Finding>& findings = report.findings;
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const Finding& f = findings[i];
    const bool said_below = i + 1 < findings.size() && findings[i + 1].check == f.check;
    const std::string uuid =
        f.element.kind == accept::Element::Kind::gpu ? accept::place_of(f.element, report.cluster).uuid : "";
    lines.push_back(fmt::format("{}{}{}{}", f.kind == Finding::Kind::transient ? "for a while: " : "", f.evidence,
                                uuid.empty() ? "" : fmt::format(" ({})", uuid),
                                said_below ? "" : fmt::format("; check {}", f.check)));
  }
  return lines;
}

accept::Place accused_place(const Finding& finding, const accept::Cluster& cluster) {
  accept::Place place = accept::place_of(finding.element, cluster);
  place.direction = finding.direction;
  return place;
}

/// A place as labels of Prometheus.
std::string labelled(const accept::Place& place) {
  std::string labels;
  const nlohmann::json known = fields<accept::Place>().write(place);
  for (const FieldFacts& field : fields<accept::Place>().facts().fields) {
    if (!known.contains(field.name)) continue;
    labels += fmt::format(",{}=\"{}\"", field.name, prometheus_label(known[field.name].get<std::string>()));
  }
  return labels;
}

std::string acceptance_headline(const AcceptanceReport& r) {
  const auto busy = std::ranges::find(r.judgements, kOtherWorkRule, &Judgement::rule);
  std::string blamed;
  const auto accused = std::ranges::count_if(r.findings, &Finding::accuses);
  if (accused > 0 && r.findings.front().kind != Finding::Kind::lost) {  // who accuses comes first
    blamed = fmt::format("; to blame: {}{}", accept::name_of(r.findings.front().element, r.cluster),
                         accused > 1 ? fmt::format(" and {} more", accused - 1) : "");
  }
  return fmt::format("{}: {} ranks on {} {}{}, compared with {}; {} of {} rules rated{}{}{}",
                     upper(to_string(r.verdict)), r.ranks, r.cluster.nodes, r.cluster.nodes == 1 ? "node" : "nodes",
                     r.emulated ? ", EMULATED" : "", r.fabric, rated_rules(r), r.judgements.size(),
                     r.ranks < accept::kFewestPeers
                         ? fmt::format("; no rank was compared with others: {} ranks are needed", accept::kFewestPeers)
                         : "",
                     busy == r.judgements.end()
                         ? ""
                         : fmt::format("; other programs took {:.0f} % of the processors", 100 * busy->value.median),
                     blamed);
}

/// Lines that a scheduler or a person reads first: wrong data, then who is to blame, what else failed, what is open.
std::vector<std::string> first_lines(const AcceptanceReport& r) {
  std::vector<std::string> lines;
  const auto add = [&](Verdict verdict, bool data) {
    for (const Judgement& j : r.judgements) {
      const bool by_its_finding = j.rule == "ranks" || (j.rule == "peers" && !j.part.empty());
      if (j.verdict != verdict || by_its_finding || (j.rule == "data") != data) continue;
      // Sentences have ranks and hosts; whoever goes to the machine needs devices and NICs, too.
      const bool known = !j.ranks.empty() && !(j.place.device.empty() && j.place.uuid.empty() && j.place.nic.empty());
      lines.push_back(fmt::format("{}: {}, {}: {}{}", to_string(verdict), j.rule, j.name(), j.sentence,
                                  known ? fmt::format(" ({})", place_text(j.place)) : ""));
    }
  };
  add(Verdict::fail, true);
  for (std::string& line : finding_lines(r)) lines.push_back(std::move(line));
  add(Verdict::fail, false);
  add(Verdict::inconclusive, false);
  for (const Judgement& j : r.judgements) {
    if (j.rule == kOtherWorkRule) lines.push_back(j.sentence);
  }
  if (r.lateness && r.lateness->in_turn) lines.push_back(r.lateness->sentence);
  return lines;
}

/// Parts of an acceptance's result.json.
struct AcceptanceFile {
  const AcceptanceReport* report;
  const AcceptanceMeasurements* measured;
  const World* world;
  const nlohmann::json* settings;
};

using FoundIn = std::pair<const accept::Cluster*, const Finding*>;

std::string kind_of(const Finding& finding) {
  constexpr EnumNames<Finding::Kind> kKinds{"slow", "half_duplex", "lost", "transient", "collision", "unclear"};
  return std::string(kKinds[finding.kind]);
}

std::string ends_of(const AcceptanceFile& file) {
  return file.measured->pairs.empty() ? "" : file.report->cluster.one_node() ? "ranks" : "nodes";
}

}  // namespace

std::string acceptance_table(const AcceptanceReport& r, bool verbose) {
  std::vector<const Judgement*> order;
  for (const Judgement& j : r.judgements) order.push_back(&j);
  std::ranges::stable_sort(order, {}, [](const Judgement* j) { return accept::place_in_tables(j->verdict); });
  Table table{.title = "", .header = {"verdict", "rule", "figure", "median", "95 %", "limit"}, .rows = {}};
  for (const Judgement* j : order) {
    if (j->verdict == Verdict::unrated && !verbose) continue;
    const Shown value(j->unit, j->value.median);
    const bool has = j->value.n > 0;
    table.rows.push_back({std::string(to_string(j->verdict)), j->rule, j->name(),
                          has ? value.text(j->value.median) : "–", has ? value.range(j->value.low, j->value.high) : "–",
                          j->bound ? shown(*j->bound, j->unit) : "–"});
  }
  std::string text = text_line(acceptance_headline(r));
  for (const std::string& line : first_lines(r)) text += text_line(line);
  if (!table.rows.empty()) text += '\n' + format_table(table);
  const std::size_t hidden = r.judgements.size() - table.rows.size();
  return hidden == 0 ? text : text + fmt::format("{} rules were not rated: --verbose shows them\n", hidden);
}

std::string acceptance_markdown(const AcceptanceReport& r, const std::string& evidence) {
  std::string text = fmt::format("# {}\n\n", markdown_cell(acceptance_headline(r)));
  const std::vector<std::string> lines = first_lines(r);
  for (const std::string& line : lines) text += fmt::format("- {}\n", markdown_cell(line));
  if (!lines.empty()) text += '\n';
  Table table{.title = "", .header = {"rule", "figure", "verdict", "why"}, .rows = {}};
  for (const Judgement& j : r.judgements) {
    table.rows.push_back({j.rule, j.name(), std::string(to_string(j.verdict)), j.sentence});
  }
  text += markdown_table(table);
  if (const std::string place = place_text(accept::place_of_all(r.cluster)); !place.empty()) {
    text += fmt::format("\nMeasured on {}.\n", markdown_cell(place));
  }
  if (!evidence.empty()) text += fmt::format("\nEvidence: result.json, SHA-256 {}.\n", evidence);
  return text;
}

std::string acceptance_junit(const AcceptanceReport& r) {
  const std::string host = accept::place_of_all(r.cluster).host;
  const std::string headline = acceptance_headline(r);
  return junit_xml({.suite = "accept", .host = host, .seconds = r.took_s, .headline = headline}, r.judgements);
}

std::string acceptance_metrics(const AcceptanceReport& r) {
  const std::string everywhere = labelled(accept::place_of_all(r.cluster));
  const auto gauge = [](const char* name, const char* help) {
    return fmt::format("# HELP fsdpbench_accept_{0} {1}\n# TYPE fsdpbench_accept_{0} gauge\n", name, help);
  };
  const auto sample = [](const char* name, const std::string& labels, const auto& value) {
    return fmt::format("fsdpbench_accept_{}{{{}}} {}\n", name, labels, value);
  };
  const std::string fabric = fmt::format("fabric=\"{}\"{}", prometheus_label(r.fabric), everywhere);
  const auto of = [](const Judgement& j, const std::string& unit) {
    return fmt::format("rule=\"{}\",figure=\"{}\"{}{}{}", prometheus_label(j.rule), prometheus_label(j.figure),
                       j.part.empty() ? "" : fmt::format(",part=\"{}\"", prometheus_label(j.part)), unit,
                       labelled(j.place));
  };
  std::string text = gauge("verdict", "0 pass, 1 unrated, 2 inconclusive, 3 fail") +
                     sample("verdict", fabric, static_cast<int>(r.verdict)) +
                     gauge("rules", "Rules that were applied, by whether there was something to rate them by") +
                     sample("rules", "rated=\"true\"" + everywhere, rated_rules(r)) +
                     sample("rules", "rated=\"false\"" + everywhere, std::ssize(r.judgements) - rated_rules(r)) +
                     gauge("emulated", "1 if computation or links were emulated, so that times are modelled") +
                     sample("emulated", fabric, r.emulated ? 1 : 0) + gauge("rule", "The same of each rule and figure");
  for (const Judgement& j : r.judgements) text += sample("rule", of(j, ""), static_cast<int>(j.verdict));
  text += gauge("value", "Median of each figure, in its unit");
  for (const Judgement& j : r.judgements) {
    if (j.value.n == 0) continue;
    text += sample("value", of(j, fmt::format(",unit=\"{}\"", prometheus_label(j.unit))), j.value.median);
  }
  text += gauge("accused", "1 for each part that is to blame");
  for (const Finding& f : r.findings) {
    if (!f.accuses()) continue;
    text += sample("accused",
                   fmt::format("part=\"{}\"{}", prometheus_label(accept::name_of(f.element, r.cluster)),
                               labelled(accused_place(f, r.cluster))),
                   1);
  }
  return text;
}

// clang-format off
template <>
Fields<FoundIn> declared() {
  return {"Finding", "A part that is to blame, or was slow for a while.", "accept/finding.h", {
    {"part", [](const FoundIn& f) { return accept::name_of(f.second->element, *f.first); }, "", "name of the part"},
    {"kind", via(&FoundIn::second, kind_of), "", "`slow`, `half_duplex`, `lost`, or `transient`, `collision` or `unclear` (then no part is blamed)"},
    {"shortfall", via(&FoundIn::second, &Finding::shortfall), "", "how far it is below the median of its peers, as a fraction"},
    {"relative", via(&FoundIn::second, &Finding::relative), "", "its figure divided by the median of its peers"},
    {"evidence", via(&FoundIn::second, &Finding::evidence), "", "a sentence that says what was compared with what"},
    {"check", via(&FoundIn::second, &Finding::check), "", "what to look at next"},
    spread([](const FoundIn& f) { return accused_place(*f.second, *f.first); }),
  }};
}

template <>
Fields<Stage> declared() {
  return {"Stage", "A stage, as it went.", "accept/stages/stage_clock.h", {
    {"name", &Stage::name, "", "name of the stage"},
    {"took_s", &Stage::took_s, "s", "how long it took"},
    {"skipped", &Stage::skipped, "", "whether it was not measured; `note` says why"},
    {"estimate_s", &Stage::estimate_s, "s", "time that was estimated before it began"},
    {"note", &Stage::note, "", "what was left out of it, and why", if_any},
  }};
}

template <>
Fields<launch::ClockOffset> declared() {
  using C = launch::ClockOffset;
  return {"ClockOffset", "A rank's clock as seen from rank 0's.", "launch/clock_offset.h", {
    {"offset_ns", as<SignedWhole>(&C::offset_ns), "ns", "offset of its clock"},
    {"residual_ns", as<SignedWhole>(&C::residual_ns), "ns", "error that the offset may have"},
    {"same_clock", &C::same_clock, "", "whether both read the same clock"},
  }};
}

template <>
Fields<accept::LatenessReport> declared() {
  using L = accept::LatenessReport;
  return {"LatenessReport", "Split of the time in collectives: waiting for a late rank, or moving bytes.", "accept/finding.h", {
    {"last_share", &L::last_share, "", "by rank, how often it came last, as a fraction"},
    {"waiting_us", &L::waiting_us, "us", "from the median arrival to the last one"},
    {"transfer_us", &L::transfer_us, "us", "from the last arrival to the end"},
  }};
}

namespace {

const Fields<CollectiveRow>& scale_fields() {
  using R = CollectiveRow;
  static const Fields<R> kAll{"Scale", "A collective in groups of some ranks, all groups at once.", "accept/stages/measure_devices.h", {
    {"kind", via(&R::message, &Message::op), "", "`all_gather`, …"},
    {"group_size", via(&R::message, &Message::ranks), "", "number of ranks in a group"},
    {"bytes", via(&R::message, &Message::bytes), "B", "message size"},
    {"busbw_gb_per_s", [](const R& r) { return r.timing().bus_gb_per_s(r.message); }, "GB/s", "bus bandwidth, as nccl-tests defines it"},
    {"p50_us", via(&R::timing, &Timing::scatter, &Scatter::p50_us), "us", "half of the iterations are shorter"},
  }};
  return kAll;
}

const Fields<CollectiveRow>& ladder_fields() {
  using R = CollectiveRow;
  static const Fields<R> kAll{"AcceptedCollective", "A collective of the run's own units.", "accept/stages/measure_acceptance.h", {
    spread(kItself),
    {"kind", via(&R::message, &Message::op), "", "`all_gather`, …"},
    {"group_size", via(&R::message, &Message::ranks), "", "number of ranks that take part"},
    {"figures", [](const R& r) { return std::vector{ladder_figure(r.message, false), ladder_figure(r.message, true)}; }, "", "names of its figures in judgements, out of place and in place"},
  }};
  return kAll;
}

const Fields<AcceptanceFile>& acceptance_fields() {
  using A = AcceptanceFile;
  using R = AcceptanceReport;
  using M = AcceptanceMeasurements;
  static const Fields<A> kAll{"Acceptance", "result.json of `accept` ([accept.md](accept.md)).", "accept/stages/acceptance_report.h", {
    {"kind", [](const A&) { return "acceptance"; }, "", "`acceptance`"},
    {"verdict", via(&A::report, &R::verdict), "", "`pass`, `unrated`, `inconclusive` or `fail`"},
    {"fabric", via(&A::report, &R::fabric), "", "fabric that the machine was compared with"},
    {"emulated", via(&A::report, &R::emulated), "", "whether computation or links were emulated, in part or in all: times are then modelled"},
    {"rated", via(&A::report, rated_rules), "", "number of rules that were rated"},
    {"ranks", via(&A::report, &R::ranks), "", "number of ranks"},
    {"nodes", via(&A::report, &R::cluster, &accept::Cluster::nodes), "", "number of nodes"},
    {"world", &A::world, "", "what it was measured with"},
    {"settings", &A::settings, "", "what was set: sizes of the profile, and `config` with every key of its run; gates compare it", if_any},
    {"judgements", via(&A::report, &R::judgements), "", "judgements in the order of the stages"},
    {"findings", [](const A& a) { return each_of(a.report->cluster, a.report->findings); }, "", "parts that are to blame, then those that were slow for a while"},
    {"meanwhile", via(&A::report, &R::meanwhile), "", "when a rank was lost: what NCCL's RAS said of the job", if_any},
    {"device_rates_flops_per_s", via(&A::measured, &M::device_rates), "FLOP/s", "rates of computation in each round, by rank"},
    {"memory_rates_bytes_per_s", via(&A::measured, &M::memory_rates), "B/s", "rates of memory in each round, by rank; bytes read and written"},
    {"launch_us", via(&A::measured, &M::launch_us), "us", "from the launch of a kernel until the host knows its end, in each round, by rank", if_any},
    {"pairs", {"Pairs", "Bandwidth between pairs of ranks or nodes.", "accept/blame_links.h", {
      {"one_way_gb_per_s", via(&A::measured, &M::links, &accept::LinkReport::one_way), "GB/s", "rates of all pairs"},
      {"rounds", via(&A::measured, &M::links, &accept::LinkReport::rounds), "", "number of rounds, those of the confirmation included"},
      {"measurements", via(&A::measured, &M::links, &accept::LinkReport::measurements), "", "number of measurements of pairs"},
      {"compared", via(&A::measured, &M::links, &accept::LinkReport::compared), "", "whether pairs were compared; false if there are too few ends"},
      {"ends", ends_of, "", "`ranks` or `nodes`", if_any},
      {"gb_per_s", via(&A::measured, &M::pairs), "GB/s", "from each end (row) to each; 0: not measured", if_any},
    }}},
    {"stages", via(&A::measured, &M::stages), "", "what was measured, and how long it took"},
    {"rendezvous", {"Rendezvous", "Way in which the ranks came together.", "launch/session.h", {
      {"ready_s", via(&A::measured, &M::ready_s), "s", "time until the device of each rank was ready"},
      {"clocks", via(&A::measured, &M::clocks), "", "clock of each rank; empty if all ranks are threads of one process"},
    }}},
    {"others_share", via(&A::measured, &M::others_share), "", "share of the busiest host's processors that other programs took meanwhile, as a fraction", check_share},
    {"transports", via(&A::measured, &M::transports), "", "what carried the bytes of each rank; empty: it does not know"},
    {"scales", as<ListOf<scale_fields>>(&A::measured, &M::scales), "", "collectives of the most frequent unit, in groups of ranks"},
    {"lateness", via(&A::report, &R::lateness), "", "waiting and moving bytes; absent if no rank was compared"},
    {"arms", {"Arms", "Parts of a step, alone and together.", "accept/step_arms.h", {
      {"rounds", via(&A::measured, &M::arms), "", "rounds, each of them there and back again (ABBA)"},
      {"soak", via(&A::measured, &M::soak), "", "further rounds; only in a full acceptance", if_any},
    }}},
    {"collectives", as<ListOf<ladder_fields>>(&A::measured, &M::ladder), "", "collectives of the run's own units", if_any},
  }};
  return kAll;
}
// clang-format on

}  // namespace

nlohmann::json acceptance_json(const AcceptanceReport& r, const AcceptanceMeasurements& m, const World& world,
                               const nlohmann::json& settings) {
  return acceptance_fields().write({&r, &m, &world, &settings});
}

const ObjectFacts& acceptance_file_facts() { return acceptance_fields().facts(); }

}  // namespace fsdpbench::app
