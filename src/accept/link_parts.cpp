#include "accept/link_parts.h"

#include <algorithm>
#include <utility>

#include "accept/robust.h"
#include "account/statistics.h"

namespace fsdpbench::accept {
namespace {

/// What healthy pairs carry. One slow switch of three slows two thirds of all pairs between switches, so the median may
/// be a slow pair. The fastest fifth is therefore taken to be healthy, with every pair that healthy scatter can explain.
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
    std::vector<double> between = figures_of(rates, parts, false, duplex), within = figures_of(rates, parts, true, duplex);
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

}  // namespace fsdpbench::accept
