#include "accept/link_parts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "accept/robust.h"
#include "account/statistics.h"

namespace fsdpbench::accept {
namespace {

/// What healthy pairs carry. One slow switch of three slows two thirds of all pairs between switches, so the median may
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

std::vector<Value> values_of(const std::vector<PairRate>& rates, std::size_t round, const Parts& parts,
                             const Norms& norms) {
  std::vector<Value> values;
  for (const PairRate& r : rates) {
    const std::size_t like = parts.within_group(r.pair) ? 1 : 0;
    for (std::size_t rail = 0; rail < r.one_way.size(); ++rail) {
      if (!(r.one_way[rail] > 0)) continue;
      values.push_back({r.pair, static_cast<int>(rail), round, r.one_way[rail] / norms.rate[like].usual,
                        r.both_ways.at(rail) / r.one_way[rail] / norms.duplex[like].usual});
    }
  }
  return values;
}
namespace {

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

}  // namespace

std::optional<std::vector<int>> infer_groups(int ends, const std::function<bool(int a, int b)>& slow) {
  const auto count = static_cast<std::size_t>(ends);
  std::vector<std::vector<bool>> slow_to(count, std::vector<bool>(count));
  for (int a = 0; a < ends; ++a) {
    for (int b = a + 1; b < ends; ++b) {
      if (!slow(a, b)) continue;
      slow_to[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] = true;
      slow_to[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] = true;
    }
  }
  std::vector<int> of(count, -1);
  int groups = 0;
  for (std::size_t a = 0; a < count; ++a) {
    if (of[a] >= 0) continue;
    std::vector<std::size_t> members{a};
    for (std::size_t b = a + 1; b < count; ++b) {
      if (of[b] < 0 && alike(slow_to[a], slow_to[b], a, b)) members.push_back(b);
    }
    if (members.size() < kFewestAlike) continue;
    for (const std::size_t member : members) of[member] = groups;
    ++groups;
  }
  const bool rest = std::ranges::count(of, -1) > 0;
  if (groups + (rest ? 1 : 0) < 2) return std::nullopt;
  std::ranges::replace(of, -1, groups);
  return of;
}

}  // namespace fsdpbench::accept
