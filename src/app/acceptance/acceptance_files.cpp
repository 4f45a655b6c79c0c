#include "app/acceptance/acceptance_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>

#include "app/acceptance/judgement_files.h"
#include "app/collectives/collectives_json.h"
#include "app/console/table.h"
#include "base/clean_text.h"
#include "base/enum_table.h"

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

/// A line each; what to check is said once for those that follow each other with the same.
std::vector<std::string> finding_lines(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const Finding& f = findings[i];
    const bool said_below = i + 1 < findings.size() && findings[i + 1].check == f.check;
    lines.push_back(fmt::format("{}{}{}", f.accuses() ? "" : "for a while: ", f.evidence,
                                said_below ? "" : fmt::format("; check {}", f.check)));
  }
  return lines;
}

std::int64_t rated(const AcceptanceReport& r) {
  return std::ranges::count_if(r.judgements, [](const Judgement& j) { return j.verdict != Verdict::unrated; });
}

std::string acceptance_headline(const AcceptanceReport& r) {
  return fmt::format("{}: {} ranks on {} {}{}, held against {}; {} of {} rules rated", upper(to_string(r.verdict)), r.ranks,
                     r.cluster.nodes, r.cluster.nodes == 1 ? "node" : "nodes", r.emulated ? ", EMULATED" : "", r.fabric,
                     rated(r), r.judgements.size());
}

/// What a scheduler or a person reads first: wrong data, then who is to blame, then what else failed.
std::vector<std::string> first_lines(const AcceptanceReport& r) {
  std::vector<std::string> lines;
  const auto add_failed = [&](bool data) {
    for (const Judgement& j : r.judgements) {
      if (j.verdict != Verdict::fail || j.rule == "peers" || j.rule == "ranks" || (j.rule == "data") != data) continue;
      lines.push_back(fmt::format("{}, {}: {}", j.rule, j.figure, j.sentence));
    }
  };
  add_failed(true);
  for (std::string& line : finding_lines(r.findings)) lines.push_back(std::move(line));
  add_failed(false);
  return lines;
}

/// A label's value in Prometheus' text format.
std::string label(std::string_view text) {
  std::string out;
  for (const char c : clean_text(text, kMostOfAMessage)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

nlohmann::json rounds_json(const std::vector<accept::ArmRound>& rounds) {
  nlohmann::json all = nlohmann::json::array();
  for (const accept::ArmRound& round : rounds) {
    all.push_back({{"computation_ms", round.computation_ms},
                   {"communication_ms", round.communication_ms},
                   {"whole_ms", round.whole_ms},
                   {"kernels_alone_ms", round.kernels_alone_ms},
                   {"kernels_beside_ms", round.kernels_beside_ms},
                   {"transfers_alone_ms", round.transfers_alone_ms},
                   {"transfers_beside_ms", round.transfers_beside_ms}});
  }
  return all;
}

}  // namespace

std::string acceptance_table(const AcceptanceReport& r) {
  Table table;
  table.title = acceptance_headline(r);
  table.header = {"rule", "figure", "verdict", "median", "95 %", "compared with", "unit"};
  const auto number = [](double value) { return fmt::format("{:.4g}", value); };
  std::string reasons;
  for (const Judgement& j : r.judgements) {
    const bool has = j.value.n > 0;
    table.rows.push_back({j.rule, j.figure, std::string(to_string(j.verdict)), has ? number(j.value.median) : "–",
                          has ? fmt::format("{} to {}", number(j.value.low), number(j.value.high)) : "–",
                          j.bound ? number(*j.bound) : "–", j.unit});
    const bool said = j.rule == "peers";  // with its finding, below
    if ((j.verdict == Verdict::fail && !said) || j.verdict == Verdict::inconclusive) {
      reasons += text_line(fmt::format("{}: {}, {}: {}", to_string(j.verdict), j.rule, j.figure, j.sentence));
    }
  }
  std::string text = format_table(table) + '\n' + reasons;
  for (const std::string& line : finding_lines(r.findings)) text += text_line(line);
  for (const Judgement& j : r.judgements) {
    if (j.rule == "other work") text += text_line(j.sentence);
  }
  return text;
}

std::string acceptance_markdown(const AcceptanceReport& r) {
  std::string text = fmt::format("# {}\n\n", markdown_cell(acceptance_headline(r)));
  const std::vector<std::string> lines = first_lines(r);
  for (const std::string& line : lines) text += fmt::format("- {}\n", markdown_cell(line));
  if (!lines.empty()) text += '\n';
  text += "| rule | figure | verdict | why |\n|---|---|---|---|\n";
  for (const Judgement& j : r.judgements) {
    text += fmt::format("| {} | {} | {} | {} |\n", markdown_cell(j.rule), markdown_cell(j.figure), to_string(j.verdict),
                        markdown_cell(j.sentence));
  }
  return text;
}

std::string acceptance_junit(const AcceptanceReport& r) { return junit_xml({.suite = "accept"}, r.judgements); }

std::string acceptance_metrics(const AcceptanceReport& r) {
  std::string text =
      "# HELP fsdpbench_accept_verdict 0 pass, 1 unrated, 2 inconclusive, 3 fail\n"
      "# TYPE fsdpbench_accept_verdict gauge\n";
  text += fmt::format("fsdpbench_accept_verdict{{fabric=\"{}\"}} {}\n", label(r.fabric), static_cast<int>(r.verdict));
  text +=
      "# HELP fsdpbench_accept_rule The same of each rule and figure\n"
      "# TYPE fsdpbench_accept_rule gauge\n";
  for (const Judgement& j : r.judgements) {
    text += fmt::format("fsdpbench_accept_rule{{rule=\"{}\",figure=\"{}\"}} {}\n", label(j.rule), label(j.figure),
                        static_cast<int>(j.verdict));
  }
  text +=
      "# HELP fsdpbench_accept_value Median of each figure, in its unit\n"
      "# TYPE fsdpbench_accept_value gauge\n";
  for (const Judgement& j : r.judgements) {
    if (j.value.n == 0) continue;
    text += fmt::format("fsdpbench_accept_value{{rule=\"{}\",figure=\"{}\",unit=\"{}\"}} {}\n", label(j.rule),
                        label(j.figure), label(j.unit), j.value.median);
  }
  text +=
      "# HELP fsdpbench_accept_accused 1 for each part that is to blame\n"
      "# TYPE fsdpbench_accept_accused gauge\n";
  for (const Finding& f : r.findings) {
    if (!f.accuses()) continue;
    text += fmt::format("fsdpbench_accept_accused{{part=\"{}\"}} 1\n", label(accept::name_of(f.element, r.cluster)));
  }
  return text;
}

nlohmann::json acceptance_json(const AcceptanceReport& r, const AcceptanceMeasurements& m, const World& world) {
  nlohmann::json j{{"kind", "acceptance"},
                   {"verdict", to_string(r.verdict)},
                   {"fabric", r.fabric},
                   {"emulated", r.emulated},
                   {"rated", rated(r)},
                   {"ranks", r.ranks},
                   {"nodes", r.cluster.nodes},
                   {"world", to_json(world)},
                   {"judgements", nlohmann::json::array()},
                   {"findings", nlohmann::json::array()}};
  for (const Judgement& judgement : r.judgements) {
    nlohmann::json one{{"rule", judgement.rule},
                       {"figure", judgement.figure},
                       {"verdict", to_string(judgement.verdict)},
                       {"why", judgement.sentence}};
    if (judgement.value.n > 0) one["value"] = interval_json(judgement.value);
    if (!judgement.unit.empty()) one["unit"] = judgement.unit;
    if (judgement.bound) one["bound"] = *judgement.bound;
    j["judgements"].push_back(std::move(one));
  }
  constexpr EnumNames<Finding::Kind> kKinds{"slow", "half_duplex", "lost", "transient"};
  for (const Finding& f : r.findings) {
    j["findings"].push_back({{"part", accept::name_of(f.element, r.cluster)},
                             {"kind", kKinds[f.kind]},
                             {"shortfall", f.shortfall},
                             {"relative", interval_json(f.relative)},
                             {"evidence", f.evidence},
                             {"check", f.check}});
  }
  j["device_rates_flops_per_s"] = m.device_rates;
  j["pairs"] = {{"one_way_gb_per_s", m.links.one_way},
                {"rounds", m.links.rounds},
                {"measurements", m.links.measurements},
                {"compared", m.links.compared}};
  j["stages"] = nlohmann::json::array();
  for (const Stage& stage : m.stages) {
    nlohmann::json one{{"name", stage.name}, {"took_s", stage.took_s}, {"skipped", stage.skipped}};
    if (stage.estimate_s) one["estimate_s"] = *stage.estimate_s;
    if (!stage.note.empty()) one["note"] = stage.note;
    j["stages"].push_back(std::move(one));
  }
  j["memory_rates_bytes_per_s"] = m.memory_rates;
  j["rendezvous"] = {{"ready_s", m.ready_s}, {"clocks", nlohmann::json::array()}};
  for (const launch::ClockOffset& clock : m.clocks) {
    j["rendezvous"]["clocks"].push_back(
        {{"offset_ns", clock.offset_ns}, {"residual_ns", clock.residual_ns}, {"same_clock", clock.same_clock}});
  }
  j["others_share"] = m.others_share;
  j["transports"] = m.transports;
  j["scales"] = nlohmann::json::array();
  for (const CollectiveRow& row : m.scales.rows) {
    const Timing& timing = row.in_place ? *row.in_place : *row.out_of_place;
    j["scales"].push_back({{"collective", to_string(row.message.op)},
                           {"ranks", row.message.ranks},
                           {"bytes", row.message.bytes()},
                           {"busbw_gb_per_s", timing.bus_gb_per_s(row.message)},
                           {"p50_us", timing.scatter.p50_us}});
  }
  if (r.lateness) {
    j["lateness"] = {{"last_share", r.lateness->last_share},
                     {"waiting_us", interval_json(r.lateness->waiting_us)},
                     {"transfer_us", interval_json(r.lateness->transfer_us)}};
  }
  j["arms"] = {{"rounds", rounds_json(m.arms)}};
  if (!m.soak.empty()) j["arms"]["soak"] = rounds_json(m.soak);
  if (m.predicted.ms) j["arms"]["predicted_ms"] = *m.predicted.ms;
  if (!m.pairs.empty()) {
    j["pairs"]["ends"] = r.cluster.one_node() ? "ranks" : "nodes";
    j["pairs"]["gb_per_s"] = m.pairs;
  }
  for (const CollectiveRow& row : m.ladder) {
    nlohmann::json rung = collective_row_json(row);
    rung["op"] = to_string(row.message.op);
    rung["ranks"] = row.message.ranks;
    rung["figures"] = {ladder_figure(row.message, false), ladder_figure(row.message, true)};
    j["collectives"].push_back(std::move(rung));
  }
  return j;
}

}  // namespace fsdpbench::app
