#include "accept/stages/node_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fsdpbench::app {
namespace {

using accept::Judgement;
using accept::Verdict;

/// What is judged, and how.
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

/// A rank.
struct Owner {
  std::string name;
  std::vector<int> ranks;
  std::vector<double> samples;  ///< in the figure's unit
};

std::vector<Owner> owners_of(const accept::DeviceRounds& rounds, double scale, const std::vector<std::string>& hosts) {
  std::vector<Owner> owners;
  for (std::size_t rank = 0; !rounds.empty() && rank < std::min(rounds.front().size(), hosts.size()); ++rank) {
    Owner& owner =
        owners.emplace_back(Owner{fmt::format("rank {} on {}", rank, hosts.at(rank)), {static_cast<int>(rank)}, {}});
    for (const std::vector<double>& round : rounds) owner.samples.push_back(round.at(rank) * scale);
  }
  return owners;
}

class Judge {
 public:
  explicit Judge(const config::Acceptance& wanted) : wanted_(wanted) {}

  bool rates(const Figure& figure) const { return wanted_.find(figure.reference) != nullptr; }

  void add(const Figure& figure, const std::vector<Owner>& owners) {
    std::vector<double> all;
    for (const Owner& owner : owners) all.insert(all.end(), owner.samples.begin(), owner.samples.end());
    Judgement whole = judged(figure, figure.name, all);
    std::vector<Judgement> bad;
    for (const Owner& owner : owners) {
      Judgement j = judged(figure, fmt::format("{}: {}", figure.name, owner.name), owner.samples);
      if (j.verdict != Verdict::fail && j.verdict != Verdict::inconclusive) continue;
      j.sentence = fmt::format("{}: {}", owner.name, j.sentence);
      j.ranks = owner.ranks;
      bad.push_back(std::move(j));
    }
    const bool all_alike =
        bad.empty() || (whole.verdict == Verdict::fail && owners.size() > 1 && bad.size() == owners.size());
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

std::vector<Judgement> judge_node_rates(const config::Acceptance& wanted, const NodeRates& rates,
                                        const std::vector<std::string>& hosts) {
  Judge judge(wanted);
  if (!rates.unknown_because.empty()) {
    judge.judgements.push_back(
        accept::judged("floor", "hosts beside the fabric", Verdict::unrated, rates.unknown_because));
    return judge.judgements;
  }
  judge.add(kHostCopy, owners_of(rates.host_copy, kHostCopy.scale, hosts));
  const std::string no_gpu = "ranks compute on processors: there is no GPU to copy to, or to launch a kernel on";
  bool said = false;
  for (const auto& [figure, rounds] :
       {std::pair{kToDevice, &rates.to_device}, {kFromDevice, &rates.from_device}, {kLaunch, &rates.launch_us}}) {
    if (rates.has_gpus) {
      judge.add(figure, owners_of(*rounds, figure.scale, hosts));
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
