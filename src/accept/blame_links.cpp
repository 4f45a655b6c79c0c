#include "accept/blame_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "metrics/statistics.h"

namespace fsdpbench::accept {
namespace {

constexpr double kMostPairsSlow = 0.8;    // of a part that is to blame
constexpr double kLeastShortfall = 0.05;  // less is healthy
constexpr double kDeepShortfall = 0.08;   // no healthy scatter, so that some of them mean something
constexpr std::size_t kFewestDeep = 3;
constexpr double kDuplexShortfall = 0.2;  // of both directions together
constexpr int kFewestOfAnEnd = 3;
constexpr std::size_t kFewestWithin = 3;  // pairs of a switch
constexpr int kConfirmations = 6;

/// One rail of one pair, over the median of its like.
struct Value {
  Pairing pair;
  int rail = 0;
  std::size_t round = 0;
  double rate = 1;    // one way
  double duplex = 1;  // both ways / one way
};

/// Who uses what.
class Parts {
 public:
  explicit Parts(const Cluster& cluster) : cluster_(cluster), group_(group_size(cluster)) {}

  bool within_group(const Pairing& p) const { return p.a / group_ == p.b / group_; }
  bool grouped() const { return group_ < cluster_.ends(); }
  int group_of(int end) const { return end / group_; }
  int group_begin(int group) const { return group * group_; }
  int group_end(int group) const { return std::min(cluster_.ends(), (group + 1) * group_); }

  Element end(int index, int rail) const {
    return cluster_.one_node() ? Element{Element::Kind::gpu, index, 0} : Element{Element::Kind::nic, index, rail};
  }

  /// All parts that a value goes through, the finest first.
  std::vector<Element> of(const Value& v) const {
    std::vector<Element> parts{{Element::Kind::link, v.pair.a, v.pair.b}, end(v.pair.a, v.rail), end(v.pair.b, v.rail)};
    if (cluster_.rails > 1) {
      parts.push_back({Element::Kind::node, v.pair.a, 0});
      parts.push_back({Element::Kind::node, v.pair.b, 0});
    }
    if (!grouped()) return parts;
    const int a = group_of(v.pair.a), b = group_of(v.pair.b);
    if (a != b) parts.push_back({Element::Kind::uplink, std::min(a, b), std::max(a, b)});
    parts.push_back({Element::Kind::switch_, a, 0});
    if (b != a) parts.push_back({Element::Kind::switch_, b, 0});
    return parts;
  }

  bool uses(const Value& v, const Element& part) const {
    const std::vector<Element> parts = of(v);
    return std::ranges::find(parts, part) != parts.end();
  }

 private:
  const Cluster& cluster_;
  const int group_;
};

struct BeforePart {
  bool operator()(const Element& a, const Element& b) const {
    return std::tuple(a.kind, a.index, a.other) < std::tuple(b.kind, b.index, b.other);
  }
};

/// What is usual for one kind of figure.
struct Norm {
  double usual = 1;
  double deviation = 0;  ///< relative
};

/// Of what nothing is wrong with. One switch of three slows two thirds of all pairs between switches, so the median may
/// well be a slow one: what belongs to the best fifth, less what no healthy scatter explains, is taken to be healthy.
Norm norm_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  constexpr double kOneMode = 0.93;
  const double good = values[(values.size() - 1) * 4 / 5];
  values.erase(values.begin(), std::ranges::lower_bound(values, kOneMode * good));
  const double usual = metrics::median(values);
  return {usual, robust_deviation(values) / usual};
}

/// Pairs within a group and between groups need not be alike: [0] is between, [1] within.
struct Norms {
  std::array<Norm, 2> rate, duplex;
};

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

Norms norms_of(const std::vector<PairRate>& rates, const Parts& parts) {
  Norms norms;
  for (const bool within : {false, true}) {
    norms.rate[within ? 1 : 0] = norm_of(figures_of(rates, parts, within, false));
    norms.duplex[within ? 1 : 0] = norm_of(figures_of(rates, parts, within, true));
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

using Figure = double Value::*;

/// The part that explains most of the low values that are left; the finest of those that explain as many.
std::optional<Element> best_explanation(const std::vector<Value>& values, const std::vector<bool>& explained,
                                        Figure figure, double threshold, const Parts& parts) {
  struct Count {
    std::size_t low = 0, all = 0;
    void add(bool is_low) {
      ++all;
      low += is_low ? 1 : 0;
    }
    bool to_blame() const { return low > 0 && static_cast<double>(low) >= kMostPairsSlow * static_cast<double>(all); }
  };
  std::map<Element, Count, BeforePart> counts;
  std::map<Element, Count, BeforePart> within;  // of switches: what does not leave them
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (explained[i]) continue;
    const bool low = values[i].*figure < threshold;
    for (const Element& part : parts.of(values[i])) {
      counts[part].add(low);
      const bool inside = part.kind == Element::Kind::switch_ && parts.within_group(values[i].pair);
      if (inside) within[part].add(low);
    }
  }
  // Two slow switches leave few pairs that use neither: then what is within each tells more than all.
  for (const auto& [part, count] : within) {
    if (count.to_blame() && !counts[part].to_blame() && count.all >= kFewestWithin) counts[part] = count;
  }
  const auto fineness = [](const Element& e) {
    return e.kind == Element::Kind::link ? 0 : static_cast<int>(e.kind) + 1;
  };
  std::optional<Element> best;
  std::size_t most = 0;
  for (const auto& [part, count] : counts) {
    if (!count.to_blame()) continue;
    // One slow pair tells of the pair alone: all else must be seen by two.
    if (part.kind != Element::Kind::link && count.low < 2) continue;
    if (count.low > most || (count.low == most && best && fineness(part) < fineness(*best))) {
      best = part;
      most = count.low;
    }
  }
  return best;
}

std::vector<Element> suspects_of(const std::vector<Value>& values, Figure figure, double threshold,
                                 const Parts& parts) {
  std::vector<Element> suspects;
  std::vector<bool> explained(values.size());
  while (const std::optional<Element> next = best_explanation(values, explained, figure, threshold, parts)) {
    if (next->kind == Element::Kind::link) break;  // found all at once below: there may be many by chance
    suspects.push_back(*next);
    for (std::size_t i = 0; i < values.size(); ++i) explained[i] = explained[i] || parts.uses(values[i], *next);
  }
  std::map<std::pair<int, int>, std::pair<int, int>> links;  // low, all
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (explained[i]) continue;
    auto& [low, all] = links[{values[i].pair.a, values[i].pair.b}];
    low += values[i].*figure < threshold ? 1 : 0;
    ++all;
  }
  std::vector<Element> slow_links;
  std::map<int, int> of_end;
  for (const auto& [pair, count] : links) {
    if (count.first == 0 || count.first < kMostPairsSlow * count.second) continue;
    slow_links.push_back({Element::Kind::link, pair.first, pair.second});
    ++of_end[pair.first];
    ++of_end[pair.second];
  }
  // Many links of one end are no coincidence, and not links either: that end was slow for a while.
  for (const Element& link : slow_links) {
    if (of_end[link.index] < kFewestOfAnEnd && of_end[link.other] < kFewestOfAnEnd) suspects.push_back(link);
  }
  return suspects;
}

/// Chooses pairs that measure suspects again, each with ends that nobody suspects.
class Confirmation {
 public:
  Confirmation(const Cluster& cluster, const Parts& parts, const std::vector<Element>& suspects)
      : parts_(parts), good_(static_cast<std::size_t>(cluster.ends()), true) {
    for (const Element& s : suspects) {
      for (int end = 0; end < cluster.ends(); ++end) {
        if (holds(s, end)) good_[static_cast<std::size_t>(end)] = false;
      }
    }
    if (std::ranges::none_of(good_, [](bool good) { return good; })) good_.assign(good_.size(), true);
  }

  /// The n-th pair for `suspect` whose ends are not yet in `busy`; nothing if there is none.
  std::optional<Pairing> pair_for(const Element& suspect, int n, const std::set<int>& busy) const {
    switch (suspect.kind) {
      case Element::Kind::link: return free(suspect.index, suspect.other, busy);
      case Element::Kind::uplink: return across(suspect.index, suspect.other, n, busy);
      case Element::Kind::switch_: {
        const int ends = static_cast<int>(good_.size());
        const int begin = parts_.group_begin(suspect.index), size = parts_.group_end(suspect.index) - begin;
        for (int i = 0; i < size; ++i) {
          if (const auto pair = with_good(begin + (n + i) % size, n, busy)) return pair;
        }
        return ends > 0 ? std::nullopt : std::optional<Pairing>();
      }
      default: return with_good(suspect.index, n, busy);
    }
  }

 private:
  bool holds(const Element& s, int end) const {
    switch (s.kind) {
      case Element::Kind::switch_: return parts_.group_of(end) == s.index;
      case Element::Kind::link: return s.index == end || s.other == end;
      case Element::Kind::uplink:
      case Element::Kind::fleet: return false;
      default: return s.index == end;
    }
  }
  std::optional<Pairing> free(int a, int b, const std::set<int>& busy) const {
    if (busy.contains(a) || busy.contains(b)) return std::nullopt;
    return Pairing{std::min(a, b), std::max(a, b)};
  }
  std::optional<Pairing> with_good(int end, int n, const std::set<int>& busy) const {
    const int ends = static_cast<int>(good_.size());
    for (int i = 0; i < ends; ++i) {
      const int other = (end + 1 + n * 7 + i) % ends;
      if (other == end || !good_[static_cast<std::size_t>(other)]) continue;
      if (const auto pair = free(end, other, busy)) return pair;
    }
    return std::nullopt;
  }
  std::optional<Pairing> across(int a, int b, int n, const std::set<int>& busy) const {
    const int size = std::min(parts_.group_end(a) - parts_.group_begin(a), parts_.group_end(b) - parts_.group_begin(b));
    for (int i = 0; i < size; ++i) {
      const int first = parts_.group_begin(a) + (n + i) % size, second = parts_.group_begin(b) + (2 * n + i) % size;
      if (!good_[static_cast<std::size_t>(first)] || !good_[static_cast<std::size_t>(second)]) continue;
      if (const auto pair = free(first, second, busy)) return pair;
    }
    return std::nullopt;
  }

  const Parts& parts_;
  std::vector<bool> good_;
};

/// Everything of one investigation.
class Investigation {
 public:
  Investigation(const Cluster& cluster, const MeasureRound& measure)
      : cluster_(cluster), measure_(measure), parts_(cluster) {}

  LinkReport run() {
    std::vector<PairRate> all;
    std::vector<std::vector<PairRate>> by_round;
    for (const Round& round : first_rounds(cluster_)) by_round.push_back(measured(round));
    for (const std::vector<PairRate>& round : by_round) all.insert(all.end(), round.begin(), round.end());
    for (const PairRate& r : all) report_.one_way.insert(report_.one_way.end(), r.one_way.begin(), r.one_way.end());
    if (cluster_.ends() < kFewestPeers || report_.one_way.empty()) return std::move(report_);
    report_.compared = true;
    norms_ = norms_of(all, parts_);
    for (std::size_t round = 0; round < by_round.size(); ++round) {
      const std::vector<Value> values = values_of(by_round[round], round, parts_, norms_);
      values_.insert(values_.end(), values.begin(), values.end());
    }
    judge(&Value::rate, Finding::Kind::slow);
    judge(&Value::duplex, Finding::Kind::half_duplex);
    find_transients();
    return std::move(report_);
  }

 private:
  std::vector<PairRate> measured(const Round& round) {
    ++report_.rounds;
    report_.measurements += static_cast<std::int64_t>(round.size());
    return measure_(round);
  }

  static double deviation(const std::array<Norm, 2>& norms) { return std::max(norms[0].deviation, norms[1].deviation); }

  void judge(Figure figure, Finding::Kind kind) {
    const bool duplex = kind == Finding::Kind::half_duplex;
    const double least = duplex ? kDuplexShortfall : kLeastShortfall;
    const double threshold = 1 - std::max(least, 3 * deviation(duplex ? norms_.duplex : norms_.rate));
    const std::vector<Element> suspects = suspects_of(values_, figure, threshold, parts_);
    const std::vector<std::vector<double>> again = measured_again(suspects, figure);
    for (std::size_t i = 0; i < suspects.size(); ++i) {
      if (again[i].empty()) continue;
      const double confirmed = metrics::median(again[i]);
      if (confirmed < 1 - least) report(suspects[i], kind, again[i]);
    }
  }

  /// What each suspect reaches in new pairings.
  std::vector<std::vector<double>> measured_again(const std::vector<Element>& suspects, Figure figure) {
    std::vector<std::vector<double>> again(suspects.size());
    std::vector<int> left(suspects.size(), kConfirmations);
    const Confirmation choose(cluster_, parts_, suspects);
    for (int tries = 0; tries < 100 * kConfirmations; ++tries) {
      Round round;
      std::vector<std::size_t> whose;
      std::set<int> busy;
      for (std::size_t i = 0; i < suspects.size(); ++i) {
        if (left[i] <= 0) continue;
        const auto pair = choose.pair_for(suspects[i], kConfirmations - left[i], busy);
        if (!pair) continue;
        --left[i];
        busy.insert({pair->a, pair->b});
        round.push_back(*pair);
        whose.push_back(i);
      }
      if (round.empty()) break;
      for (const Value& v : values_of(measured(round), tries, parts_, norms_)) {
        const auto at = static_cast<std::size_t>(std::ranges::find(round, v.pair) - round.begin());
        if (at < round.size() && parts_.uses(v, suspects[whose[at]])) again[whose[at]].push_back(v.*figure);
      }
    }
    return again;
  }

  void report(const Element& element, Finding::Kind kind, std::vector<double> again) {
    Finding finding;
    finding.element = element;
    finding.kind = kind;
    finding.relative = median_interval(std::move(again));
    finding.shortfall = 1 - finding.relative.median;
    finding.check = next_check(element, cluster_);
    const std::string what = kind == Finding::Kind::slow ? "carries" : "in both directions at once carries";
    finding.evidence = fmt::format(
        "{} {} {:.1f} % of what its peers do (95 %: {:.1f} to {:.1f}), in the first measurement and again in {} "
        "re-tests against partners that are known to be healthy",
        name_of(element, cluster_), what, 100 * finding.relative.median, 100 * finding.relative.low,
        100 * finding.relative.high, finding.relative.n);
    report_.findings.push_back(std::move(finding));
  }

  /// Ends that were slow for some rounds and not for others, which no finding explains.
  void find_transients() {
    std::map<std::pair<int, int>, std::vector<const Value*>> of_end;
    for (const Value& v : values_) {
      const bool explained =
          std::ranges::any_of(report_.findings, [&](const Finding& f) { return parts_.uses(v, f.element); });
      if (explained) continue;
      of_end[{v.pair.a, v.rail}].push_back(&v);
      of_end[{v.pair.b, v.rail}].push_back(&v);
    }
    const double threshold = 1 - std::max(kDeepShortfall, 5 * deviation(norms_.rate));
    // The most often slow first: what it explains makes nobody else suspicious.
    std::set<const Value*> used;
    for (;;) {
      const std::pair<int, int>* worst = nullptr;
      std::size_t most = 0;
      for (const auto& [end, values] : of_end) {
        const auto low = static_cast<std::size_t>(
            std::ranges::count_if(values, [&](const Value* v) { return v->rate < threshold && !used.contains(v); }));
        if (low > most) {
          most = low;
          worst = &end;
        }
      }
      if (worst == nullptr || most < kFewestDeep) return;
      Finding finding;
      finding.kind = Finding::Kind::transient;
      finding.element = parts_.end(worst->first, worst->second);
      std::vector<double> rates;
      for (const Value* v : of_end[*worst]) {
        rates.push_back(v->rate);
        used.insert(v);
      }
      finding.shortfall = 1 - *std::ranges::min_element(rates);
      finding.relative = median_interval(rates);
      finding.check = next_check(finding.element, cluster_);
      finding.evidence =
          fmt::format("{} fell by up to {:.0f} % in {} of {} pairings and was as fast as its peers in the others",
                      name_of(finding.element, cluster_), 100 * finding.shortfall, most, rates.size());
      report_.findings.push_back(std::move(finding));
    }
  }

  const Cluster& cluster_;
  const MeasureRound& measure_;
  const Parts parts_;
  Norms norms_;
  std::vector<Value> values_;
  LinkReport report_;
};

}  // namespace

LinkReport blame_links(const Cluster& cluster, const MeasureRound& measure) {
  return Investigation(cluster, measure).run();
}

}  // namespace fsdpbench::accept
