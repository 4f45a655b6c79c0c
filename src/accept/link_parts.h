#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "accept/element.h"
#include "accept/finding.h"
#include "accept/robust.h"

namespace fsdpbench::accept {

/// One rail of one pair, over the median of its like.
struct Value {
  Pairing pair;
  int rail = 0;
  double rate = 1;    ///< one way
  double duplex = 1;  ///< both ways / one way
};

/// Parts of the fabric by the ends that use them.
class Parts {
 public:
  explicit Parts(const Cluster& cluster)
      : one_node_(cluster.one_node()), rails_(cluster.rails), groups_(groups_of(cluster)) {}

  const Groups& groups() const { return groups_; }
  bool within_group(const Pairing& p) const { return groups_.same(p.a, p.b); }
  bool grouped() const { return groups_.count() > 1; }
  int group_of(int end) const { return groups_.of[end]; }
  const std::vector<int>& members(int group) const { return groups_.members[group]; }

  Element end(int index, int rail) const {
    return one_node_ ? Element{Element::Kind::gpu, index, 0} : Element{Element::Kind::nic, index, rail};
  }

  /// All parts that a value goes through, the finest first.
  std::vector<Element> of(const Value& v) const {
    std::vector<Element> parts{{Element::Kind::link, v.pair.a, v.pair.b}, end(v.pair.a, v.rail), end(v.pair.b, v.rail)};
    const bool rails = rails_ > 1;
    if (rails) {
      parts.push_back({Element::Kind::node, v.pair.a, 0});
      parts.push_back({Element::Kind::node, v.pair.b, 0});
      parts.push_back({Element::Kind::rail, v.rail, 0});
    }
    if (!grouped()) return parts;
    const int a = group_of(v.pair.a), b = group_of(v.pair.b);
    if (a != b) parts.push_back({Element::Kind::uplink, std::min(a, b), std::max(a, b)});
    const auto add_group = [&](int group) {
      parts.push_back({Element::Kind::switch_, group, 0});
      if (rails) parts.push_back({Element::Kind::leaf_rail, group, v.rail});
    };
    add_group(a);
    if (b != a) add_group(b);
    return parts;
  }

  bool uses(const Value& v, const Element& part) const {
    const std::vector<Element> parts = of(v);
    return std::ranges::find(parts, part) != parts.end();
  }

 private:
  bool one_node_;
  int rails_;
  Groups groups_;
};

/// Usual range of one kind of figure.
struct Norm {
  double usual = 1;
  double deviation = 0;  ///< relative
};

/// [0] is of pairs between groups, [1] of those within. Between nodes one flow has its NIC's rate however far it goes,
/// so both are the same; within a node another socket may well be slower to reach.
struct Norms {
  std::array<Norm, 2> rate, duplex;
};

/// `apart`: pairs within groups and between them are not compared.
Norms norms_of(const std::vector<PairRate>& rates, const Parts& parts, bool apart);

/// A value for each rail of each pair.
std::vector<Value> values_of(const std::vector<PairRate>& rates, const Parts& parts, const Norms& norms);

/// The groups that slow pairs show where nobody has told of any, by end; nothing if they show none. `slow` says it of
/// two ends. Three ends or more that are slow to the same three or more others are a group; fewer can be chance, or as
/// many slow NICs.
std::optional<std::vector<int>> infer_groups(int ends, const std::function<bool(int a, int b)>& slow);

/// Rates at which GPUs computed or moved data, by rank, in rounds that all measured at the same time. A rate of 0 means
/// that it was not measured.
using DeviceRounds = std::vector<std::vector<double>>;

/// Which GPUs are slower than the median of all for certain: by more than 5 % and by more than three robust deviations.
/// Every round is held against its own median, so that what all share (heat of the day, a power limit) accuses nobody.
/// A GPU that is slow in some rounds and as fast as ever in others is called transient: it throttles, or something else
/// ran there; not if its better rounds, too, are below its peers. Fewer than kFewestPeers GPUs are not compared. All
/// rounds have cluster.ranks() values.
/// `at`: what was measured, for the evidence.
std::vector<Finding> blame_devices(const Cluster& cluster, const DeviceRounds& rounds,
                                   std::string_view at = "matrix products");

}  // namespace fsdpbench::accept
