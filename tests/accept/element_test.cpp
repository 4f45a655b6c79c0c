#include "accept/element.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "accept/finding.h"

namespace fsdpbench::accept {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Findings, NameHostDeviceAndAdapterAndNoSwitchThatNobodyToldOf) {
  Cluster cluster{.nodes = 100, .gpus_per_node = 1};
  cluster.hosts.assign(100, "node");
  cluster.hosts[3] = "node7";
  cluster.devices.assign(100, "PCI 0000:0f:00.0");
  cluster.adapters.assign(100, "mlx5_2");
  EXPECT_EQ(name_of({Element::Kind::gpu, 3, 0}, cluster), "rank 3 (device 0 of node 3, node7, PCI 0000:0f:00.0)");
  EXPECT_EQ(name_of({Element::Kind::nic, 3, 0}, cluster), "NIC 0 (mlx5_2) of node 3 (node7)");
  EXPECT_EQ(name_of({Element::Kind::switch_, 1, 0}, cluster),
            "what nodes 10 to 19 (node to node) have in common above their NICs");
  cluster.nodes_per_switch = 25;
  EXPECT_EQ(name_of({Element::Kind::switch_, 1, 0}, cluster), "switch 1");
  EXPECT_EQ(name_of({Element::Kind::switch_, 3, 0}, {.nodes = 4, .nodes_per_switch = 1}), "switch 3");
}

TEST(Findings, EachPartHasItsNameItsPlaceAndWhatToCheck) {
  using Kind = Element::Kind;
  Cluster c{.nodes = 4, .gpus_per_node = 2, .rails = 2, .nodes_per_switch = 2};
  for (int rank = 0; rank < 8; ++rank) {
    c.hosts.push_back("h" + std::to_string(rank / 2));
    c.devices.push_back("PCI " + std::to_string(rank % 2));
    c.adapters.push_back("mlx" + std::to_string(rank % 2));
    c.uuids.push_back("GPU-" + std::to_string(rank));
  }
  struct Part {
    Element element;
    const char *name, *host, *device, *nic, *check;
  };
  for (const Part& part : std::initializer_list<Part>{
           {{Kind::gpu, 3, 0}, "rank 3 (device 1 of node 1, h1, PCI 1)", "h1", "PCI 1", "mlx1", "nvidia-smi -q"},
           {{Kind::node, 2, 0}, "node 2 (h2)", "h2", "PCI 0, PCI 1", "mlx0, mlx1", "CPU load"},
           {{Kind::nic, 1, 1}, "NIC 1 (mlx1) of node 1 (h1)", "h1", "", "mlx1", "cable and port"},
           {{Kind::link, 0, 3},
            "the link between node 0 (h0) and node 3 (h3)",
            "h0, h3",
            "PCI 0, PCI 1",
            "mlx0, mlx1",
            "both ports"},
           {{Kind::uplink, 0, 1},
            "the path between switch 0 and switch 1",
            "h0, h1, h2, h3",
            "PCI 0, PCI 1",
            "mlx0, mlx1",
            "between the two switches"},
           {{Kind::switch_, 1, 0}, "switch 1", "h2, h3", "PCI 0, PCI 1", "mlx0, mlx1", "its temperature"},
           {{Kind::leaf_rail, 1, 1},
            "rail 1 of switch 1",
            "h2, h3",
            "PCI 0, PCI 1",
            "mlx0, mlx1",
            "this rail of these"},
           {{Kind::rail, 1, 0},
            "rail 1 of all nodes",
            "h0, h1, h2, h3",
            "PCI 0, PCI 1",
            "mlx0, mlx1",
            "switches of this rail"},
           {{Kind::spine, 0, 0},
            "one of the paths that the switches choose among",
            "h0, h1, h2, h3",
            "PCI 0, PCI 1",
            "mlx0, mlx1",
            "spine"},
           {{Kind::fleet, 0, 0}, "the whole fleet", "h0, h1, h2, h3", "PCI 0, PCI 1", "mlx0, mlx1", "in common"}}) {
    EXPECT_EQ(name_of(part.element, c), part.name);
    const Place place = place_of(part.element, c);
    EXPECT_EQ(place.host, part.host) << part.name;
    EXPECT_EQ(place.device, part.device) << part.name;
    EXPECT_EQ(place.nic, part.nic) << part.name;
    EXPECT_THAT(next_check(part.element, c, SlowAt::work), HasSubstr(part.check)) << part.name;
  }
  EXPECT_EQ(place_of({Kind::gpu, 3, 0}, c).uuid, "GPU-3");
  c.nodes_per_switch = 0;
  c.switch_of = {0, 1, 0, 1};
  EXPECT_EQ(name_of({Kind::switch_, 1, 0}, c), "what nodes 1 (h1), 3 (h3) have in common above their NICs");
  EXPECT_THAT(next_check({Kind::switch_, 1, 0}, c, SlowAt::work), HasSubstr("leaf switch"));
  c.switch_of = {0, 0, 0, 1};
  EXPECT_EQ(name_of({Kind::switch_, 1, 0}, c), "what nodes 3 (h3) have in common above their NICs") << "of one node";
  c.switches = {"left", ""};
  EXPECT_EQ(name_of({Kind::switch_, 0, 0}, c), "switch left");
  EXPECT_EQ(name_of({Kind::switch_, 1, 0}, c), "switch 1");
  Cluster one{.nodes = 1, .gpus_per_node = 4, .on_processors = true};
  one.switch_of = {0, 0, 1, 1};
  EXPECT_EQ(name_of({Kind::switch_, 1, 0}, one), "what ranks 2 to 3 have in common");
  EXPECT_EQ(name_of({Kind::link, 1, 2}, one), "the link between rank 1 and rank 2");
  EXPECT_THAT(next_check({Kind::switch_, 1, 0}, one, SlowAt::work), HasSubstr("a socket, a PCIe switch"));
  EXPECT_THAT(next_check({Kind::link, 1, 2}, one, SlowAt::transfers), HasSubstr("NVLink"));
  EXPECT_THAT(next_check({Kind::gpu, 1, 0}, one, SlowAt::work), HasSubstr("control group"));
  EXPECT_EQ(place_of({Kind::nic, 0, 1}, one).nic, "NIC 1");
}

TEST(Findings, RanksOfEachPart) {
  using Kind = Element::Kind;
  const Cluster c{.nodes = 4, .gpus_per_node = 2, .rails = 2, .nodes_per_switch = 2};
  using Ranks = std::vector<int>;
  EXPECT_EQ(ranks_of_part({Kind::gpu, 5, 0}, c), (Ranks{5}));
  EXPECT_EQ(ranks_of_part({Kind::node, 3, 0}, c), (Ranks{6, 7}));
  EXPECT_EQ(ranks_of_part({Kind::nic, 2, 1}, c), (Ranks{5}));
  EXPECT_EQ(ranks_of_part({Kind::nic, 2, 3}, c), (Ranks{5})) << "two NICs a rank";
  EXPECT_EQ(ranks_of_part({Kind::link, 0, 3}, c), (Ranks{0, 1, 6, 7}));
  EXPECT_EQ(ranks_of_part({Kind::switch_, 1, 0}, c), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(ranks_of_part({Kind::leaf_rail, 0, 1}, c), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(ranks_of_part({Kind::uplink, 0, 1}, c), (Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
  for (const Kind kind : {Kind::rail, Kind::spine, Kind::fleet}) EXPECT_EQ(ranks_of_part({kind, 1, 0}, c), Ranks{});
  const Cluster one{.nodes = 1, .gpus_per_node = 4};
  EXPECT_EQ(ranks_of_part({Kind::link, 1, 3}, one), (Ranks{1, 3}));
}

TEST(Findings, ANicHasNoDeviceAndADeviceItsUuid) {
  Cluster c{.nodes = 2, .gpus_per_node = 2};
  c.hosts = {"a", "a", "b", "b"};
  c.devices = {"d0", "d1", "d2", "d3"};
  c.uuids = {"u0", "u1", "u2", "u3"};
  const Place nic = place_of({Element::Kind::nic, 1, 1}, c);
  EXPECT_EQ(nic.host, "b");
  EXPECT_EQ(nic.device, "");
  EXPECT_EQ(nic.uuid, "");
  EXPECT_EQ(nic.nic, "NIC 1");
  c.adapters = {"m0", "m1", "m2", "m3"};
  EXPECT_EQ(name_of({Element::Kind::nic, 1, 1}, c), "NIC 1 (m3) of node 1 (b)");
  EXPECT_EQ(place_of({Element::Kind::node, 1, 0}, c).uuid, "u2, u3");
  EXPECT_EQ(place_of(std::vector{0, 7}, c).device, "d0") << "of a rank that nobody knows there is no name";
}

TEST(Findings, WhatToCheckDependsOnWhatIsSlowAndWhere) {
  using Kind = Element::Kind;
  const auto check = [](Kind kind, SlowAt at, bool processors, int nodes, bool told = true) {
    Cluster c{.nodes = nodes, .gpus_per_node = 4, .nodes_per_switch = told ? 2 : 0, .on_processors = processors};
    return next_check({kind, 0, 1}, c, at);
  };
  EXPECT_EQ(check(Kind::gpu, SlowAt::transfers, true, 4),
            "its cable and switch port, its NIC's firmware and PCIe slot; within a host, who shares its memory");
  EXPECT_EQ(check(Kind::gpu, SlowAt::transfers, false, 4),
            "its NVLinks' state and error counters (nvidia-smi nvlink -s, -e), the switch port they lead to, its NIC's "
            "cable and firmware, and both their PCIe placement and width (nvidia-smi topo -m)");
  EXPECT_EQ(check(Kind::gpu, SlowAt::work, true, 4),
            "its clocks, power cap and cooling, limits of its control group, and what else runs there");
  EXPECT_EQ(check(Kind::gpu, SlowAt::work, false, 4),
            "its clocks, power cap, throttle reasons and ECC counters (nvidia-smi -q), and what else runs there");
  EXPECT_EQ(check(Kind::link, SlowAt::transfers, false, 1),
            "that NVLink's state and error counters, or the PCIe path that replaces it");
  EXPECT_EQ(check(Kind::link, SlowAt::transfers, false, 4),
            "both ports' duplex, error and pause counters, and the route between them");
  EXPECT_EQ(check(Kind::switch_, SlowAt::transfers, false, 4),
            "its temperature, port errors, pause frames, and failed uplinks");
  EXPECT_EQ(check(Kind::switch_, SlowAt::transfers, false, 4, false),
            "what these nodes share and others do not: leaf switch, its uplinks, a rack");
  EXPECT_EQ(check(Kind::switch_, SlowAt::transfers, false, 1),
            "what these ranks share and others do not: a socket, a PCIe switch, a memory");
}

TEST(Findings, OfManySomeAreNamed) {
  Cluster c{.nodes = 40, .gpus_per_node = 1};
  for (int node = 0; node < 40; ++node) {
    c.switch_of.push_back(node % 2);
    c.hosts.push_back("h" + std::to_string(node));
  }
  EXPECT_THAT(name_of({Element::Kind::switch_, 1, 0}, c),
              AllOf(HasSubstr("what nodes 1 (h1), 3 (h3), "), HasSubstr("31 (h31) and 4 more have in common")));
  c.switch_of.assign(40, 1);
  for (std::size_t i = 0; i < 16; ++i) c.switch_of[2 * i] = 0;  // all of these are named
  EXPECT_THAT(name_of({Element::Kind::switch_, 0, 0}, c),
              AllOf(HasSubstr("30 (h30) have in common"), Not(HasSubstr("more"))));
  EXPECT_EQ(place_of_all(c).host, "h0, h1, h2, h3, h4, h5, h6, h7 and 32 more");
  c.hosts.resize(8);
  EXPECT_EQ(place_of_all(c).host, "h0, h1, h2, h3, h4, h5, h6, h7");
  EXPECT_EQ(place_of(std::vector{2, 2, 5}, c).host, "h2, h5") << "each once";
}

TEST(Groups, AreSwitchesAsToldOrNeighboursWhereThereAreMany) {
  const auto members = [](const Cluster& cluster) { return groups_of(cluster).members; };
  using Members = std::vector<std::vector<int>>;
  EXPECT_EQ(members({.nodes = 4, .gpus_per_node = 8}), (Members{{0, 1, 2, 3}}));
  EXPECT_EQ(members({.nodes = 5, .gpus_per_node = 8, .nodes_per_switch = 2}), (Members{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(members({.nodes = 4, .gpus_per_node = 8, .nodes_per_switch = 4}), (Members{{0, 1, 2, 3}}));
  EXPECT_EQ(members({.nodes = 4, .nodes_per_switch = 2, .switch_of = {1, 0, 1, 0}}), (Members{{1, 3}, {0, 2}}));
  EXPECT_EQ(members({.nodes = 1, .gpus_per_node = 4, .nodes_per_switch = 2}), (Members{{0, 1, 2, 3}}));
  EXPECT_EQ(members({.nodes = 64}).size(), 1U);
  EXPECT_EQ(members({.nodes = 65}).size(), 8U) << "of nine";
  EXPECT_EQ(members({.nodes = 100, .nodes_per_switch = 100}).size(), 10U) << "one switch of all tells nothing apart";
  EXPECT_EQ(members({.nodes = 65}).front().size(), 9U);
  EXPECT_TRUE(groups_of({.nodes = 65}).same(0, 8));
  EXPECT_FALSE(groups_of({.nodes = 65}).same(8, 9));
}

}  // namespace
}  // namespace fsdpbench::accept
