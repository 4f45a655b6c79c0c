#include "accept/stages/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <sstream>
#include <utility>


namespace fsdpbench::app {
namespace {

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

std::string tell_switches(int nodes_per_switch, const std::vector<std::string>& leaves, accept::Cluster& cluster) {
  if (nodes_per_switch > 0) {
    cluster.nodes_per_switch = nodes_per_switch;
    return fmt::format("the profile: {} nodes on each, in the order of their ranks", nodes_per_switch);
  }
  std::map<std::string, int> number;
  std::vector<int> switch_of;
  for (int node = 0; node < cluster.nodes; ++node) {
    const std::size_t rank = node * cluster.gpus_per_node;
    if (rank >= leaves.size() || leaves[rank].empty()) {
      return "nobody told of switches: groups of nodes are inferred where pairs show them";
    }
    switch_of.push_back(number.try_emplace(leaves[rank], static_cast<int>(number.size())).first->second);
  }
  cluster.switch_of = std::move(switch_of);
  cluster.switches.resize(number.size());
  for (const auto& [name, index] : number) cluster.switches[index] = name;
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
