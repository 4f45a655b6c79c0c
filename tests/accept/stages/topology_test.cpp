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

/// A device below these bridges of a socket; `nic`: of that name.
NodeTopology::Device device_at(const std::string& busid, const std::string& socket,
                               const std::vector<std::string>& bridges, const std::string& nic = "") {
  NodeTopology::Device device;
  device.busid = busid;
  device.socket = socket;
  device.bridges = bridges;
  device.nic = nic;
  return device;
}

TEST(NodeTopologyTest, TheNearestNicSharesTheMostBridgesAndThoseAsNearTakeTurns) {
  NodeTopology t;
  t.devices = {device_at("gpu0", "a", {"h", "s1"}),       device_at("gpu1", "a", {"h", "s1"}),
               device_at("gpu2", "a", {"h", "s2"}),       device_at("gpu3", "b", {"h", "s1"}),
               device_at("n0", "a", {"h", "s1"}, "mlx0"), device_at("n1", "a", {"h", "s1"}, "mlx1"),
               device_at("n2", "a", {"h", "s3"}, "mlx2")};
  EXPECT_EQ(t.nearest_nic(*t.find("gpu0")), "mlx0");
  EXPECT_EQ(t.nearest_nic(*t.find("GPU1")), "mlx1") << "the second of two with the same two";
  EXPECT_EQ(t.nearest_nic(*t.find("gpu2")), "mlx2") << "the third of three that are as far";
  EXPECT_EQ(t.nearest_nic(*t.find("gpu3")), "") << "bridges of another socket are others";
  EXPECT_EQ(t.nearest_nic(*t.find("n0")), "mlx1") << "another one";
  EXPECT_EQ(t.find("gpu4"), nullptr);
}

TEST(NodeTopologyTest, NamesOfDriversAreBetterThanThoseOfInterfaces) {
  const auto nic = [](const std::vector<std::string>& names) {
    std::string text = "<topology><object type=\"PCIDev\" pci_busid=\"0:1.0\">";
    for (const std::string& name : names) {
      text += "<object type=\"OSDev\" name=\"" + name + "\" osdev_type=\"" + (name == "sda" ? "0" : "2") + "\"/>";
    }
    return read_node_topology(text + "</object></topology>", "x").devices.at(0).nic;
  };
  EXPECT_EQ(nic({"eth0", "mlx5_0"}), "mlx5_0");
  EXPECT_EQ(nic({"mlx5_0", "eth0"}), "mlx5_0");
  EXPECT_EQ(nic({"ib0", "mlx5_0"}), "mlx5_0");
  EXPECT_EQ(nic({"eth0", "eth1"}), "eth0");
  EXPECT_EQ(nic({"sda"}), "");
}

TEST(NodeTopologyTest, OfElementsOnlyTheOpenOnesAreAbove) {
  const NodeTopology t = read_node_topology(
      "<!-- <pci busid=\"9:9.9\"> --><system><cpu numaid=\"0\"><pci busid=\"0:1.0\"/><nic/></cpu>\n"
      "<cpu numaid=\"1\"\n arch=\"x\"><pci class=\"a\" busid=\"0:2.0\"><pci busid=\"0:3.0\"><gpu/></pci></pci></cpu>"
      "<pci busid=\"0:4.0\"></pci></system>",
      "x");
  ASSERT_EQ(t.devices.size(), 4U);
  const auto place = [&](const char* busid) {
    const NodeTopology::Device* const device = t.find(busid);
    std::string text = device->socket + ":";
    for (const std::string& bridge : device->bridges) text += " " + bridge;
    return text;
  };
  EXPECT_EQ(place("0:1.0"), "NUMA node 0:");
  EXPECT_EQ(place("0:2.0"), "NUMA node 1:");
  EXPECT_EQ(place("0:3.0"), "NUMA node 1: 0:2.0");
  EXPECT_EQ(place("0:4.0"), ":");
  EXPECT_THROW(read_node_topology("<other><pci busid=\"0:1.0\"/></other>", "x"), ConfigError);
}

TEST(NodeTopologyTest, SocketsAreToldApartOnlyWhereAllRanksOfANodeHaveOne) {
  const NodeTopology topology = read_node_topology(nccl_xml(), "nccl.xml");
  accept::Cluster known = four_gpus();
  known.devices[2] = "PCI 0000:99:00.0";
  EXPECT_EQ(tell_node(topology, "f", known), "f: 3 of 4 ranks are below 2 sockets, 3 have a NIC near them");
  EXPECT_THAT(known.switch_of, IsEmpty());
  EXPECT_THAT(known.adapters, ElementsAre("mlx5_0", "mlx5_1", "", "mlx5_3"));
  accept::Cluster one = four_gpus();
  one.gpus_per_node = 2;
  one.devices.resize(2);
  one.adapters = {"told", ""};
  EXPECT_EQ(tell_node(topology, "f", one), "f: 2 of 2 ranks are below 1 sockets, 2 have a NIC near them");
  EXPECT_THAT(one.adapters, ElementsAre("told", "mlx5_1"));
  EXPECT_THAT(one.switch_of, IsEmpty()) << "one socket separates nobody";
  accept::Cluster nodes = four_gpus();
  nodes.nodes = 2;
  nodes.gpus_per_node = 2;
  tell_node(topology, "f", nodes);
  EXPECT_THAT(nodes.switch_of, IsEmpty()) << "between nodes switches count";
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
