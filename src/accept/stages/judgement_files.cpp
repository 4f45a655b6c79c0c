#include "accept/stages/judgement_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <utility>

#include "base/read_input.h"
#include "hardware/other_work.h"
#include "runs/result_fields.h"

namespace fsdpbench::app {
namespace {

using accept::Judgement;
using accept::Verdict;

/// Ranks whose environment lacks the variable `name`.
void add_without(const AcceptanceMeasurements& m, const std::string& name,
                 std::map<std::string, std::vector<std::size_t>>& values) {
  for (std::size_t rank = 0; rank < m.fingerprints.size(); ++rank) {
    const auto has = [&](const auto& fact) { return fact.first == name; };
    if (std::ranges::none_of(m.fingerprints[rank], has)) values["not set"].push_back(rank);
  }
}

void judge_inventory(const AcceptanceMeasurements& m, std::vector<Judgement>& out) {
  std::map<std::string, std::map<std::string, std::vector<std::size_t>>> ranks_by_fact;
  for (std::size_t rank = 0; rank < m.fingerprints.size(); ++rank) {
    for (const auto& [name, value] : m.fingerprints[rank]) ranks_by_fact[name][value].push_back(rank);
  }
  bool all_alike = !m.fingerprints.empty();
  for (auto& [name, values] : ranks_by_fact) {
    // Another variable is no other machine, but what NCCL does may differ: it is told, and nothing passes.
    const bool variable = name.starts_with(kVariableFact);
    if (variable) add_without(m, name, values);
    const auto usual = std::ranges::max_element(values, {}, [](const auto& v) { return v.second.size(); });
    for (const auto& [value, ranks] : values) {
      if (value == usual->first) continue;
      all_alike = false;
      out.push_back(accept::judged(
          "inventory", name, variable ? Verdict::inconclusive : Verdict::fail,
          fmt::format("rank {} on {}{} has {} = '{}', and {} of {} ranks have '{}'", ranks.front(),
                      m.hosts.at(ranks.front()), ranks.size() > 1 ? fmt::format(" and {} more", ranks.size() - 1) : "",
                      name, value, usual->second.size(), m.fingerprints.size(), usual->first)));
      out.back().part = fmt::format("rank {}", ranks.front());
      out.back().ranks.assign(ranks.begin(), ranks.end());
    }
  }
  if (m.fingerprints.empty()) {
    out.push_back(accept::judged("inventory", "all ranks", Verdict::inconclusive, "no rank said what it is"));
  } else if (all_alike) {
    out.push_back(
        accept::judged("inventory", "all ranks", Verdict::pass,
                       fmt::format("{} ranks have the same program, processor, kernel and libraries", m.hosts.size())));
  }
}

void judge_rendezvous(const config::Acceptance& wanted, const AcceptanceMeasurements& m, std::vector<Judgement>& out) {
  const auto seen = static_cast<int>(m.hosts.size());
  const bool asks = wanted.ranks > 0 || wanted.ranks_per_node > 0 || wanted.nodes > 1;
  std::map<std::string, int> by_host;
  for (const std::string& host : m.hosts) ++by_host[host];
  std::string sentence = fmt::format("{} {} came", seen, seen == 1 ? "rank" : "ranks");
  bool all_there = true;
  const auto lacks = [&](std::string_view what) {
    all_there = false;
    sentence += what;
  };
  if (wanted.ranks > 0 && seen != wanted.ranks) lacks(fmt::format(", and {} are expected", wanted.ranks));
  if (const auto nodes = static_cast<int>(by_host.size()); nodes < wanted.nodes) {
    lacks(fmt::format("; they are of {} {}, and {} are expected", nodes, nodes == 1 ? "node" : "nodes", wanted.nodes));
  }
  std::vector<int> incomplete;  // a rank of each such node
  for (const auto& [host, ranks] : by_host) {
    if (wanted.ranks_per_node == 0 || ranks == wanted.ranks_per_node) continue;
    incomplete.push_back(static_cast<int>(std::ranges::find(m.hosts, host) - m.hosts.begin()));
    lacks(fmt::format("; {} has {}, and {} are expected of each node", host, ranks, wanted.ranks_per_node));
  }
  if (!asks) sentence += "; the profile does not say how many there should be";
  const Verdict verdict = !asks ? Verdict::unrated : all_there ? Verdict::pass : Verdict::fail;
  if (!m.ready_s.empty()) {
    const auto slowest = std::ranges::max_element(m.ready_s);
    sentence +=
        fmt::format("; the last to be ready was rank {}, after {:.3g} s", slowest - m.ready_s.begin(), *slowest);
  }
  std::int64_t unsure_ns = 0;
  bool other_clocks = false;
  for (const launch::ClockOffset& clock : m.clocks) {
    unsure_ns = std::max(unsure_ns, clock.residual_ns);
    other_clocks = other_clocks || !clock.same_clock;
  }
  if (other_clocks) {
    sentence += fmt::format("; clocks of hosts are known within {:.3g} us", static_cast<double>(unsure_ns) * 1e-3);
  }
  out.push_back(accept::judged("rendezvous", "ranks", verdict, std::move(sentence)));
  out.back().ranks = std::move(incomplete);
}

bool contains(std::string_view text, std::string_view word) {
  const auto alike = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return !std::ranges::search(text, word, alike).empty();
}

/// The first of the ways, which are separated by ", ", that no word of `allowed` names; empty: none.
std::string foreign_way(std::string_view ways, const std::vector<std::string>& allowed) {
  for (std::size_t begin = 0; begin < ways.size();) {
    const std::size_t end = std::min(ways.find(", ", begin), ways.size());
    const std::string_view way = ways.substr(begin, end - begin);
    if (std::ranges::none_of(allowed, [&](const std::string& word) { return contains(way, word); })) {
      return std::string(way);
    }
    begin = end + 2;
  }
  return {};
}

/// It slows ranks as a fault does, and those of a slow rank and of a busy one look alike. It accuses nobody, so it is
/// told, and the rest is judged as it is.
void tell_other_work(const AcceptanceMeasurements& m, std::vector<Judgement>& out) {
  if (m.others_share < kQuietShare) return;
  Judgement j =
      accept::judged(kOtherWorkRule, "processors of the busiest host", Verdict::unrated,
                     fmt::format("{} during the test, so CPU-bound times are not representative of this machine",
                                 taken_text(m.others_share)));
  j.value = accept::median_interval({m.others_share});
  j.unit = "of them";
  out.push_back(std::move(j));
}

/// A way that the profile does not name is a silent fallback, as from InfiniBand to TCP.
void judge_transport(const config::Acceptance& wanted, const AcceptanceMeasurements& m, std::vector<Judgement>& out) {
  constexpr const char* kRule = "transport";
  constexpr const char* kFigure = "what carries the bytes of collectives";
  if (m.hosts.size() < 2) return;
  const std::string allowed = fmt::format("{}", fmt::join(wanted.transport, ", "));
  for (std::size_t rank = 0; rank < m.transports.size(); ++rank) {
    if (wanted.transport.empty()) break;
    const std::string& ways = m.transports[rank];
    if (ways.empty()) {
      out.push_back(accept::judged(
          kRule, kFigure, Verdict::inconclusive,
          fmt::format("rank {}: unknown, and {} is asked for; NCCL tells it in its log alone (NCCL_DEBUG=INFO)", rank,
                      allowed)));
      return;
    }
    if (const std::string way = foreign_way(ways, wanted.transport); !way.empty()) {
      out.push_back(accept::judged(
          kRule, kFigure, Verdict::fail,
          fmt::format("rank {} on {}: {}; the profile allows {}", rank, m.hosts.at(rank), way, allowed)));
      out.back().ranks = {static_cast<int>(rank)};
      return;
    }
  }
  const std::string first = m.transports.empty() || m.transports.front().empty() ? "unknown" : m.transports.front();
  if (wanted.transport.empty()) {
    out.push_back(accept::judged(kRule, kFigure, Verdict::unrated,
                                 fmt::format("rank 0: {}; the profile does not say what it should be", first)));
  } else if (m.transports.empty()) {
    out.push_back(
        accept::judged(kRule, kFigure, Verdict::inconclusive, "no rank reported which transport its collectives use"));
  } else {
    out.push_back(accept::judged(kRule, kFigure, Verdict::pass, fmt::format("rank 0: {}; so all others", first)));
  }
}

/// Text between tags and in attributes; what XML 1.0 does not allow is left out.
std::string xml(std::string_view text) {
  std::string out;
  for (const char c : clean_text(text, kMostOfAMessage)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20) out += c;
    }
  }
  return out;
}

/// The first 19 characters of a date with its offset are XML's dateTime, as Ant writes it; anything else is none.
std::string timestamp(std::string_view date) {
  return date.size() < 19 ? "" : fmt::format(" timestamp=\"{}\"", xml(date.substr(0, 19)));
}

}  // namespace

std::vector<Judgement> judge_facts(const config::Acceptance& wanted, const AcceptanceMeasurements& measured) {
  std::vector<Judgement> all;
  judge_inventory(measured, all);
  judge_rendezvous(wanted, measured, all);
  judge_transport(wanted, measured, all);
  if (!measured.topology.empty()) {
    all.push_back(accept::judged("topology", "switches that connect nodes", Verdict::unrated, measured.topology));
  }
  tell_other_work(measured, all);
  return all;
}

std::string place_text(const accept::Place& place) {
  std::string text;
  for (const auto& [word, name] : {std::pair{"host ", &place.host},
                                   {"device ", &place.device},
                                   {"UUID ", &place.uuid},
                                   {"NIC ", &place.nic},
                                   {"slow where it ", &place.direction}}) {
    const std::string_view said = std::string_view(*name).starts_with(word) ? std::string_view() : word;  // "NIC NIC 0"
    if (!name->empty()) text += fmt::format("{}{}{}", text.empty() ? "" : ", ", said, *name);
  }
  return text;
}

std::string junit_xml(const JunitSuite& suite, std::span<const Judgement> judgements) {
  struct Case {
    const Judgement* first;
    Verdict verdict;
    std::string sentences, places;
    double seconds;
  };
  std::vector<Case> cases;
  for (const Judgement& j : judgements) {
    const auto same = [&](const Case& c) { return c.first->rule == j.rule && c.first->figure == j.figure; };
    const auto found = std::ranges::find_if(cases, same);
    Case& c = found == cases.end() ? cases.emplace_back(Case{&j, Verdict::pass, {}, {}, 0}) : *found;
    c.verdict = std::max(c.verdict, j.verdict);
    c.sentences += fmt::format("{}{}", c.sentences.empty() ? "" : "; ", xml(j.sentence));
    if (const std::string place = place_text(j.place); !place.empty()) {
      c.places += fmt::format("<system-out>{}</system-out>", xml(place));
    }
    c.seconds += j.took_s;
  }
  const auto count = [&](Verdict v) { return std::ranges::count(cases, v, &Case::verdict); };
  const std::string counts = fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\"", cases.size(),
                                         count(Verdict::fail), count(Verdict::inconclusive));
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"fsdpbench\" {0} time=\"{1:.3f}\">\n  <testsuite "
      "name=\"{2}\" {0} skipped=\"{3}\" time=\"{1:.3f}\" hostname=\"{4}\"{5}>\n",
      counts, suite.seconds, xml(suite.suite), count(Verdict::unrated),
      suite.host.empty() ? "localhost" : xml(suite.host), timestamp(suite.date));
  if (!suite.headline.empty()) {
    text +=
        fmt::format("    <properties><property name=\"headline\" value=\"{}\"/></properties>\n", xml(suite.headline));
  }
  for (const Case& c : cases) {
    const std::string rule = xml(c.first->rule);
    text += fmt::format("    <testcase classname=\"{}.{}\" name=\"{}\" time=\"{:.3f}\">", xml(suite.suite), rule,
                        xml(c.first->figure), c.seconds);
    switch (c.verdict) {
      case Verdict::fail: text += fmt::format("<failure type=\"{}\" message=\"{}\"/>", rule, c.sentences); break;
      case Verdict::inconclusive: text += fmt::format("<error type=\"{}\" message=\"{}\"/>", rule, c.sentences); break;
      case Verdict::unrated: text += fmt::format("<skipped message=\"{}\"/>", c.sentences); break;
      case Verdict::pass: text += fmt::format("<system-out>{}</system-out>", c.sentences); break;
    }
    text += c.places + "</testcase>\n";
  }
  return text + "  </testsuite>\n</testsuites>\n";
}

// clang-format off
template <>
Fields<accept::Interval> declared() {
  return {"Interval", "A median and how far it can be trusted.", "accept/robust.h", {
    {"median", &accept::Interval::median, "", "median of the values"},
    {"ci_low", &accept::Interval::low, "", "lower end of the 95 % interval of the median"},
    {"ci_high", &accept::Interval::high, "", "upper end of that interval"},
    {"n", &accept::Interval::n, "", "number of values"},
  }};
}

template <>
Fields<accept::Place> declared() {
  using P = accept::Place;
  return {"Place", "", "accept/element.h", {
    {"host", &P::host, "", "name of its host, or of several", if_any},
    {"device", &P::device, "", "its GPU's place on the PCI bus, or of several", if_any},
    {"uuid", &P::uuid, "", "its GPU's UUID, or of several", if_any},
    {"nic", &P::nic, "", "name of its NIC, or of several", if_any},
    {"direction", &P::direction, "", "`sends` or `receives` if it is slow in this direction only", if_any},
  }};
}

template <>
Fields<accept::Judgement> declared() {
  using J = accept::Judgement;
  return {"Judgement", "One rule applied to one figure.", "accept/verdict.h", {
    {"rule", &J::rule, "", "name of the rule ([accept.md](accept.md))"},
    {"figure", &J::figure, "", "figure that was judged, named alike in each acceptance"},
    {"part", &J::part, "", "rank, node or link that it was judged for; absent: all", if_any},
    {"verdict", &J::verdict, "", "`pass`, `unrated`, `inconclusive` or `fail`"},
    {"why", &J::sentence, "", "a sentence with the numbers"},
    {"value", &J::value, "", "the figure, in `unit`; absent if it was not measured", if_any, check_interval},
    {"unit", &J::unit, "", "unit of the figure", if_any},
    {"bound", &J::bound, "", "value that it is compared with, in `unit`"},
    spread(&J::place),
  }};
}

template <>
Fields<accept::ArmRound> declared() {
  using R = accept::ArmRound;
  return {"ArmRound", "One round of the arms of a step, means of an arm's two steps.", "accept/step_arms.h", {
    {"compute_ms", &R::computation_ms, "ms", "a step without its collectives, on the slowest rank", check_positive},
    {"comm_ms", &R::communication_ms, "ms", "the collectives alone, on the slowest rank", check_positive},
    {"step_ms", &R::whole_ms, "ms", "the whole step, on the slowest rank", check_positive},
    {"kernels_alone_ms", &R::kernels_alone_ms, "ms", "ops that compute, in the step without collectives"},
    {"kernels_beside_ms", &R::kernels_beside_ms, "ms", "the same ops in the whole step"},
    {"transfers_alone_ms", &R::transfers_alone_ms, "ms", "collectives from the arrival of their last rank, without computation"},
    {"transfers_beside_ms", &R::transfers_beside_ms, "ms", "the same in the whole step"},
  }};
}
// clang-format on

}  // namespace fsdpbench::app
