#include "accept/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace fsdpbench::accept {
namespace {

std::string scale_text(const Scale& scale) {
  return scale.nodes > 1 ? fmt::format("{} ranks on {} nodes", scale.ranks, scale.nodes)
                         : fmt::format("{} ranks", scale.ranks);
}

}  // namespace

std::vector<Scale> scales_of(const Cluster& cluster) {
  const int all = cluster.ranks();
  std::vector<Scale> scales;
  for (int ranks = 2; ranks <= all; ++ranks) {
    const bool whole_node = ranks == cluster.gpus_per_node;
    const bool within_or_whole_nodes = ranks <= cluster.gpus_per_node || ranks % cluster.gpus_per_node == 0;
    if (all % ranks != 0 || !within_or_whole_nodes) continue;
    if (!scales.empty() && ranks < 2 * scales.back().ranks && !whole_node && ranks != all) continue;
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
    const Verdict verdict = interval.high < least   ? Verdict::fail
                            : interval.low >= least ? Verdict::pass
                                                    : Verdict::inconclusive;
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

}  // namespace fsdpbench::accept
