#include "accept/stages/measure_acceptance.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "accept/element.h"
#include "engine/setup.h"
#include "launch/addresses.h"
#include "support/tiny_run.h"

namespace fsdpbench::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

accept::Cluster four_nodes() {
  accept::Cluster cluster{.nodes = 4, .gpus_per_node = 2, .rails = 2};
  cluster.hosts = {"n01", "n01", "n02", "n02", "n09.cluster", "n09.cluster", "n10", "n10"};
  return cluster;
}

TEST(TopologyTest, TheProfileTellsHowManyNodesASwitchHas) {
  accept::Cluster cluster = four_nodes();
  const std::vector<std::string> leaves(8, "leaf1");
  EXPECT_EQ(tell_switches(2, leaves, cluster), "the profile: 2 nodes on each, in the order of their ranks");
  EXPECT_EQ(cluster.nodes_per_switch, 2);
  EXPECT_THAT(cluster.switch_of, IsEmpty());
  EXPECT_EQ(tell_switches(1, leaves, cluster), "the profile: 1 nodes on each, in the order of their ranks");
}

TEST(TopologyTest, SlurmTellsEachTaskItsSwitch) {
  EXPECT_EQ(leaf_of_address("top.leaf2.n09", "switch.switch.node"), "leaf2");
  EXPECT_EQ(leaf_of_address("n09", "node"), "");
  EXPECT_EQ(leaf_of_address("", ""), "");
  accept::Cluster cluster = four_nodes();
  tell_switches(0, {"leaf1", "leaf1", "leaf1", "leaf1", "leaf2", "leaf2", "leaf2", "leaf2"}, cluster);
  EXPECT_THAT(cluster.switch_of, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(cluster.switches, ElementsAre("leaf1", "leaf2"));
  EXPECT_EQ(accept::name_of({accept::Element::Kind::switch_, 1, 0}, cluster), "switch leaf2");
  accept::Cluster untold = four_nodes();
  EXPECT_THAT(tell_switches(0, std::vector<std::string>(8), untold), HasSubstr("nobody told"));
  EXPECT_THAT(untold.switch_of, IsEmpty());
}

TEST(TopologyTest, SwitchesOfSomeNodesAreNone) {
  accept::Cluster cluster = four_nodes();
  std::vector<std::string> leaves{"a", "a", "b", "b", "b", "b", "", "a"};
  EXPECT_EQ(tell_switches(0, leaves, cluster),
            "nobody told of switches: groups of nodes are inferred where pairs show them");
  leaves[6] = "a";
  EXPECT_EQ(tell_switches(0, leaves, cluster), "Slurm (SLURM_TOPOLOGY_ADDR): 2 switches");
  EXPECT_THAT(cluster.switch_of, ElementsAre(0, 1, 1, 0));
  leaves.resize(6);
  EXPECT_THAT(tell_switches(0, leaves, cluster), HasSubstr("nobody told"));
  EXPECT_EQ(leaf_of_address("s0.n1", "switch.node.more"), "s0");
  EXPECT_EQ(leaf_of_address("s0.n1.more", "switch.switch"), "n1");
}

TEST(TopologyTest, NodesAreWhatFollowsEachOtherWithAsManyRanksEach) {
  const auto shape = [](const std::vector<std::string>& hosts) {
    const accept::Cluster c = cluster_of(hosts);
    return std::vector{c.nodes, c.gpus_per_node, c.rails};
  };
  EXPECT_THAT(shape({"a", "a", "b", "b", "c", "c"}), ElementsAre(3, 2, 2));
  EXPECT_THAT(shape({"a", "b"}), ElementsAre(2, 1, 1));
  EXPECT_THAT(shape({"a", "a", "a"}), ElementsAre(1, 3, 1));
  EXPECT_THAT(shape({"a"}), ElementsAre(1, 1, 1));
  EXPECT_THAT(shape({"a", "a", "b"}), ElementsAre(1, 3, 1)) << "not as many each";
  EXPECT_THAT(shape({"a", "b", "a", "b"}), ElementsAre(1, 4, 1)) << "not node by node";
}

TEST(TopologyTest, ARankTellsItsGpuWithItsPlaceAndTheNearestNic) {
  EXPECT_EQ(nearest_adapter("NV18 to 7 GPUs; mlx5_0 PIX, mlx5_1 SYS"), "mlx5_0");
  EXPECT_EQ(nearest_adapter("mlx5_2 SYS, mlx5_3 PXB, mlx5_4 PIX"), "mlx5_4") << "a switch is nearer than two";
  EXPECT_EQ(nearest_adapter("mlx5_3 PXB"), "mlx5_3");
  EXPECT_EQ(nearest_adapter("mlx5_3 NODE"), "");
  GpuHealth health;
  health.limits.sm_mhz = 1980;
  ASSERT_EQ(setenv("SLURM_TOPOLOGY_ADDR", "s1.n7", 1), 0);
  ASSERT_EQ(setenv("SLURM_TOPOLOGY_ADDR_PATTERN", "switch.node", 1), 0);
  ASSERT_EQ(setenv("NCCL_IB_HCA", "mlx5_0", 1), 0);
  ASSERT_EQ(setenv("NCCL_DEBUG", "INFO", 1), 0);
  ASSERT_EQ(setenv("NCCL_HOSTID", "7", 1), 0);
  ASSERT_EQ(setenv("NCCL_TOPO_DUMP_FILE", "t.xml", 1), 0);
  const RankFacts own = own_facts(
      {{"GPU", "NVIDIA H100, PCI 0000:4e:00.0"}, {"GPU UUID", "GPU-1b"}, {"timer", "x"}, {"topology", "mlx5_9 PIX"}},
      health);
  const RankFacts without = own_facts({{"GPU", "A100"}}, std::nullopt);
  for (const char* name : {"SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN", "NCCL_IB_HCA", "NCCL_DEBUG",
                           "NCCL_HOSTID", "NCCL_TOPO_DUMP_FILE"}) {
    ASSERT_EQ(unsetenv(name), 0);
  }
  EXPECT_EQ(own.host, launch::node_name());
  EXPECT_EQ(own.device, "PCI 0000:4e:00.0");
  EXPECT_EQ(own.uuid, "GPU-1b");
  EXPECT_EQ(own.adapter, "mlx5_9");
  EXPECT_EQ(own.leaf, "s1");
  EXPECT_EQ(without.device, "");
  using ::testing::Contains;
  using ::testing::Key;
  using ::testing::Not;
  using ::testing::Pair;
  for (const char* name : {"program", "processor", "hardware threads", "kernel", "fmt"}) {
    EXPECT_THAT(own.print, Contains(Pair(name, Not("")))) << name;
  }
  EXPECT_THAT(own.print, Contains(Pair("GPU", "NVIDIA H100")));
  EXPECT_THAT(own.print, Not(Contains(Key("timer"))));
  EXPECT_THAT(own.print, Contains(Pair("GPU clock at most", "1980 MHz")));
  EXPECT_THAT(own.print, Contains(Pair("variable NCCL_IB_HCA", "mlx5_0")));
  for (const char* name : {"variable NCCL_DEBUG", "variable NCCL_HOSTID", "variable NCCL_TOPO_DUMP_FILE",
                           "variable SLURM_TOPOLOGY_ADDR", "variable PATH"}) {
    EXPECT_THAT(own.print, Not(Contains(Key(name)))) << name;
  }
  EXPECT_THAT(without.print, Contains(Pair("GPU", "A100")));
  EXPECT_THAT(without.print, Not(Contains(Key("GPU clock at most"))));
  EXPECT_THAT(own_facts({}, std::nullopt).print, Not(Contains(Key("variable NCCL_IB_HCA"))));
}

TEST(TopologyTest, APairIsAsFastAsItsSlowerDirectionAndItsSlowestRail) {
  // 4 MB in 1000 us are 4 GB/s.
  const accept::PairRate rate = pair_rate({2, 5}, 4'000'000, {{1000, 2000, 2500}, {4000, 800, 1600}});
  EXPECT_EQ(rate.pair, (accept::Pairing{2, 5}));
  EXPECT_THAT(rate.one_way, ElementsAre(2, 1));
  EXPECT_THAT(rate.both_ways, ElementsAre(3.2, 5));
  EXPECT_DOUBLE_EQ(rate.to_b, 1);
  EXPECT_DOUBLE_EQ(rate.to_a, 2);
}

TEST(TopologyTest, TheLadderHasTheSmallestTheUsualTheLargestAndAnOddMessage) {
  const engine::Setup setup = engine::set_up(testing::settled(testing::tiny_decoder()));
  std::map<std::int64_t, int> shards;  // elements of a rank, rounded up
  for (const plan::Unit& unit : setup.plan.units) ++shards[(unit.layout.gathered_numel() + 3) / 4];
  shards.erase(0);
  const std::int64_t usual = std::ranges::max_element(shards, {}, [](const auto& s) { return s.second; })->first;
  const std::int64_t most = shards.rbegin()->first;
  const std::set<std::int64_t> counts{shards.begin()->first, usual, most, most / 2 | 1};
  std::vector<std::string> expected, told;
  for (const std::int64_t count : counts) {
    for (const char* op : {"all_gather", "reduce_scatter"}) expected.push_back(fmt::format("{} {} 4", op, count));
  }
  for (const Message& m : ladder_of(setup)) told.push_back(fmt::format("{} {} {}", to_string(m.op), m.count, m.ranks));
  EXPECT_EQ(told, expected);
}

TEST(TopologyTest, AFullAcceptanceRepeatsMore) {
  config::Acceptance wanted;
  wanted.matrix = 77;
  wanted.memory_mib = 3;
  const AcceptanceEffort brief = effort_of(wanted, false), full = effort_of(wanted, true);
  EXPECT_EQ(brief.matrix, 77);
  EXPECT_EQ(brief.memory_bytes, 3 << 20);
  EXPECT_EQ(brief.iterations, 20);
  EXPECT_EQ(brief.arm_rounds, 8);
  EXPECT_EQ(full.iterations, 200);
  EXPECT_EQ(full.arm_rounds, 30);
}

}  // namespace
}  // namespace fsdpbench::app
