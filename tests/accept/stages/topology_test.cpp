#include "accept/stages/measure_acceptance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "accept/element.h"

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

}  // namespace
}  // namespace fsdpbench::app
