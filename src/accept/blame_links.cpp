#include "accept/blame_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include "accept/link_parts.h"
#include "account/statistics.h"
#include "base/random.h"

namespace fsdpbench::accept {
namespace {

constexpr double kMostPairsSlow = 0.8;   // of a part that is to blame
constexpr double kDeepShortfall = 0.08;  // no healthy scatter, so that some of them mean something
constexpr std::size_t kFewestDeep = 3;
constexpr double kDuplexShortfall = 0.2;  // of both directions together
constexpr int kFewestOfAnEnd = 3;
constexpr int kFewestPaths = 3;  // one or two tell which switch they share
constexpr std::size_t kConfirmations = 6;
constexpr int kControls = 9;

using Figure = double Value::*;

/// "70.0 % of what its peers do (95 %: 69.0 to 71.0)"
std::string share_text(const Interval& share, std::string_view of) {
  return fmt::format("{:.1f} % {} (95 %: {:.1f} to {:.1f})", 100 * share.median, of, 100 * share.low, 100 * share.high);
}

/// The part that explains most of the low values that are left, but for links; the finest of those that explain as
/// many. Where all paths between switches are slow, they do not tell a slow switch or end: `paths_only` from then on,
/// and what is slow within a switch.
std::optional<Element> best_explanation(const std::vector<Value>& values, const std::vector<bool>& explained,
                                        Figure figure, double threshold, const Parts& parts, bool& paths_only) {
  struct Count {
    std::size_t low = 0, all = 0;
    void add(bool is_low) {
      ++all;
      low += is_low ? 1 : 0;
    }
    bool to_blame() const { return static_cast<double>(low) >= kMostPairsSlow * static_cast<double>(all); }
  };
  std::map<Element, Count> counts, within;  // of all pairs, and of those that leave no switch
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (explained[i]) continue;
    const bool low = values[i].*figure < threshold;
    for (const Element& part : parts.of(values[i])) {
      if (part.kind == Element::Kind::link) continue;
      counts[part].add(low);
      if (parts.within_group(values[i].pair)) within[part].add(low);
    }
  }
  int paths = 0, slow_paths = 0;
  for (const auto& [part, count] : counts) {
    if (part.kind != Element::Kind::uplink || parts.members(part.index).size() < 2 ||
        parts.members(part.other).size() < 2) {
      continue;  // the path of a single end is its own
    }
    ++paths;
    slow_paths += count.to_blame() ? 1 : 0;
  }
  const bool all_slow = paths_only || (paths >= kFewestPaths && slow_paths == paths);
  const auto is_told = [&](const Element& part) {
    return !all_slow || part.kind == Element::Kind::uplink || (within.contains(part) && within[part].to_blame());
  };
  std::optional<Element> best;
  std::size_t most = 1;                       // one slow pair tells of the pair alone
  for (const auto& [part, count] : counts) {  // the finest first
    if (!count.to_blame() || count.low <= most || !is_told(part)) continue;
    best = part;
    most = count.low;
  }
  paths_only = paths_only || (all_slow && best && best->kind == Element::Kind::uplink);
  return best;
}

std::vector<Element> suspects_of(const std::vector<Value>& values, Figure figure, double threshold,
                                 const Parts& parts) {
  std::vector<Element> suspects;
  std::vector<bool> explained(values.size());
  bool paths_only = false;
  while (const auto next = best_explanation(values, explained, figure, threshold, parts, paths_only)) {
    suspects.push_back(*next);
    for (std::size_t i = 0; i < values.size(); ++i) explained[i] = explained[i] || parts.uses(values[i], *next);
  }
  // Links are found all at once: there may be many by chance.
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
    if (count.first < kMostPairsSlow * count.second) continue;
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
      : parts_(parts), good_(cluster.ends(), true) {
    for (const Element& s : suspects) {
      for (int end = 0; end < cluster.ends(); ++end) {
        if (holds(s, end)) good_[end] = false;
      }
    }
    if (std::ranges::none_of(good_, [](bool good) { return good; })) good_.assign(good_.size(), true);
  }

  /// The n-th pair of ends that nobody suspects, in a mixed order.
  std::optional<Pairing> healthy(int n) const {
    const int ends = static_cast<int>(good_.size());
    for (const int i : std::views::iota(0, ends)) {
      const int end = (n * 5 + i) % ends;
      if (good_[end]) return with_good(end, n);
    }
    return std::nullopt;
  }

  /// The n-th pair for `suspect`; nothing if there is none.
  std::optional<Pairing> pair_for(const Element& suspect, int n) const {
    switch (suspect.kind) {
      case Element::Kind::link: return pair_of(suspect.index, suspect.other);
      case Element::Kind::uplink: return across(suspect.index, suspect.other, n);
      case Element::Kind::switch_:
      case Element::Kind::leaf_rail: {
        const std::vector<int>& members = parts_.members(suspect.index);
        return with_good(members[static_cast<std::size_t>(n) % members.size()], n);
      }
      case Element::Kind::rail: return healthy(n);
      default: return with_good(suspect.index, n);
    }
  }

 private:
  bool holds(const Element& s, int end) const {
    switch (s.kind) {
      case Element::Kind::switch_:
      case Element::Kind::leaf_rail: return parts_.group_of(end) == s.index;
      case Element::Kind::link: return s.index == end || s.other == end;
      case Element::Kind::gpu:
      case Element::Kind::node:
      case Element::Kind::nic: return s.index == end;
      default: return false;
    }
  }
  static Pairing pair_of(int a, int b) { return {std::min(a, b), std::max(a, b)}; }
  std::optional<Pairing> with_good(int end, int n) const {
    const int ends = static_cast<int>(good_.size());
    for (const int i : std::views::iota(0, ends)) {
      const int other = (end + 1 + n * 7 + i) % ends;
      if (other != end && good_[other]) return pair_of(end, other);
    }
    return std::nullopt;
  }
  std::optional<Pairing> across(int a, int b, int n) const {
    const std::vector<int>&of_a = parts_.members(a), &of_b = parts_.members(b);
    const auto tries = static_cast<int>(std::max(of_a.size(), of_b.size()));
    for (const int i : std::views::iota(0, tries)) {
      const int first = of_a[static_cast<std::size_t>(n + i) % of_a.size()];
      const int second = of_b[static_cast<std::size_t>(2 * n + i) % of_b.size()];
      if (good_[first] && good_[second]) return pair_of(first, second);
    }
    return std::nullopt;
  }

  const Parts& parts_;
  std::vector<bool> good_;
};

/// Rates at which one end sends and receives, over what is usual.
struct BothWays {
  std::vector<double> sends, receives;

  void add(const PairRate& rate, const Element& suspect, double usual) {
    const bool is_end = suspect.kind == Element::Kind::nic || suspect.kind == Element::Kind::gpu;
    if (!is_end || !(rate.to_a > 0 && rate.to_b > 0)) return;
    const bool first = suspect.index == rate.pair.a;
    sends.push_back((first ? rate.to_b : rate.to_a) / usual);
    receives.push_back((first ? rate.to_a : rate.to_b) / usual);
  }
  /// "sends" or "receives" if it is slow in this direction only.
  std::string slow_direction() const {
    if (sends.size() < kConfirmations) return {};
    const bool sends_well = account::median(sends) >= 1 - kLeastShortfall;
    const bool receives_well = account::median(receives) >= 1 - kLeastShortfall;
    if (sends_well == receives_well) return {};
    return sends_well ? "receives" : "sends";
  }
  std::string text() const {
    const std::string slow = slow_direction();
    if (slow.empty()) return {};
    return fmt::format("; what it {} is as fast as its peers', what it {} is slow",
                       slow == "sends" ? "receives" : "sends", slow);
  }
};

/// Everything of one investigation.
class Investigation {
 public:
  Investigation(const Cluster& cluster, const MeasureRound& measure)
      : cluster_(cluster), measure_(measure), parts_(cluster) {}

  LinkReport run() {
    for (const Round& round : first_rounds(cluster_)) std::ranges::move(measured(round), std::back_inserter(first_));
    for (const PairRate& r : first_) report_.one_way.insert(report_.one_way.end(), r.one_way.begin(), r.one_way.end());
    if (cluster_.ends() < kFewestPeers || report_.one_way.empty()) return std::move(report_);
    report_.compared = true;
    norms_ = norms_of(first_, parts_, false);
    best_ = first_;
    look_again();
    infer();
    norms_ = norms_of(best_, parts_, apart_);
    const std::vector<Value> values = values_of(best_, parts_, norms_);
    judge(values, &Value::rate, Finding::Kind::slow);
    judge(values, &Value::duplex, Finding::Kind::half_duplex);
    values_ = values_of(first_, parts_, norms_of(first_, parts_, apart_));
    find_slow_spine();
    find_transients();
    find_remainder(values);
    return std::move(report_);
  }

 private:
  std::vector<PairRate> measured(const Round& round) {
    ++report_.rounds;
    report_.measurements += static_cast<std::int64_t>(round.size());
    return measure_(round);
  }

  static double deviation(const std::array<Norm, 2>& norms) {
    return std::max(norms.front().deviation, norms.back().deviation);
  }
  double threshold(Figure figure) const {
    const bool duplex = figure == &Value::duplex;
    return 1 -
           std::max(duplex ? kDuplexShortfall : kLeastShortfall, 3 * deviation(duplex ? norms_.duplex : norms_.rate));
  }

  bool low(const PairRate& rate) const {
    const std::vector<Value> values = values_of({rate}, parts_, norms_);
    return std::ranges::any_of(values, [&](const Value& v) {
      return v.rate < threshold(&Value::rate) || v.duplex < threshold(&Value::duplex);
    });
  }

  /// Measures slow pairs again, few at a time, and keeps what each carries at best. A pair that met others on an uplink
  /// that all share, or on a path that a hash chose for both, is as fast as any when it has a path for itself; and each
  /// measurement has a new communicator, whose ports the hash spreads anew.
  void look_again() {
    constexpr std::array kEndsOfAPair{8, 12, 24};
    for (const int ends : kEndsOfAPair) {
      const std::size_t at_once = std::max(1, cluster_.ends() / ends);
      std::vector<PairRate*> left;
      for (PairRate& rate : best_) {
        if (low(rate)) left.push_back(&rate);
      }
      // In a mixed order: neighbours in the list share switches.
      std::ranges::sort(left, {}, [ends](const PairRate* rate) {
        return split_mixed(static_cast<std::uint64_t>(ends) << 40 | static_cast<std::uint64_t>(rate->pair.a) << 20 |
                           static_cast<std::uint64_t>(rate->pair.b));
      });
      while (!left.empty()) {
        Round round;
        std::set<int> busy;
        std::map<std::pair<int, int>, PairRate*> whose;
        std::erase_if(left, [&](PairRate* rate) {
          const Pairing& p = rate->pair;
          if (round.size() >= at_once || busy.contains(p.a) || busy.contains(p.b)) return false;
          busy.insert({p.a, p.b});
          round.push_back(p);
          whose[{p.a, p.b}] = rate;
          return true;
        });
        for (const PairRate& again : measured(round)) {
          PairRate& best = *whose.at({again.pair.a, again.pair.b});
          for (std::size_t rail = 0; rail < again.one_way.size(); ++rail) {
            best.one_way[rail] = std::max(best.one_way[rail], again.one_way[rail]);
            best.both_ways[rail] = std::max(best.both_ways[rail], again.both_ways.at(rail));
          }
        }
      }
    }
  }

  /// Groups where nobody has named any, and all pairs were measured: the groups that slow pairs show.
  void infer() {
    if (parts_.grouped() || cluster_.ends() > kMostForAllPairs) return;
    std::set<std::pair<int, int>> slow;
    for (const PairRate& rate : best_) {
      for (const Value& v : values_of({rate}, parts_, norms_)) {
        if (v.rate < threshold(&Value::rate)) slow.insert({v.pair.a, v.pair.b});
      }
    }
    const std::optional<std::vector<int>> groups = infer_groups(cluster_.ends(), [&](int a, int b) {
      return slow.contains({std::min(a, b), std::max(a, b)});
    });
    if (!groups) return;
    cluster_.switch_of = *groups;
    report_.inferred = *groups;
    parts_ = Parts(cluster_);
    // Within a node sockets are far from each other by design; but ranks that are slow among themselves are slow.
    apart_ = cluster_.one_node() && std::ranges::none_of(slow, [&](const auto& p) {
               return parts_.within_group({p.first, p.second});
             });
  }

  void judge(const std::vector<Value>& values, Figure figure, Finding::Kind kind) {
    const double least = kind == Finding::Kind::half_duplex ? kDuplexShortfall : kLeastShortfall;
    std::vector<Element> suspects = suspects_of(values, figure, threshold(figure), parts_);
    take_usual_paths(suspects, values, figure, kind);
    if (suspects.empty()) return;
    const std::vector<std::vector<double>> again = measured_again(suspects, figure);
    for (std::size_t i = 0; i < suspects.size(); ++i) {
      // A few figures, some of them slow, say nothing: all of them must be.
      if (again[i].size() < kConfirmations || median_interval(again[i]).high >= 1 - least) continue;
      report(named_by_what_is_known(suspects[i]), kind, again[i]);
      if (kind != Finding::Kind::slow) continue;
      report_.findings.back().evidence += ways_[i].text();
      report_.findings.back().direction = ways_[i].slow_direction();
      doubt_if_flows_may_collide(report_.findings.back());
    }
  }

  /// Two nodes have no link of their own. If switches choose a path by addresses alone, rails of one pair of nodes may
  /// share a path in every measurement, and each carries a half of it, or a third: such a pair is not told from one
  /// whose path is slow.
  void doubt_if_flows_may_collide(Finding& finding) const {
    constexpr double kAlike = 0.03;
    if (cluster_.one_node() || finding.element.kind != Element::Kind::link) return;
    for (int flows = 2; flows <= cluster_.rails; ++flows) {
      if (std::abs(finding.relative.median - 1.0 / flows) > kAlike) continue;
      finding.kind = Finding::Kind::collision;
      finding.evidence += fmt::format(
          "; {} flows that the switches always put on one path, by their addresses, carry as much, so nobody is "
          "accused",
          flows);
      finding.check =
          "the switches' counters on the way between the two nodes, or accept again with adaptive routing or "
          "ports in their hash";
      return;
    }
  }

  /// If most paths between three groups or more are slow, pairs do not tell whether the paths are, the switches at
  /// their ends, or how the fabric is built: that is said, and nobody accused.
  void take_usual_paths(std::vector<Element>& suspects, const std::vector<Value>& values, Figure figure,
                        Finding::Kind kind) {
    constexpr std::ptrdiff_t kMostListed = 4;
    const auto is_path = [](const Element& e) { return e.kind == Element::Kind::uplink; };
    const std::ptrdiff_t groups = parts_.groups().count(), paths = groups * (groups - 1) / 2;
    const std::ptrdiff_t slow = std::ranges::count_if(suspects, is_path);
    if (paths < kFewestPaths || 2 * slow <= paths) return;
    std::vector<Element> usual;
    std::ranges::copy_if(suspects, std::back_inserter(usual), is_path);
    std::erase_if(suspects, is_path);
    std::vector<double> rates;
    for (const Value& v : values) {
      if (uses_any(v, usual)) rates.push_back(v.*figure);
    }
    std::string listed;
    for (const Element& path : usual | std::views::take(kMostListed)) {
      listed += (listed.empty() ? "" : ", ") + name_of(path, cluster_);
    }
    usual_paths_.insert(usual_paths_.end(), usual.begin(), usual.end());
    Finding& finding = add({}, Finding::Kind::unclear, rates);
    finding.check = "the cables and ports between all switches, and how routes are spread over them";
    finding.evidence = fmt::format(
        "{} of {} paths between groups of {} {} {}: {}{}; pairs do not tell whether these paths are slow, or what is "
        "at "
        "their ends, so nobody is accused",
        slow, paths, cluster_.one_node() ? "ranks" : "nodes",
        kind == Finding::Kind::slow ? "carry" : "in both directions at once carry",
        share_text(finding.relative, "of what other pairs do"), listed, slow > kMostListed ? " and others" : "");
  }

  /// Between two groups that were inferred the path is slow, or the smaller group to all others: nobody can tell, and
  /// it is the latter if the others are more than twice as many, because they must have several switches.
  Element named_by_what_is_known(const Element& e) const {
    if (e.kind != Element::Kind::uplink || report_.inferred.empty() || parts_.groups().count() != 2) return e;
    const std::size_t a = parts_.members(e.index).size(), b = parts_.members(e.other).size();
    if (2 * a <= b) return {Element::Kind::switch_, e.index, 0};
    if (2 * b <= a) return {Element::Kind::switch_, e.other, 0};
    return e;
  }

  /// Rates of each suspect in new pairings, over those of healthy pairs. One pair at a time: nothing shares a
  /// path.
  std::vector<std::vector<double>> measured_again(const std::vector<Element>& suspects, Figure figure) {
    std::vector<std::vector<double>> again(suspects.size());
    ways_.assign(suspects.size(), {});
    const Confirmation choose(cluster_, parts_, suspects);
    std::vector<PairRate> alone;
    for (int n = 0; n < kControls; ++n) {
      if (const auto pair = choose.healthy(n)) {
        for (PairRate& rate : measured({*pair})) alone.push_back(std::move(rate));
      }
    }
    const Norms norms = alone.empty() || apart_ ? norms_ : norms_of(alone, parts_, false);
    for (std::size_t i = 0; i < suspects.size(); ++i) {
      for (int n = 0; n < static_cast<int>(kConfirmations); ++n) {
        const auto pair = choose.pair_for(suspects[i], n);
        if (!pair) continue;
        const std::vector<PairRate> rates = measured({*pair});
        for (const PairRate& rate : rates) ways_[i].add(rate, suspects[i], norms.rate.back().usual);
        for (const Value& v : values_of(rates, parts_, norms)) {
          if (parts_.uses(v, suspects[i])) again[i].push_back(v.*figure);
        }
      }
    }
    return again;
  }

  /// Some transfers are slow, whoever sends them, even if they have the fabric for themselves, and new ports move it:
  /// then one of the paths that the switches choose among is slow.
  void find_slow_spine() {
    constexpr int kTransfers = 64, kFewestSlow = 4;
    if (cluster_.one_node()) return;
    const std::vector<Element> told_of = parts_told_of();
    std::size_t low = 0, all = 0;
    for (const Value& v : values_) {
      if (uses_any(v, told_of)) continue;
      ++all;
      low += v.rate < 1 - kDeepShortfall ? 1 : 0;
    }
    if (static_cast<double>(low) < 0.03 * static_cast<double>(all)) return;
    const Confirmation choose(cluster_, parts_, told_of);
    std::vector<double> slow;
    std::map<int, int> of_end;
    int transfers = 0;
    for (int n = 0; n < kTransfers; ++n) {
      const auto pair = choose.healthy(n);
      if (!pair) return;
      bool is_slow = false;
      for (const Value& v : values_of(measured({*pair}), parts_, norms_)) {
        if (uses_any(v, told_of)) continue;
        ++transfers;
        if (v.rate >= 1 - kDeepShortfall || !fast_again(v)) continue;
        slow.push_back(v.rate);
        is_slow = true;
      }
      if (!is_slow) continue;
      ++of_end[pair->a];
      ++of_end[pair->b];
    }
    if (std::ssize(slow) < kFewestSlow) return;
    const auto most = std::ranges::max_element(of_end, {}, [](const auto& end) { return end.second; });
    if (2 * most->second > std::ssize(slow)) return;
    // Two ends that met it each time look as if the link between them were slow.
    std::erase_if(report_.findings, [](const Finding& f) { return f.element.kind == Element::Kind::link; });
    Finding& finding = add({Element::Kind::spine, 0, 0}, Finding::Kind::slow, slow);
    finding.evidence = fmt::format(
        "{} is slow: {} of {} transfers, each alone, carried {}; the same nodes were fast again with other ports",
        name_of(finding.element, cluster_), slow.size(), transfers,
        share_text(finding.relative, "of what the others did"));
  }

  /// Whether the same two ends are as fast as others with other ports.
  bool fast_again(const Value& slow) {
    constexpr int kTries = 5;
    for (int i = 0; i < kTries; ++i) {
      for (const Value& v : values_of(measured({slow.pair}), parts_, norms_)) {
        if (v.rail == slow.rail && v.rate >= 1 - kLeastShortfall) return true;
      }
    }
    return false;
  }

  /// Parts that findings are about.
  std::vector<Element> parts_told_of() const {
    std::vector<Element> parts = usual_paths_;
    for (const Finding& finding : report_.findings) parts.push_back(finding.element);
    return parts;
  }
  bool uses_any(const Value& v, const std::vector<Element>& parts) const {
    return std::ranges::any_of(parts, [&](const Element& part) { return parts_.uses(v, part); });
  }

  void report(const Element& element, Finding::Kind kind, std::vector<double> again) {
    Finding& finding = add(element, kind, std::move(again));
    const std::string what = kind == Finding::Kind::slow ? "carries" : "in both directions at once carries";
    finding.evidence = fmt::format(
        "{} {} {}, in the first measurement and again in {} re-tests, each alone, against partners that are known to "
        "be "
        "healthy",
        name_of(element, cluster_), what, share_text(finding.relative, "of what its peers do"), finding.relative.n);
  }

  /// A finding without its evidence; `rates`: of the part, over those of its peers.
  Finding& add(const Element& element, Finding::Kind kind, std::vector<double> rates) {
    Finding& finding = report_.findings.emplace_back();
    finding.element = element;
    finding.kind = kind;
    finding.relative = median_interval(std::move(rates));
    finding.shortfall = 1 - finding.relative.median;
    finding.check = next_check(element, cluster_, SlowAt::transfers);
    return finding;
  }

  /// Ends that were slow for some rounds and not for others, which no finding explains.
  void find_transients() {
    std::map<std::pair<int, int>, std::vector<const Value*>> of_end;
    const std::vector<Element> told_of = parts_told_of();
    for (const Value& v : values_) {
      if (uses_any(v, told_of)) continue;
      of_end[{v.pair.a, v.rail}].push_back(&v);
      of_end[{v.pair.b, v.rail}].push_back(&v);
    }
    if (of_end.empty()) return;
    const double deep = 1 - std::max(kDeepShortfall, 5 * deviation(norms_.rate));
    // Ends that get in each other's way are all slow now and then: only one that is so far more often counts.
    std::vector<double> usual;
    for (const auto& [end, values] : of_end) {
      usual.push_back(
          static_cast<double>(std::ranges::count_if(values, [&](const Value* v) { return v->rate < deep; })));
    }
    const double often = account::median(usual);
    // The most often slow first: what it explains makes nobody else suspicious.
    std::set<const Value*> used;
    for (;;) {
      const std::pair<int, int>* worst = nullptr;
      std::size_t most = kFewestDeep - 1;
      for (const auto& [end, values] : of_end) {
        const std::size_t low =
            std::ranges::count_if(values, [&](const Value* v) { return v->rate < deep && !used.contains(v); });
        if (low > most) {
          most = low;
          worst = &end;
        }
      }
      if (worst == nullptr || static_cast<double>(most) < often + 5 * std::sqrt(often)) return;
      std::vector<double> rates;
      for (const Value* v : of_end[*worst]) {
        rates.push_back(v->rate);
        used.insert(v);
      }
      Finding& finding = add(parts_.end(worst->first, worst->second), Finding::Kind::transient, rates);
      finding.shortfall = 1 - *std::ranges::min_element(rates);
      finding.evidence =
          fmt::format("{} fell by up to {:.0f} % in {} of {} pairings and was as fast as its peers in the others",
                      name_of(finding.element, cluster_), 100 * finding.shortfall, most, rates.size());
    }
  }

  /// Share that the parts that are to blame leave of the rate of what `v` went through, at most; nothing if that is not
  /// known. A part within another that is slow, too, may be slowed by both.
  std::optional<double> left_by_accused(const Value& v) const {
    using Kind = Element::Kind;
    if (uses_any(v, usual_paths_)) return std::nullopt;
    double left = 1;
    for (const Finding& f : report_.findings) {
      const Element& e = f.element;
      const bool is_end = e.kind == Kind::gpu || e.kind == Kind::nic || e.kind == Kind::node;
      // An end that is slow to all others shows no group: nobody knows which paths it uses.
      if (is_end && !report_.inferred.empty() && (e.index == v.pair.a || e.index == v.pair.b)) return std::nullopt;
      if (!parts_.uses(v, e)) continue;
      if (!f.accuses()) return std::nullopt;  // slow now and then
      // Some of its re-tests may have met the other fault, too: the best ones have not.
      if (f.kind == Finding::Kind::slow) left *= std::min(1.0, f.relative.high);
    }
    return left;
  }

  /// A larger fault may hide a smaller one, so pairs that are slower than the named parts explain are reported. Nobody
  /// is accused of them, because the evidence does not say who is to blame.
  void find_remainder(const std::vector<Value>& values) {
    constexpr std::size_t kMostAgain = 8, kFewestSlow = 2, kMostListed = 4;
    std::string accused;
    for (const Finding& f : report_.findings) {
      if (f.element.kind == Element::Kind::spine) return;  // any pair may have met it
      if (f.kind == Finding::Kind::slow) accused += (accused.empty() ? "" : ", ") + name_of(f.element, cluster_);
    }
    if (accused.empty()) return;
    const double slow = 1 - std::max(kDeepShortfall, 3 * deviation(norms_.rate));
    std::map<std::pair<int, int>, double> of_pair;  // the slowest rail of each pair that is too slow
    std::set<std::pair<int, int>> pairs;
    for (const Value& v : values) {
      pairs.insert({v.pair.a, v.pair.b});
      const std::optional<double> left = left_by_accused(v);
      if (!left || v.rate >= slow * *left) continue;
      double& rate = of_pair.try_emplace({v.pair.a, v.pair.b}, v.rate / *left).first->second;
      rate = std::min(rate, v.rate / *left);
    }
    if (of_pair.size() < kFewestSlow) return;
    std::vector<std::pair<int, int>> order;
    for (const auto& [pair, rate] : of_pair) order.push_back(pair);
    std::ranges::stable_sort(order, {}, [&](const auto& pair) { return of_pair[pair]; });
    order.resize(std::min(order.size(), kMostAgain));
    std::vector<double> again;
    std::string listed;
    for (const auto& [a, b] : order) {
      double slowest = slow;
      for (const Value& v : values_of(measured({{a, b}}), parts_, norms_)) {
        if (const std::optional<double> left = left_by_accused(v)) slowest = std::min(slowest, v.rate / *left);
      }
      if (slowest >= slow) continue;
      again.push_back(slowest);
      if (again.size() > kMostListed) continue;
      const auto end = [&](int index) {
        return name_of({cluster_.one_node() ? Element::Kind::gpu : Element::Kind::node, index}, cluster_);
      };
      listed += fmt::format("{}{} with {}", listed.empty() ? "" : "; ", end(a), end(b));
    }
    if (again.size() < kFewestSlow) return;
    Remainder& remainder = report_.remainder.emplace();
    remainder.relative = median_interval(again);
    remainder.sentence = fmt::format(
        "part of what is slow is not explained by {}: {} of {} pairs carry less than that leaves them, and {} of the "
        "{} "
        "that were measured again, each alone, still carry {}: {}{}; repair what is named, and accept again to see "
        "what "
        "remains",
        accused, of_pair.size(), pairs.size(), again.size(), order.size(), share_text(remainder.relative, "of it"),
        listed, again.size() > kMostListed ? "; and others" : "");
  }

  Cluster cluster_;  // with the groups that were inferred
  const MeasureRound& measure_;
  Parts parts_;
  bool apart_ = false;  // pairs within groups and between them are not compared
  Norms norms_;
  std::vector<PairRate> first_;  // as all met all
  std::vector<PairRate> best_;   // of each pair, of several looks at those that were slow
  std::vector<Value> values_;    // of first_
  std::vector<BothWays> ways_;   // of the suspects that are measured again
  std::vector<Element> usual_paths_;
  LinkReport report_;
};

}  // namespace

LinkReport blame_links(const Cluster& cluster, const MeasureRound& measure) {
  return Investigation(cluster, measure).run();
}

}  // namespace fsdpbench::accept
