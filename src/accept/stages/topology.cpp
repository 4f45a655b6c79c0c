#include "accept/stages/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "launch/placement.h"
#include "record/json_part.h"

namespace fsdpbench::app {
namespace {

/// The value of `key` in a line such as "SwitchName=s0 Level=0 Nodes=n[1-4]"; Slurm ignores the case of keys.
std::string value_of(const std::string& line, const std::string& key) {
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (word.starts_with('#')) break;
    if (equals == std::string::npos || equals != key.size()) continue;
    const bool same = std::ranges::equal(word.substr(0, equals), key, [](unsigned char a, unsigned char b) {
      return std::tolower(a) == std::tolower(b);
    });
    if (same) return word.substr(equals + 1);
  }
  return {};
}

/// The switch nearest to each host: `scontrol show topology` lists all hosts of a switch above leaves, too, and those
/// have fewer.
std::map<std::string, std::string> leaves_in(const std::string& text) {
  std::map<std::string, std::string> leaf;
  std::map<std::string, std::size_t> size;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string name = value_of(line, "SwitchName");
    const std::string nodes = value_of(line, "Nodes");
    if (name.empty() || nodes.empty()) continue;
    const std::vector<std::string> hosts = launch::all_hosts(nodes).value_or(std::vector<std::string>{});
    for (const std::string& host : hosts) {
      const auto [at, is_new] = size.try_emplace(host, hosts.size());
      if (!is_new && at->second <= hosts.size()) continue;
      at->second = hosts.size();
      leaf[host] = name;
    }
  }
  return leaf;
}

/// Labels of Kubernetes that say which nodes share what, the narrowest first: of Topograph (1.0 and before), of network
/// operators, then a rack; a zone has many switches, and is told where nothing else is.
constexpr std::array kLeafLabels{"fabric.topograph.run/tier-0", "network.topology.nvidia.com/leaf",
                                 "network.topology.kubernetes.io/leaf", "topology.kubernetes.io/rack",
                                 "topology.kubernetes.io/zone"};

/// The leaf of each host of a list of nodes, by the first label that any of them has.
std::map<std::string, std::string> leaves_of_labels(const std::string& text, const std::string& source) {
  const nlohmann::json content = parse_json(text);
  if (!content.is_object()) {
    throw ConfigError(fmt::format("{}: is no whole JSON; expected what `kubectl get nodes -o json` prints.", source));
  }
  const JsonPart whole(content);
  const std::vector<JsonPart> nodes = whole.has("items") ? whole.at("items").list() : std::vector{whole};
  for (const char* label : kLeafLabels) {
    std::map<std::string, std::string> leaf;
    for (const JsonPart& node : nodes) {
      const JsonPart about = node.at("metadata");
      if (!about.has("labels") || !about.at("labels").has(label)) continue;
      const std::string name = about.at("name").text(), value = about.at("labels").at(label).text();
      for (const std::string& host : {name, about.at("labels").text("kubernetes.io/hostname", name)}) {
        leaf[host.substr(0, host.find('.'))] = value;
      }
    }
    if (!leaf.empty()) return leaf;
  }
  return {};
}

std::map<std::string, std::string> leaves_told(const Topology& told) {
  const std::size_t begin = told.switches.find_first_not_of(" \t\r\n");
  const bool labels = begin != told.switches.npos && told.switches[begin] == '{';
  return labels ? leaves_of_labels(told.switches, told.source) : leaves_in(told.switches);
}

void set_switches(const std::vector<std::string>& by_node, accept::Cluster& cluster) {
  std::map<std::string, int> number;
  for (const std::string& name : by_node) {
    const auto [at, is_new] = number.try_emplace(name, static_cast<int>(number.size()));
    if (is_new) cluster.switches.push_back(name);
    cluster.switch_of.push_back(at->second);
  }
}

using accept::Judgement;
using accept::Verdict;

/// Figure that is judged, and its rule.
struct Figure {
  const char* reference;  ///< its name in profiles
  const char* name;
  const char* unit;
  double scale;  ///< from what was measured to the unit
  bool less_is_better = false;
  bool on_host = false;
};
constexpr Figure kHostCopy{"host_memory", "memory of hosts, read and written by a rank", "GB/s", 1e-9, false, true};
constexpr Figure kToDevice{"host_to_device", "copies from a host to its GPU", "GB/s", 1e-9};
constexpr Figure kFromDevice{"device_to_host", "copies from a GPU to its host", "GB/s", 1e-9};
constexpr Figure kLaunch{"launch", "launch and end of a kernel", "us", 1, true, true};

class Judge {
 public:
  explicit Judge(const config::Acceptance& wanted) : wanted_(wanted) {}

  bool rates(const Figure& figure) const { return wanted_.find(figure.reference) != nullptr; }

  void add(const Figure& figure, const accept::DeviceRounds& rounds, const std::vector<std::string>& hosts) {
    const std::size_t ranks = rounds.empty() ? 0 : std::min(rounds.front().size(), hosts.size());
    std::vector<double> all;
    std::vector<Judgement> bad;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::vector<double> samples;  // in the figure's unit
      for (const std::vector<double>& round : rounds) samples.push_back(round.at(rank) * figure.scale);
      all.insert(all.end(), samples.begin(), samples.end());
      const std::string name = fmt::format("rank {} on {}", rank, hosts[rank]);
      Judgement j = judged(figure, figure.name, samples);
      if (j.verdict != Verdict::fail && j.verdict != Verdict::inconclusive) continue;
      j.sentence = fmt::format("{}: {}", name, j.sentence);
      j.part = name;
      j.ranks = {static_cast<int>(rank)};
      bad.push_back(std::move(j));
    }
    Judgement whole = judged(figure, figure.name, all);
    const bool all_alike = bad.empty() || (whole.verdict == Verdict::fail && ranks > 1 && bad.size() == ranks);
    if (all_alike) {
      judgements.push_back(std::move(whole));
    } else {
      judgements.insert(judgements.end(), bad.begin(), bad.end());
    }
    const config::AcceptanceReference* const known = wanted_.find(figure.reference);
    if (known == nullptr || known->ceiling <= 0) return;
    judgements.push_back(accept::judge_ceiling(figure.name, figure.unit, all, known->ceiling));
  }

  /// It is not there; no pass where somebody asks for it.
  void absent(const Figure& figure, const std::string& name, const char* rule, const std::string& why) {
    judgements.push_back(accept::judged(rule, name, rates(figure) ? Verdict::inconclusive : Verdict::unrated, why));
  }

  std::vector<Judgement> judgements;

 private:
  Judgement judged(const Figure& figure, const std::string& name, const std::vector<double>& samples) const {
    const config::AcceptanceReference* const known = wanted_.find(figure.reference);
    const auto reference =
        known == nullptr ? std::nullopt : std::optional(accept::Reference{known->value, known->source});
    const double tolerance = wanted_.tolerance_pct / 100;
    Judgement j = figure.less_is_better ? accept::judge_latency(name, figure.unit, samples, reference, tolerance)
                                        : accept::judge_floor(name, figure.unit, samples, reference, tolerance);
    j.on_host = figure.on_host;
    return j;
  }

  const config::Acceptance& wanted_;
};

}  // namespace

std::string leaf_of_address(const std::string& address, const std::string& pattern) {
  std::istringstream names(address), kinds(pattern);
  std::string leaf;
  for (std::string name, kind; std::getline(names, name, '.') && std::getline(kinds, kind, '.');) {
    if (kind == "switch") leaf = name;
  }
  return leaf;
}

void check_topology(const Topology& told) { (void)leaves_told(told); }

std::string tell_switches(const Topology& told, const std::vector<std::string>& leaves, accept::Cluster& cluster) {
  const auto first_rank = [&](int node) { return node * cluster.gpus_per_node; };
  if (told.nodes_per_switch > 0) {
    cluster.nodes_per_switch = told.nodes_per_switch;
    return fmt::format("the profile: {} nodes on each, in the order of their ranks", told.nodes_per_switch);
  }
  std::vector<std::string> by_node;
  if (!told.switches.empty()) {
    const std::map<std::string, std::string> leaf = leaves_told(told);
    for (int node = 0; node < cluster.nodes; ++node) {
      const std::string& host = cluster.hosts.at(first_rank(node));
      const auto found = leaf.find(host.substr(0, host.find('.')));
      if (found == leaf.end()) {
        return fmt::format("{} names no switch of {}: switches are not known, and inferred where pairs show them",
                           told.source, host);
      }
      by_node.push_back(found->second);
    }
    set_switches(by_node, cluster);
    return fmt::format("{}: {} switches", told.source, cluster.switches.size());
  }
  for (int node = 0; node < cluster.nodes; ++node) {
    const std::size_t rank = first_rank(node);
    if (rank >= leaves.size() || leaves[rank].empty()) {
      return "nobody told of switches: groups of nodes are inferred where pairs show them";
    }
    by_node.push_back(leaves[rank]);
  }
  set_switches(by_node, cluster);
  return fmt::format("Slurm (SLURM_TOPOLOGY_ADDR): {} switches", cluster.switches.size());
}

std::vector<Judgement> judge_node_rates(const config::Acceptance& wanted, const NodeRates& rates,
                                        const std::vector<std::string>& hosts) {
  Judge judge(wanted);
  if (!rates.unknown_because.empty()) {
    judge.judgements.push_back(
        accept::judged("floor", "hosts beside the fabric", Verdict::unrated, rates.unknown_because));
    return judge.judgements;
  }
  judge.add(kHostCopy, rates.host_copy, hosts);
  const std::string no_gpu = "ranks compute on processors: there is no GPU to copy to, or to launch a kernel on";
  bool said = false;
  for (const auto& [figure, rounds] :
       {std::pair{kToDevice, &rates.to_device}, {kFromDevice, &rates.from_device}, {kLaunch, &rates.launch_us}}) {
    if (rates.has_gpus) {
      judge.add(figure, *rounds, hosts);
    } else if (judge.rates(figure)) {
      judge.absent(figure, figure.name, figure.less_is_better ? "latency" : "floor", no_gpu);
    } else if (!said) {
      said = true;
      judge.absent(figure, "copies to and from GPUs, and launches", "floor", no_gpu);
    }
  }
  return judge.judgements;
}

}  // namespace fsdpbench::app
