#include "accept/stages/node_lists.h"

#include <algorithm>
#include <set>

#include "base/clean_text.h"

namespace fsdpbench::app {
namespace {

using accept::Element;
using accept::Verdict;

/// The ranks of a part, as far as it is one of nodes.
std::vector<int> ranks_of_part(const Element& element, const accept::Cluster& cluster) {
  const int each = cluster.gpus_per_node;
  const auto first_of = [&](int end) { return cluster.one_node() ? end : end * each; };
  switch (element.kind) {
    case Element::Kind::gpu: return {element.index};
    case Element::Kind::node:
    case Element::Kind::nic: return {element.index * each};
    case Element::Kind::link: return {first_of(element.index), first_of(element.other)};
    case Element::Kind::uplink:
    case Element::Kind::switch_:
    case Element::Kind::leaf_rail:
    case Element::Kind::rail:
    case Element::Kind::spine:
    case Element::Kind::fleet: break;
  }
  return {};
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

NodeLists node_lists(const AcceptanceReport& report) {
  const std::vector<std::string> all = each_once(report.hosts);
  if (report.verdict == Verdict::pass) return {all, {}};
  if (report.verdict != Verdict::fail) return {};
  if (all.size() == 1) return {{}, all};
  std::set<int> ranks;
  for (const accept::Finding& finding : report.findings) {
    if (!finding.accuses()) continue;
    for (const int rank : ranks_of_part(finding.element, report.cluster)) ranks.insert(rank);
  }
  for (const accept::Judgement& judgement : report.judgements) {
    if (judgement.verdict == Verdict::fail) ranks.insert(judgement.ranks.begin(), judgement.ranks.end());
  }
  std::vector<std::string> named;
  for (const int rank : ranks) {
    const auto index = static_cast<std::size_t>(rank);
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
