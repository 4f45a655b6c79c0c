// Faults in fabrics that blame was not written against: fat trees, rails, dragonflies, 2:1, flows by hash; with
// switches that it was told of, and without.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "accept/blame_links.h"
#include "accept/element.h"
#include "base/random.h"
#include "support/fabric.h"

namespace fsdpbench::accept {
namespace {

using Part = Fabric::Fault::Part;
constexpr std::uint64_t kSeeds = 4;

const char* name_of_kind(Fabric::Kind kind) {
  switch (kind) {
    case Fabric::Kind::fat_tree: return "fat tree";
    case Fabric::Kind::rail_optimised: return "rail-optimised";
    case Fabric::Kind::dragonfly: return "dragonfly";
  }
  return "";
}

const char* name_of_part(Part part) {
  switch (part) {
    case Part::none: return "healthy";
    case Part::nic: return "NIC";
    case Part::receive: return "NIC that receives slowly";
    case Part::leaf: return "leaf";
    case Part::leaf_uplinks: return "leaf's uplinks";
    case Part::path: return "path between leaves";
    case Part::spine: return "spine";
    case Part::rail: return "rail";
    case Part::leaf_rail: return "rail of a leaf";
  }
  return "";
}

std::vector<Fabric::Shape> shapes() {
  using Kind = Fabric::Kind;
  return {{.kind = Kind::fat_tree, .nodes = 32, .leaf = 8},
          {.kind = Kind::fat_tree, .nodes = 32, .leaf = 8, .taper = 2},
          {.kind = Kind::fat_tree, .nodes = 48, .leaf = 16, .taper = 2, .by_hash = false, .shuffled = true},
          {.kind = Kind::fat_tree, .nodes = 16, .leaf = 8, .by_hash = false},
          {.kind = Kind::fat_tree, .nodes = 24, .rails = 2, .leaf = 6, .taper = 2, .shuffled = true},
          {.kind = Kind::rail_optimised, .nodes = 16, .rails = 8, .leaf = 4},
          {.kind = Kind::rail_optimised, .nodes = 32, .rails = 4, .leaf = 8, .taper = 2, .shuffled = true},
          {.kind = Kind::dragonfly, .nodes = 40, .leaf = 10, .by_hash = false, .shuffled = true},
          {.kind = Kind::dragonfly, .nodes = 24, .leaf = 8, .taper = 2, .by_hash = false}};
}

/// The faults that a fabric of this shape can have.
std::vector<Part> faults_of(const Fabric::Shape& shape) {
  std::vector<Part> parts{Part::none, Part::nic, Part::receive, Part::leaf, Part::leaf_uplinks, Part::path};
  if (shape.kind != Fabric::Kind::dragonfly && shape.by_hash) parts.push_back(Part::spine);
  if (shape.rails > 1) parts.insert(parts.end(), {Part::rail, Part::leaf_rail});
  return parts;
}

/// Whether `group` is the nodes of a leaf. `other`: a node that has a fault of its own, and may be in either; -1: none.
bool same_nodes(const std::vector<int>& group, const Fabric& fabric, int leaf, int other = -1) {
  for (int node = 0; node < static_cast<int>(fabric.leaves().size()); ++node) {
    if (node != other && (fabric.leaf_of(node) == leaf) != (std::ranges::find(group, node) != group.end()))
      return false;
  }
  return true;
}

/// Whether a finding names the fault at its level: the part itself, or the nodes that share it.
bool names(const Finding& finding, const Fabric::Fault& fault, const Fabric& fabric, const Cluster& cluster,
           bool two_leaves, int other = -1) {
  using Kind = Element::Kind;
  const Element& e = finding.element;
  const Groups groups = groups_of(cluster);
  const auto is_leaf = [&](int group, int leaf) {
    return group < groups.count() && same_nodes(groups.members[static_cast<std::size_t>(group)], fabric, leaf, other);
  };
  const auto is_path = [&] {
    return e.kind == Kind::uplink && ((is_leaf(e.index, fault.a) && is_leaf(e.other, fault.b)) ||
                                      (is_leaf(e.index, fault.b) && is_leaf(e.other, fault.a)));
  };
  switch (fault.part) {
    case Part::none: return false;
    case Part::nic:
    case Part::receive: return e == Element{Kind::nic, fault.a, fault.b};
    case Part::leaf: return e.kind == Kind::switch_ && is_leaf(e.index, fault.a);
    case Part::leaf_uplinks:
      // With two leaves, a slow leaf looks like a slow path between them.
      if (two_leaves) return e.kind == Kind::uplink && groups.count() == 2;
      return e.kind == Kind::switch_ && is_leaf(e.index, fault.a);
    case Part::path: return is_path() || (two_leaves && e.kind == Kind::uplink && groups.count() == 2);
    case Part::spine: return e.kind == Kind::spine;
    case Part::rail: return e == Element{Kind::rail, fault.a, 0};
    case Part::leaf_rail: return e.kind == Kind::leaf_rail && is_leaf(e.index, fault.a) && e.other == fault.b;
  }
  return false;
}

TEST(FabricTest, ANicThatIsSlowInOneDirectionIsNamedWithIt) {
  Fabric fabric({.nodes = 16, .by_hash = false}, {.part = Part::receive, .a = 5, .b = 0, .factor = 0.6}, 1);
  const LinkReport report = blame_links({.nodes = 16}, [&](const Round& round) { return fabric.measure(round); });
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings.front().element, (Element{Element::Kind::nic, 5, 0}));
  EXPECT_NE(report.findings.front().evidence.find("what it receives is slow"), std::string::npos)
      << report.findings.front().evidence;
}

/// Where in a fabric of this shape a fault may be; `below(n)` draws.
template <class Below>
Fabric::Fault fault_of(Part part, const Fabric::Shape& shape, const Fabric& healthy, const Below& below) {
  const int leaves = (shape.nodes + shape.leaf - 1) / shape.leaf;
  Fabric::Fault fault{.part = part, .factor = 0.5 + 0.01 * below(36)};
  switch (part) {
    case Part::nic:
    case Part::receive:
      fault.a = below(shape.nodes);
      fault.b = below(shape.rails);
      break;
    case Part::leaf_rail:
      fault.a = below(leaves);
      fault.b = below(shape.rails);
      break;
    case Part::path:
      fault.a = below(leaves - 1);
      fault.b = fault.a + 1 + below(leaves - fault.a - 1);
      break;
    case Part::spine: fault.a = below(healthy.uplinks()); break;
    case Part::rail: fault.a = below(shape.rails); break;
    default: fault.a = below(leaves);
  }
  return fault;
}

Cluster cluster_of(const Fabric::Shape& shape, const Fabric& fabric, bool told) {
  Cluster cluster{.nodes = shape.nodes, .rails = shape.rails};
  if (!told) return cluster;
  cluster.switch_of = fabric.leaves();
  const int leaves = (shape.nodes + shape.leaf - 1) / shape.leaf;
  for (int leaf = 0; leaf < leaves; ++leaf) cluster.switches.push_back(fmt::format("leaf{}", leaf));
  return cluster;
}

/// Whether a finding accuses somebody who has a part in one of the faults, as the nodes of a slow leaf have.
bool is_of(const Finding& finding, const Fabric::Fault& fault, const Fabric& fabric, const Cluster& cluster) {
  using Kind = Element::Kind;
  const Element& e = finding.element;
  if (fault.part == Part::leaf || fault.part == Part::leaf_uplinks) {
    const Groups groups = groups_of(cluster);
    const auto of_leaf = [&](int group) {
      return group < groups.count() && same_nodes(groups.members[static_cast<std::size_t>(group)], fabric, fault.a);
    };
    return e.kind == Kind::uplink && (of_leaf(e.index) || of_leaf(e.other));
  }
  return false;
}

TEST(FabricTest, PairsWhoseFlowsAlwaysCollideAreToldAndNobodyIsAccused) {
  std::string accused;
  int collisions = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    for (const int rails : {1, 2, 4}) {
      for (const bool told : {false, true}) {
        const Fabric::Shape shape{.nodes = 16, .rails = rails, .leaf = 8, .by_address = true};
        Fabric fabric(shape, Fabric::Fault{}, seed * 77);
        Cluster cluster = cluster_of(shape, fabric, told);
        const LinkReport report = blame_links(cluster, [&](const Round& round) { return fabric.measure(round); });
        for (const Finding& f : report.findings) {
          collisions += f.kind == Finding::Kind::collision ? 1 : 0;
          if (f.accuses())
            accused += fmt::format("seed {}, {} rails{}: {}\n", seed, rails, told ? ", told" : "", f.evidence);
        }
      }
    }
  }
  EXPECT_EQ(accused, "");
  EXPECT_GT(collisions, 0) << "they are told, not left out";
}

TEST(FabricTest, OfTwoFaultsAtOnceOneIsNamedAndNobodyElseIsAccused) {
  constexpr std::uint64_t kPairSeeds = 2;
  struct Count {
    int all = 0, both = 0, one = 0, accused = 0;
    int told_of_one = 0, told_of_both = 0;  // that more is slow, where one of them is named, or both are
  };
  std::map<std::string, Count> table;
  Count total;
  std::string missed;
  for (std::uint64_t seed = 1; seed <= kPairSeeds; ++seed) {
    std::uint64_t mix = seed * 7'000'003;
    for (const Fabric::Shape& shape : shapes()) {
      const int leaves = (shape.nodes + shape.leaf - 1) / shape.leaf;
      for (const auto& [first, second] : {std::pair{Part::nic, Part::nic},
                                          {Part::nic, Part::receive},
                                          {Part::nic, Part::leaf},
                                          {Part::nic, Part::path},
                                          {Part::leaf, Part::path}}) {
        if (leaves == 2 && second != Part::nic && second != Part::receive && first != Part::nic) continue;
        for (const bool told : {false, true}) {
          const auto below = [&](int n) {
            return static_cast<int>(split_mixed(++mix) % static_cast<std::uint64_t>(n));
          };
          const Fabric healthy(shape, Fabric::Fault{}, mix);
          const Fabric::Fault a = fault_of(first, shape, healthy, below);
          Fabric::Fault b = fault_of(second, shape, healthy, below);
          if (a.a == b.a && first != Part::leaf) b.a = (b.a + 1) % (second == Part::path ? leaves - 1 : shape.nodes);
          if (second == Part::leaf) b.a %= leaves;
          if (second == Part::path) b.b = std::max(b.b, b.a + 1);
          Fabric fabric(shape, std::vector{a, b}, mix);
          Cluster cluster = cluster_of(shape, fabric, told);
          const LinkReport report = blame_links(cluster, [&](const Round& round) { return fabric.measure(round); });
          if (!report.inferred.empty()) cluster.switch_of = report.inferred;
          const int other_a = second == Part::nic || second == Part::receive ? b.a : -1;
          const int other_b = first == Part::nic ? a.a : -1;
          bool found_a = false, found_b = false;
          int accused = 0;
          std::string found;
          for (const Finding& f : report.findings) {
            if (!f.accuses()) continue;
            const bool is_a = names(f, a, fabric, cluster, leaves == 2, other_a);
            const bool is_b = names(f, b, fabric, cluster, leaves == 2, other_b);
            found_a = found_a || is_a;
            found_b = found_b || is_b;
            if (!is_a && !is_b && !is_of(f, a, fabric, cluster) && !is_of(f, b, fabric, cluster)) ++accused;
            found += f.evidence + "\n";
          }
          for (Count* count : {&table[fmt::format("{} and {}, {}", name_of_part(first), name_of_part(second),
                                                  told ? "told" : "not told")],
                               &total}) {
            ++count->all;
            count->both += found_a && found_b ? 1 : 0;
            count->one += found_a != found_b ? 1 : 0;
            count->accused += accused;
            count->told_of_one += report.remainder && found_a != found_b ? 1 : 0;
            count->told_of_both += report.remainder && found_a && found_b ? 1 : 0;
          }
          if ((!found_a && !found_b) || accused > 0 || (report.remainder && found_a && found_b)) {
            if (report.remainder) found += report.remainder->sentence + "\n";
            missed += fmt::format(
                "seed {}: {} of {} nodes, {} rails, leaves of {}, {}:1: {} {} {} by {:.0f} %, {} {} {} by {:.0f} "
                "%{}\n{}",
                seed, name_of_kind(shape.kind), shape.nodes, shape.rails, shape.leaf, shape.taper, name_of_part(first),
                a.a, a.b, 100 * (1 - a.factor), name_of_part(second), b.a, b.b, 100 * (1 - b.factor),
                told ? ", told" : "", found);
          }
        }
      }
    }
  }
  for (const auto& [what, count] : table) {
    fmt::print("{:50} both {:3} of {:3}, one {}, of which {} say that more is slow, {} others accused\n", what,
               count.both, count.all, count.one, count.told_of_one, count.accused);
  }
  fmt::print(
      "{} clusters with two faults: both named {}, one {}, of which {} say that more is slow, {} others accused\n",
      total.all, total.both, total.one, total.told_of_one, total.accused);
  EXPECT_EQ(total.accused, 0) << missed;
  EXPECT_EQ(total.both + total.one, total.all) << missed;
  EXPECT_EQ(total.told_of_both, 0) << "nothing remains if both are named\n" << missed;
  EXPECT_GE(total.told_of_one, 10)
      << "of those in which the smaller fault is 8 % or more below what the larger one leaves";
}

TEST(FabricTest, FaultsAreNamedAtTheirLevelAndNobodyElseIsAccusedToldOrNot) {
  struct Count {
    int all = 0, named = 0, accused = 0, transient = 0, remainders = 0;
  };
  std::map<std::string, Count> table;
  Count total;
  std::string missed;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::uint64_t mix = seed * 1'000'003;
    for (const Fabric::Shape& shape : shapes()) {
      for (const Part part : faults_of(shape)) {
        for (const bool told : {false, true}) {
          const auto below = [&](int n) {
            return static_cast<int>(split_mixed(++mix) % static_cast<std::uint64_t>(n));
          };
          const int leaves = (shape.nodes + shape.leaf - 1) / shape.leaf;
          const Fabric healthy(shape, Fabric::Fault{}, mix);
          const Fabric::Fault fault = fault_of(part, shape, healthy, below);
          Fabric fabric(shape, fault, mix);
          Cluster cluster = cluster_of(shape, fabric, told);
          const LinkReport report = blame_links(cluster, [&](const Round& round) { return fabric.measure(round); });
          if (!report.inferred.empty()) cluster.switch_of = report.inferred;
          bool named = part == Part::none;
          std::string found;
          Count now{.all = 1};
          for (const Finding& f : report.findings) {
            const bool right = names(f, fault, fabric, cluster, leaves == 2);
            named = named || (right && f.accuses());
            if (!right && f.accuses()) ++now.accused;
            if (!right && !f.accuses()) ++now.transient;
            found += f.evidence + "\n";
          }
          now.named = named ? 1 : 0;
          now.remainders = report.remainder ? 1 : 0;
          if (report.remainder) found += report.remainder->sentence + "\n";
          for (Count* count : {&table[fmt::format("{}, {}", name_of_part(part), told ? "told" : "not told")], &total}) {
            count->all += now.all;
            count->named += now.named;
            count->accused += now.accused;
            count->transient += now.transient;
            count->remainders += now.remainders;
          }
          if (!named || now.accused > 0 || now.transient > 0 || now.remainders > 0) {
            missed +=
                fmt::format("seed {}: {} of {} nodes, {} rails, leaves of {}, {}:1{}{}: {} {} {} by {:.0f} %{}\n{}",
                            seed, name_of_kind(shape.kind), shape.nodes, shape.rails, shape.leaf, shape.taper,
                            shape.by_hash ? ", by hash" : "", shape.shuffled ? ", shuffled" : "", name_of_part(part),
                            fault.a, fault.b, 100 * (1 - fault.factor), told ? ", told" : "", found);
          }
        }
      }
    }
  }
  for (const auto& [what, count] : table) {
    fmt::print("{:40} {:4} of {:4}, {} others accused, {} transient\n", what, count.named, count.all, count.accused,
               count.transient);
    EXPECT_GE(count.named, 0.9 * count.all) << what;
  }
  fmt::print("{} clusters, {} right, {} others accused, {} transient\n", total.all, total.named, total.accused,
             total.transient);
  EXPECT_EQ(total.accused, 0) << missed;
  EXPECT_EQ(total.remainders, 0) << "a single fault explains all that is slow\n" << missed;
  EXPECT_LE(total.transient, 0.01 * total.all) << missed;
  EXPECT_GE(total.named, 0.95 * total.all) << missed;
}

}  // namespace
}  // namespace fsdpbench::accept
