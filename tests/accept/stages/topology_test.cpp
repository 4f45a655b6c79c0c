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

/// Two sockets with two PCIe switches each; below each a GPU and a NIC, as NCCL dumps them.
std::string nccl_xml() {
  std::string text = "<system version=\"1\">\n";
  for (int i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i);
    if (i % 2 == 0) text += "  <cpu host_hash=\"0x1\" numaid=\"" + std::to_string(i / 2) + "\" arch=\"x86_64\">\n";
    text += "    <pci busid=\"0000:" + n +
            "0:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n" +
            "      <pci busid=\"0000:" + n + "F:00.0\" class=\"0x030200\"><gpu dev=\"" + n + "\" sm=\"90\" rank=\"" +
            n + "\" gdr=\"1\"/></pci>\n      <pci busid=\"0000:" + n +
            "5:00.0\" class=\"0x020700\"><nic><net name=\"mlx5_" + n +
            "\" dev=\"0\" port=\"1\"/></nic></pci>\n    </pci>\n";
    if (i % 2 == 1) text += "  </cpu>\n";
  }
  return text + "</system>\n";
}

accept::Cluster four_gpus() {
  accept::Cluster cluster{.nodes = 1, .gpus_per_node = 4};
  cluster.hosts.assign(4, "n01");
  for (int i = 0; i < 4; ++i) cluster.devices.push_back("PCI 0000:" + std::to_string(i) + "f:00.0");
  return cluster;
}

TEST(NodeTopologyTest, NcclsFileNamesSocketAndNicOfEachGpu) {
  accept::Cluster cluster = four_gpus();
  EXPECT_THAT(tell_node(read_node_topology(nccl_xml(), "nccl.xml"), "nccl.xml", cluster),
              HasSubstr("nccl.xml: 4 of 4 ranks are below 2 sockets, 4 have a NIC near them"));
  EXPECT_THAT(cluster.adapters, ElementsAre("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"));
  EXPECT_THAT(cluster.switch_of, ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(accept::name_of({accept::Element::Kind::switch_, 1, 0}, cluster), "NUMA node 1");
  EXPECT_EQ(accept::name_of({accept::Element::Kind::uplink, 0, 1}, cluster),
            "the path between NUMA node 0 and NUMA node 1");
}

TEST(NodeTopologyTest, HwlocsFileDoes) {
  const std::string text = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0">
    <object type="Package" os_index="0">
      <object type="Bridge" gp_index="1" bridge_type="0-1" depth="0" bridge_pci="0000:[00-1f]">
        <object type="Bridge" gp_index="2" bridge_type="1-1" depth="1" pci_busid="0000:00:01.0">
          <object type="PCIDev" pci_busid="0000:0f:00.0" pci_type="0302"/>
          <object type="PCIDev" pci_busid="0000:05:00.0" pci_type="0207">
            <object type="OSDev" name="ibp5s0" osdev_type="2"/>
            <object type="OSDev" name="mlx5_7" osdev_type="3"/>
          </object>
        </object>
      </object>
    </object>
  </object>
</topology>)";
  const NodeTopology topology = read_node_topology(text, "hwloc.xml");
  const NodeTopology::Device* const gpu = topology.find("0000:0F:00.0");
  ASSERT_NE(gpu, nullptr);
  EXPECT_EQ(gpu->socket, "socket 0");
  EXPECT_EQ(topology.nearest_nic(*gpu), "mlx5_7");
}

TEST(NodeTopologyTest, WhatIsNeitherIsSaidToBeNeither) {
  EXPECT_THROW(read_node_topology("SwitchName=s0 Nodes=n[1-4]", "topology.conf"), ConfigError);
  Topology told;
  told.node = "<system version=\"1\"/>";
  told.node_source = "empty.xml";
  EXPECT_THROW(check_topology(told), ConfigError);
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
