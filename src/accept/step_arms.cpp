#include "accept/step_arms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace fsdpbench::accept {
namespace {

std::string scale_text(const Scale& scale) {
  return scale.nodes > 1 ? fmt::format("{} ranks on {} nodes", scale.ranks, scale.nodes)
                         : fmt::format("{} ranks", scale.ranks);
}

template <class Value>
std::vector<double> by_round(const std::vector<ArmRound>& rounds, const Value& value) {
  std::vector<double> values;
  for (const ArmRound& round : rounds) {
    if (const std::optional<double> one = value(round)) values.push_back(*one);
  }
  return values;
}

std::optional<double> ratio(double a, double b) { return b > 0 ? std::optional(a / b) : std::nullopt; }

std::string percent(const Interval& i) {
  return fmt::format("{:.1f} % (95 %: {:.1f} to {:.1f}, {} rounds)", 100 * i.median, 100 * i.low, 100 * i.high, i.n);
}

Judgement judge_gain(const std::vector<ArmRound>& rounds) {
  Judgement j = of_samples("overlap", "the shorter of computation and communication", "of it is hidden",
                           by_round(rounds, [](const ArmRound& r) {
                             return ratio(r.computation_ms + r.communication_ms - r.whole_ms,
                                          std::min(r.computation_ms, r.communication_ms));
                           }));
  if (j.value.n == 0) return j;
  j.verdict = Verdict::unrated;
  const auto median = [&](double ArmRound::*arm) {
    return median_interval(by_round(rounds, [&](const ArmRound& r) { return std::optional(r.*arm); })).median;
  };
  j.sentence = fmt::format(
      "computation alone takes {:.4g} ms, communication alone {:.4g} ms and the step {:.4g} ms: {} of the shorter is "
      "hidden",
      median(&ArmRound::computation_ms), median(&ArmRound::communication_ms), median(&ArmRound::whole_ms),
      percent(j.value));
  if (j.value.median < 0) j.sentence += "; less than none, as both at once take longer than one after the other";
  return j;
}

}  // namespace

std::vector<Scale> scales_of(const Cluster& cluster) {
  const int all = cluster.ranks();
  std::vector<Scale> scales;
  for (int ranks = 2; ranks <= all; ++ranks) {
    const bool whole_node = ranks == cluster.gpus_per_node;
    const bool within_or_whole_nodes = ranks <= cluster.gpus_per_node || ranks % cluster.gpus_per_node == 0;
    if (all % ranks != 0 || !within_or_whole_nodes) continue;
    if (!scales.empty() && ranks < 2 * scales.back().ranks && !whole_node) continue;
    scales.push_back({ranks, std::max(1, ranks / cluster.gpus_per_node)});
  }
  return scales;
}

Judgement judge_scale(std::string figure, const std::vector<Rung>& rungs, double least) {
  Judgement j;
  j.rule = "scale";
  j.figure = std::move(figure);
  j.unit = "of the smallest scale";
  std::array<const Rung*, 2> smallest{};  // within a node, between nodes
  std::string told;
  bool compared = false;
  for (const Rung& rung : rungs) {
    if (rung.gb_per_s.empty()) {
      j.verdict = Verdict::inconclusive;
      j.sentence = fmt::format("{} were not measured", scale_text(rung.scale));
      return j;
    }
    const Rung*& base = smallest.at(rung.scale.nodes > 1 ? 1 : 0);
    const double rate = median_interval(rung.gb_per_s).median;
    told += fmt::format("{}{} {:.4g} GB/s", told.empty() ? "" : ", ", scale_text(rung.scale), rate);
    if (base == nullptr) {
      base = &rung;
      continue;
    }
    const double full = median_interval(base->gb_per_s).median;
    std::vector<double> efficiency;
    for (const double one : rung.gb_per_s) efficiency.push_back(full > 0 ? one / full : 0);
    const Interval interval = median_interval(std::move(efficiency));
    told += fmt::format(" ({:.0f} %)", 100 * interval.median);
    const Verdict verdict = held(interval, least, Good::above);
    // The first that fails is the one to name; else the first that leaves doubt; else the worst.
    const bool worse = !compared || verdict > j.verdict ||
                       (verdict == j.verdict && verdict == Verdict::pass && interval.median < j.value.median);
    compared = true;
    if (!worse) continue;
    j.verdict = verdict;
    j.value = interval;
    j.bound = least;
    j.sentence = verdict == Verdict::pass
                     ? std::string()
                     : fmt::format(
                           "{} carry {:.0f} % (95 %: {:.0f} to {:.0f}) of what {} do, and {:.0f} % are asked "
                           "for: ",
                           scale_text(rung.scale), 100 * interval.median, 100 * interval.low, 100 * interval.high,
                           scale_text(base->scale), 100 * least);
  }
  if (rungs.empty()) {
    j.sentence = "no scale was measured";
  } else if (!compared) {
    j.verdict = Verdict::unrated;
    j.sentence = fmt::format("there is no second scale to compare with: {}", told);
  } else {
    j.sentence += told;
  }
  return j;
}

std::vector<Judgement> judge_arms(const std::vector<ArmRound>& rounds, const ArmBounds& bounds,
                                  const std::string& why_none) {
  std::vector<Judgement> all;
  all.push_back(judge_exposed(
      "a step against its computation alone",
      by_round(rounds, [](const ArmRound& r) { return ratio(r.whole_ms - r.computation_ms, r.whole_ms); }),
      bounds.exposed));
  all.push_back(judge_gain(rounds));
  all.push_back(
      judge_slowdown("computation beside communication",
                     by_round(rounds, [](const ArmRound& r) { return ratio(r.kernels_beside_ms, r.kernels_alone_ms); }),
                     bounds.slowdown));
  all.push_back(judge_slowdown(
      "communication beside computation",
      by_round(rounds, [](const ArmRound& r) { return ratio(r.transfers_beside_ms, r.transfers_alone_ms); }),
      std::nullopt));
  for (Judgement& j : all) {
    if (j.value.n == 0) j.sentence = why_none;
  }
  return all;
}

std::vector<Judgement> judge_drift(const std::vector<ArmRound>& rounds, double most) {
  constexpr std::size_t kFewest = 18;
  struct Arm {
    const char* name;
    double ArmRound::*ms;
  };
  std::vector<Judgement> all;
  for (const Arm& arm :
       {Arm{"computation", &ArmRound::computation_ms}, Arm{"communication", &ArmRound::communication_ms},
        Arm{"the whole step", &ArmRound::whole_ms}}) {
    const std::size_t third = rounds.size() / 3;
    std::vector<double> first, ratios;
    for (std::size_t i = 0; i < third; ++i) first.push_back(rounds[i].*arm.ms);
    const double began_ms = median_interval(first).median;
    for (std::size_t i = rounds.size() - third; i < rounds.size(); ++i) {
      if (const auto one = ratio(rounds[i].*arm.ms, began_ms)) ratios.push_back(*one);
    }
    Judgement& j = all.emplace_back(of_samples("drift", arm.name, "of the first third's time", std::move(ratios)));
    j.bound = 1 + most;
    if (rounds.size() < kFewest || j.value.n == 0) {
      j.sentence = fmt::format("{} rounds are too few: {} are needed", rounds.size(), kFewest);
      continue;
    }
    j.sentence =
        fmt::format("over {} rounds the last third took {} of the first's time", rounds.size(), percent(j.value));
    j.verdict = held(j.value, *j.bound, Good::below);
    if (j.verdict == Verdict::inconclusive) {
      j.sentence += fmt::format(", on both sides of the {:.0f} % that are allowed", 100 * *j.bound);
    }
  }
  return all;
}

}  // namespace fsdpbench::accept
