#include "accept/stages/lost_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/read_input.h"
#include "config/load.h"
#include "launch/addresses.h"
#include "record/json_fields.h"
#include "record/json_part.h"
#include "runs/measure.h"

namespace fsdpbench::app {
namespace {

using accept::Finding;
using accept::Verdict;

constexpr const char* kLostRule = "ranks";

AcceptanceReport failed(const config::Acceptance& wanted, int ranks, const std::vector<std::string>& hosts) {
  AcceptanceReport report;
  report.fabric = wanted.fabric;
  report.ranks = ranks;
  report.cluster = {.nodes = 1, .gpus_per_node = ranks};
  report.hosts = hosts;
  report.cluster.hosts = hosts;
  report.verdict = Verdict::fail;
  return report;
}

std::vector<std::string> each_once(const std::vector<std::string>& hosts) {
  std::vector<std::string> once;
  std::set<std::string> seen;
  for (const std::string& host : hosts) {
    if (!host.empty() && seen.insert(host).second) once.push_back(host);
  }
  return once;
}

}  // namespace

AcceptanceReport judge_lost_ranks(const config::Acceptance& wanted, int ranks, const std::vector<std::string>& hosts,
                                  const std::vector<LostRank>& lost, bool on_processors,
                                  const std::vector<std::string>& meanwhile) {
  AcceptanceReport report = failed(wanted, ranks, hosts);
  report.hosts.resize(ranks);
  for (const LostRank& one : lost) {
    report.judgements.push_back(accept::judged(kLostRule, "all ranks", Verdict::fail, one.sentence));
    if (one.rank >= 0) report.judgements.back().part = fmt::format("rank {}", one.rank);
    Finding& finding = report.findings.emplace_back();
    finding.kind = Finding::Kind::lost;
    finding.shortfall = 1;
    finding.evidence = one.sentence;
    finding.check = fmt::format("the kernel's log of that host (dmesg: {}), and what else runs there",
                                on_processors ? "out of memory" : "Xid, out of memory, its driver");
    if (one.rank < 0 || one.rank >= ranks) continue;
    finding.element = {accept::Element::Kind::gpu, one.rank, 0};
    report.judgements.back().ranks = {one.rank};
    if (!one.host.empty()) report.hosts[one.rank] = one.host;
  }
  report.meanwhile = meanwhile;
  for (const std::string& sentence : meanwhile) {
    if (!report.findings.empty()) report.findings.front().evidence += "; " + sentence;
  }
  report.judgements.push_back(accept::judged("stages", "all after that", Verdict::inconclusive,
                                             "they were not measured, because a rank was lost"));
  report.cluster.hosts = report.hosts;
  tell_places(report);
  return report;
}

AcceptanceReport judge_no_devices(const config::Acceptance& wanted, const std::string& host, int expected) {
  AcceptanceReport report = failed(wanted, expected, std::vector<std::string>(expected, host));
  const std::string sentence = fmt::format("no GPU of {} answers, and {} are expected", host, expected);
  report.judgements.push_back(accept::judged(kLostRule, "GPUs", Verdict::fail, sentence));
  Finding& finding = report.findings.emplace_back();
  finding.element = {accept::Element::Kind::node, 0, 0};
  finding.kind = Finding::Kind::lost;
  finding.shortfall = 1;
  finding.evidence = sentence;
  finding.check =
      "the driver (nvidia-smi -L), the kernel's log (dmesg: Xid 79, fallen off the bus), CUDA_VISIBLE_DEVICES";
  tell_places(report);
  return report;
}

int own_ranks(const config::Acceptance& wanted, const std::vector<std::string>& overrides,
              const config::RunConfig& config, std::optional<int> devices) {
  const bool asked = std::ranges::any_of(
      overrides, [](const std::string& text) { return config::read_override(text).name == "mesh.ranks"; });
  const int of_run = static_cast<int>(config.mesh.ranks);
  const int ranks = asked ? of_run : wanted.ranks > 0 ? wanted.ranks : devices.value_or(of_run);
  return std::min(ranks, devices.value_or(ranks));
}

std::vector<LostRank> lost_of(const std::vector<launch::RankEnd>& ends, double limit_s) {
  const std::string host = launch::node_name();
  // Where all hang, one that is stopped or stuck in the kernel is why; the others wait for it.
  const bool all_killed = std::ranges::all_of(ends, &launch::RankEnd::killed);
  const auto is_culprit = [&](const launch::RankEnd& end) {
    return end.lost() && (!all_killed || end.state == 'T' || end.state == 'D');
  };
  std::vector<LostRank> lost;
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    if (!is_culprit(ends[rank])) continue;
    lost.push_back(
        {static_cast<int>(rank), host, fmt::format("rank {} on {} {}", rank, host, launch::describe(ends[rank]))});
  }
  if (lost.empty() && all_killed) {
    lost.push_back(
        {.host = host,
         .sentence = fmt::format("the {} ranks on {} did not come to an end within {} (--limit) and were killed",
                                 ends.size(), host, format_duration(limit_s))});
  }
  return lost;
}

std::string ras_of(const std::string& given, bool on_processors, const launch::Environment& environment) {
  const auto variable = [&](const char* name) {
    const char* const text = environment(name);
    return std::string(text == nullptr ? "" : text);
  };
  if (given == "off" || (given.empty() && (on_processors || variable("NCCL_RAS_ENABLE") == "0"))) return "";
  if (!given.empty()) return given;
  const std::string named = variable("NCCL_RAS_ADDR");
  return named.empty() ? "localhost" : named;
}

std::string told_by_ras(const std::string& ras,
                        const std::function<std::string(const std::vector<std::string>& words)>& watch) {
  std::string why = "there was no whole answer in time";
  try {
    const nlohmann::json told = parse_json(watch({"--once", "--stopped", "--json", "--ras=" + ras}));
    if (told.is_object()) return fmt::format("NCCL's RAS ({}) says: {}", ras, JsonPart(told).text("sentence", ""));
  } catch (const Error& error) {
    why = error.what();
  }
  return fmt::format("NCCL's RAS ({}) was not heard: {}", ras, why);
}

std::vector<std::string> told_by_rank_0(const std::filesystem::path& result) {
  std::ifstream file(result);
  const nlohmann::json written = parse_json(std::string(std::istreambuf_iterator<char>(file), {}));
  std::vector<std::string> sentences;
  const JsonPart whole(written);
  if (whole.has("meanwhile")) JsonType<std::vector<std::string>>::read(whole.at("meanwhile"), sentences);
  return sentences;
}

NodeLists node_lists(const AcceptanceReport& report) {
  const std::vector<std::string> all = each_once(report.hosts);
  if (report.verdict == Verdict::pass) return {all, {}};
  if (report.verdict != Verdict::fail) return {};
  if (all.size() == 1) return {{}, all};
  std::set<int> ranks;
  for (const accept::Finding& finding : report.findings) {
    const bool of_nodes = finding.element.kind <= accept::Element::Kind::link;  // else of what is between them
    if (!finding.accuses() || !of_nodes) continue;
    for (const int rank : accept::ranks_of_part(finding.element, report.cluster)) ranks.insert(rank);
  }
  for (const accept::Judgement& judgement : report.judgements) {
    if (judgement.verdict == Verdict::fail) ranks.insert(judgement.ranks.begin(), judgement.ranks.end());
  }
  std::vector<std::string> named;
  for (const int rank : ranks) {
    const std::size_t index = rank;
    if (index < report.hosts.size()) named.push_back(report.hosts[index]);
  }
  return {{}, each_once(named)};
}

std::string host_lines(const std::vector<std::string>& hosts) {
  std::string text;
  for (const std::string& host : hosts) text += clean_text(host, kMostOfAMessage) + '\n';
  return text;
}

}  // namespace fsdpbench::app
