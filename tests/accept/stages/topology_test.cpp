#include "accept/stages/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "accept/element.h"
#include "base/error.h"

namespace fsdpbench::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Topology of_switches(std::string text, std::string source) {
  Topology told;
  told.switches = std::move(text);
  told.source = std::move(source);
  return told;
}

accept::Cluster four_nodes() {
  accept::Cluster cluster{.nodes = 4, .gpus_per_node = 2, .rails = 2};
  cluster.hosts = {"n01", "n01", "n02", "n02", "n09.cluster", "n09.cluster", "n10", "n10"};
  return cluster;
}

TEST(TopologyTest, SlurmsFileNamesTheLeafOfEachNode) {
  accept::Cluster cluster = four_nodes();
  const std::string text =
      "# two leaves, one spine\nSwitchName=leaf1 Nodes=n[01-08]\nswitchname=leaf2 nodes=n[09-16]\nSwitchName=top "
      "Switches=leaf[1-2]\n";
  EXPECT_THAT(tell_switches(of_switches(text, "topology.conf"), {}, cluster), HasSubstr("topology.conf: 2 switches"));
  EXPECT_THAT(cluster.switch_of, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(cluster.switches, ElementsAre("leaf1", "leaf2"));
  EXPECT_EQ(accept::name_of({accept::Element::Kind::switch_, 1, 0}, cluster), "switch leaf2");
}

TEST(TopologyTest, ScontrolPrintsAllNodesOfASpineToo) {
  accept::Cluster cluster = four_nodes();
  const std::string text =
      "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[01-16] Switches=leaf[1-2]\n"
      "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[01-08]\nSwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[09-16]\n";
  tell_switches(of_switches(text, "scontrol"), {}, cluster);
  EXPECT_THAT(cluster.switches, ElementsAre("leaf1", "leaf2"));
}

TEST(TopologyTest, TheProfileTellsHowManyNodesASwitchHas) {
  accept::Cluster cluster = four_nodes();
  Topology told = of_switches("SwitchName=leaf1 Nodes=n[01-16]", "topology.conf");
  told.nodes_per_switch = 2;
  EXPECT_EQ(tell_switches(told, {}, cluster), "the profile: 2 nodes on each, in the order of their ranks");
  EXPECT_EQ(cluster.nodes_per_switch, 2);
  EXPECT_THAT(cluster.switch_of, IsEmpty());
}

TEST(TopologyTest, OfALineOnlyWholeKeysBeforeACommentCount) {
  accept::Cluster cluster = four_nodes();
  const std::string text =
      "SwitchName=x # Nodes=n[01-16]\nSwitchNames=y Nodes=n[01-16]\nNodes=n[01-16]\nSwitchName=z Nodes=\n"
      "SwitchName=wide Nodes=n[01-16]\nSwitchName=narrow Nodes=n[01-04]\nSwitchName=later Nodes=n[01-04]\n";
  tell_switches(of_switches(text, "f"), {}, cluster);
  EXPECT_THAT(cluster.switches, ElementsAre("narrow", "wide"));
  EXPECT_THAT(cluster.switch_of, ElementsAre(0, 0, 1, 1));
}

TEST(TopologyTest, OneNodeOfKubernetesIsAListOfOne) {
  accept::Cluster cluster{.nodes = 1, .gpus_per_node = 1};
  cluster.hosts = {"other.cluster"};
  const std::string text =
      R"(  {"metadata": {"name": "n01", "labels": {"kubernetes.io/hostname": "other",
          "topology.kubernetes.io/rack": "r7"}}})";
  EXPECT_EQ(tell_switches(of_switches(text, "n.json"), {}, cluster), "n.json: 1 switches");
  EXPECT_THAT(cluster.switches, ElementsAre("r7"));
  cluster.hosts = {"third"};
  EXPECT_THAT(tell_switches(of_switches(text, "n.json"), {}, cluster), HasSubstr("n.json names no switch of third"));
}

TEST(TopologyTest, ANodeThatNobodyNamesLeavesSwitchesUnknown) {
  accept::Cluster cluster = four_nodes();
  EXPECT_THAT(tell_switches(of_switches("SwitchName=leaf1 Nodes=n[01-02]", "topology.conf"), {}, cluster),
              HasSubstr("topology.conf names no switch of n09"));
  EXPECT_THAT(cluster.switch_of, IsEmpty());
}

TEST(TopologyTest, LabelsOfKubernetesNameTheLeafOfEachNodeTheNarrowestFirst) {
  const std::string zone = R"("topology.kubernetes.io/zone": "here")";
  const auto node = [&](const std::string& name, const std::string& leaf) {
    return R"({"metadata": {"name": ")" + name + R"(", "labels": {)" + zone +
           (leaf.empty() ? "" : R"(, "network.topology.nvidia.com/leaf": ")" + leaf + '"') + "}}}";
  };
  accept::Cluster cluster = four_nodes();
  const std::string text = R"({"kind": "List", "items": [)" + node("n01", "s1") + "," + node("n02", "s1") + "," +
                           node("n09.cluster", "s2") + "," + node("n10", "s2") + "]}";
  EXPECT_THAT(tell_switches(of_switches(text, "nodes.json"), {}, cluster), HasSubstr("nodes.json: 2 switches"));
  EXPECT_THAT(cluster.switch_of, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(cluster.switches, ElementsAre("s1", "s2"));
  accept::Cluster zones = four_nodes();
  const std::string without =
      R"({"items": [)" + node("n01", "") + "," + node("n02", "") + "," + node("n09", "") + "," + node("n10", "") + "]}";
  tell_switches(of_switches(without, "nodes.json"), {}, zones);
  EXPECT_THAT(zones.switches, ElementsAre("here"));
  EXPECT_THROW(check_topology(of_switches("{\"items\": [", "cut.json")), ConfigError);
}

TEST(TopologyTest, SlurmTellsEachTaskItsSwitch) {
  EXPECT_EQ(leaf_of_address("top.leaf2.n09", "switch.switch.node"), "leaf2");
  EXPECT_EQ(leaf_of_address("n09", "node"), "");
  EXPECT_EQ(leaf_of_address("", ""), "");
  accept::Cluster cluster = four_nodes();
  tell_switches({}, {"leaf1", "leaf1", "leaf1", "leaf1", "leaf2", "leaf2", "leaf2", "leaf2"}, cluster);
  EXPECT_THAT(cluster.switch_of, ElementsAre(0, 0, 1, 1));
  accept::Cluster untold = four_nodes();
  EXPECT_THAT(tell_switches({}, std::vector<std::string>(8), untold), HasSubstr("nobody told"));
  EXPECT_THAT(untold.switch_of, IsEmpty());
}

}  // namespace
}  // namespace fsdpbench::app
