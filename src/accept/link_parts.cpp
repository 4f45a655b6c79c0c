#include "accept/link_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "accept/robust.h"
#include "account/statistics.h"

namespace fsdpbench::accept {
namespace {

/// Rate of healthy pairs. One slow switch of three slows two thirds of all pairs between switches, so the median may
/// be a slow pair. The fastest fifth is therefore taken to be healthy, with every pair that healthy scatter can
/// explain.
Norm norm_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  constexpr double kOneMode = 0.93;
  const double good = values[(values.size() - 1) * 4 / 5];
  values.erase(values.begin(), std::ranges::lower_bound(values, kOneMode * good));
  const double usual = account::median(values);
  return {usual, robust_deviation(values) / usual};
}

std::vector<double> figures_of(const std::vector<PairRate>& rates, const Parts& parts, bool within, bool duplex) {
  std::vector<double> values;
  for (const PairRate& r : rates) {
    if (parts.within_group(r.pair) != within) continue;
    for (std::size_t rail = 0; rail < r.one_way.size(); ++rail) {
      if (!(r.one_way[rail] > 0)) continue;
      values.push_back(duplex ? r.both_ways.at(rail) / r.one_way[rail] : r.one_way[rail]);
    }
  }
  return values;
}

constexpr std::size_t kFewestAlike = 3;

/// Whether two ends are slow to the same others; what they are to each other does not count, nor does a pair in ten.
bool alike(const std::vector<bool>& a, const std::vector<bool>& b, std::size_t end_a, std::size_t end_b) {
  std::size_t differ = 0, both = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (i == end_a || i == end_b) continue;
    differ += a[i] != b[i] ? 1 : 0;
    both += a[i] && b[i] ? 1 : 0;
  }
  return both >= kFewestAlike && 10 * differ <= both + differ;
}

constexpr double kDrop = 0.05;  // from its own best: less is noise
constexpr std::size_t kFewestLowRounds = 2;

/// Rates of each rank over the medians of their rounds.
std::vector<std::vector<double>> relative_rates(const Cluster& cluster, const DeviceRounds& rounds) {
  std::vector<std::vector<double>> relative(cluster.ranks());
  for (const std::vector<double>& round : rounds) {
    if (round.size() != relative.size()) throw std::invalid_argument("blame_devices: a round lacks ranks");
    std::vector<double> there;
    std::ranges::copy_if(round, std::back_inserter(there), [](double rate) { return rate > 0; });
    if (there.empty()) continue;
    const double middle = account::median(there);
    for (std::size_t rank = 0; rank < round.size(); ++rank) {
      if (round[rank] > 0) relative[rank].push_back(round[rank] / middle);
    }
  }
  return relative;
}

/// Rate that it reaches in a fifth of its rounds: what is slow for longer is slow.
double own_best(std::vector<double> rates) {
  std::ranges::sort(rates);
  return rates[(4 * rates.size() - 1) / 5];
}

}  // namespace

Norms norms_of(const std::vector<PairRate>& rates, const Parts& parts, bool apart) {
  Norms norms;
  for (const bool duplex : {false, true}) {
    std::array<Norm, 2>& of = duplex ? norms.duplex : norms.rate;
    std::vector<double> between = figures_of(rates, parts, false, duplex),
                        within = figures_of(rates, parts, true, duplex);
    if (apart) {
      of = {norm_of(std::move(between)), norm_of(std::move(within))};
      continue;
    }
    within.insert(within.end(), between.begin(), between.end());
    of.fill(norm_of(std::move(within)));
  }
  return norms;
}

std::vector<Value> values_of(const std::vector<PairRate>& rates, const Parts& parts, const Norms& norms) {
  std::vector<Value> values;
  for (const PairRate& r : rates) {
    const std::size_t like = parts.within_group(r.pair) ? 1 : 0;
    for (std::size_t rail = 0; rail < r.one_way.size(); ++rail) {
      if (!(r.one_way[rail] > 0)) continue;
      values.push_back({r.pair, static_cast<int>(rail), r.one_way[rail] / norms.rate[like].usual,
                        r.both_ways.at(rail) / r.one_way[rail] / norms.duplex[like].usual});
    }
  }
  return values;
}

std::optional<std::vector<int>> infer_groups(int ends, const std::function<bool(int a, int b)>& slow) {
  const std::size_t count = ends;
  std::vector<std::vector<bool>> slow_to(count, std::vector<bool>(count));
  for (int a = 0; a < ends; ++a) {
    for (int b = 0; b < ends; ++b) slow_to[a][b] = slow(a, b);
  }
  constexpr int kRest = -1;  // of what has too few like it for a group of its own
  std::vector<int> of(count, kRest);
  int groups = 0;
  for (std::size_t a = 0; a < count; ++a) {
    if (of[a] != kRest) continue;
    std::vector<std::size_t> members{a};
    for (std::size_t b = a + 1; b < count; ++b) {
      if (of[b] == kRest && alike(slow_to[a], slow_to[b], a, b)) members.push_back(b);
    }
    if (members.size() < kFewestAlike) continue;
    for (const std::size_t member : members) of[member] = groups;
    ++groups;
  }
  const bool rest = std::ranges::find(of, kRest) != of.end();
  if (groups + (rest ? 1 : 0) < 2) return std::nullopt;
  std::ranges::replace(of, kRest, groups);
  return of;
}

std::vector<Finding> blame_devices(const Cluster& cluster, const DeviceRounds& rounds, std::string_view at) {
  const std::vector<std::vector<double>> relative = relative_rates(cluster, rounds);
  std::vector<double> scores;
  for (const std::vector<double>& rates : relative) {
    if (!rates.empty()) scores.push_back(account::median(rates));
  }
  std::vector<Finding> findings;
  if (scores.size() < kFewestPeers) return {};
  const double allowed = allowed_shortfall(scores);

  for (std::size_t rank = 0; rank < relative.size(); ++rank) {
    const std::vector<double>& rates = relative[rank];
    if (rates.empty()) continue;
    const double best = own_best(rates);
    const std::size_t low = std::ranges::count_if(rates, [&](double rate) { return rate < best * (1 - kDrop); });
    Finding finding;
    finding.element = {Element::Kind::gpu, static_cast<int>(rank), 0};
    finding.relative = median_interval(rates);
    finding.check = next_check(finding.element, cluster, SlowAt::work);
    const std::string name = name_of(finding.element, cluster);
    // One that stays below its peers also in its better rounds is slow, however much it scatters.
    const bool always_below = best < 1 - allowed;
    if (low >= kFewestLowRounds && !always_below) {
      finding.kind = Finding::Kind::transient;
      finding.shortfall = 1 - *std::ranges::min_element(rates) / best;
      finding.evidence =
          fmt::format("{} fell by up to {:.0f} % in {} of {} rounds of {} and was as fast as ever in the others", name,
                      100 * finding.shortfall, low, rates.size(), at);
    } else if (finding.relative.median < 1 - allowed) {
      finding.shortfall = 1 - finding.relative.median;
      finding.evidence = fmt::format(
          "{} reaches {:.1f} % of the median of {} ranks in {} (95 %: {:.1f} to {:.1f}, {} rounds); up to {:.1f} % "
          "less "
          "would be their own scatter",
          name, 100 * finding.relative.median, scores.size(), at, 100 * finding.relative.low,
          100 * finding.relative.high, rates.size(), 100 * allowed);
    } else {
      continue;
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace fsdpbench::accept
