#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "hardware/fake_nvml/fake_nvml.h"
#include "hardware/host_topology.h"

namespace fsdpbench::hardware {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// 2 sockets of 4 cores with 2 threads each; on each 2 GPUs and an InfiniBand card behind one PCIe switch; an Ethernet
/// card on a host bridge of its own at the second. The GPUs are at the places of the stand-in's.
std::shared_ptr<const HostTopology> two_sockets() {
  return HostTopology::from_xml(FSDPBENCH_TOPOLOGIES "/two_sockets_four_gpus.xml");
}
constexpr const char* kGpus[] = {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"};
constexpr const char* kCards[] = {"0000:0e:00.0", "0000:0f:00.0"};
constexpr const char* kEthernet = "0000:81:00.0";

Processors from_to(int first, int last) {
  Processors all;
  for (int i = first; i <= last; ++i) all.push_back(i);
  return all;
}

TEST(Processors, AreWrittenAsRanges) {
  EXPECT_EQ(to_text({}), "");
  EXPECT_EQ(to_text({3}), "3");
  EXPECT_EQ(to_text({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

TEST(HostTopology, ReadsNodesCoresAndDevices) {
  const auto host = two_sockets();
  ASSERT_NE(host, nullptr);
  EXPECT_THAT(host->numa_nodes(), ElementsAre(from_to(0, 7), from_to(8, 15)));
  EXPECT_THAT(host->cores(), SizeIs(8));
  EXPECT_THAT(host->gpus(), ElementsAre(kGpus[0], kGpus[1], kGpus[2], kGpus[3]));
  std::set<std::string> nics;
  for (const HostTopology::Nic& nic : host->nics()) nics.insert(nic.name + " " + nic.place);
  EXPECT_THAT(nics, ElementsAre("eth0 0000:81:00.0", "mlx5_0 0000:0e:00.0", "mlx5_1 0000:0f:00.0"));
  EXPECT_EQ(host->near(kGpus[1]), from_to(0, 7));
  EXPECT_EQ(host->near(kGpus[2]), from_to(8, 15));
  EXPECT_THAT(host->near("0000:aa:00.0"), IsEmpty());
  EXPECT_EQ(host->numa_node_of(from_to(9, 10)), 1);
  EXPECT_EQ(host->numa_node_of(from_to(7, 8)), std::nullopt);
}

TEST(HostTopology, CountsWhatThereIs) {
  const auto host = two_sockets();
  ASSERT_NE(host, nullptr);
  const HostTopology::Counts counts = host->counts();
  EXPECT_EQ(counts.packages, 2);
  EXPECT_EQ(counts.cores, 8);
  EXPECT_EQ(counts.numa_nodes, 2);
  EXPECT_EQ(counts.l3_bytes, 0);  // the file has no caches
  EXPECT_EQ(counts.model, "");
  EXPECT_GT(HostTopology::from_synthetic("package:1 l3:1 core:2 pu:1")->counts().l3_bytes, 0);
}

TEST(HostTopology, PathsAreThoseOfNvidiasTool) {
  const auto host = two_sockets();
  ASSERT_NE(host, nullptr);
  EXPECT_EQ(host->path(kGpus[0], kGpus[1]), BusPath::switch_);
  EXPECT_EQ(host->path(kGpus[0], kCards[0]), BusPath::switch_);
  EXPECT_EQ(host->path(kGpus[0], kGpus[2]), BusPath::system);
  EXPECT_EQ(host->path(kGpus[2], kEthernet), BusPath::numa_node);
  EXPECT_EQ(host->path(kGpus[0], "0000:aa:00.0"), std::nullopt);
}

TEST(HostTopology, WhatDescribesNoneIsNull) {
  EXPECT_EQ(HostTopology::from_synthetic("no such thing"), nullptr);
  EXPECT_EQ(HostTopology::from_xml("/no/such/file.xml"), nullptr);
}

TEST(TopologyMatrix, WithoutNvmlItIsTheBus) {
  const TopologyMatrix matrix = topology_matrix(*two_sockets(), nullptr);
  ASSERT_THAT(matrix.devices, SizeIs(7));
  EXPECT_EQ(matrix.devices[0].name, "GPU 0");
  EXPECT_EQ(matrix.paths[0][0], "X");
  EXPECT_EQ(matrix.paths[0][1], "PIX");
  EXPECT_EQ(matrix.paths[0][2], "SYS");
  for (std::size_t i = 0; i < 7; ++i) {
    for (std::size_t j = 0; j < 7; ++j) EXPECT_EQ(matrix.paths[i][j], matrix.paths[j][i]);
  }
  EXPECT_EQ(paths_text(matrix, kGpus[0]), "PIX to 1 GPU; SYS to 2 GPUs; mlx5_0 PIX, mlx5_1 SYS, eth0 SYS");
  EXPECT_THAT(paths_text(matrix, "0000:aa:00.0"), IsEmpty());
}

TEST(TopologyMatrix, NvlinksAreCountedDirectAndThroughSwitches) {
  fake_nvml::set_gpus(4);
  fake_nvml::change(0, [](fake_nvml::Gpu& gpu) { gpu.links = {1, 1, 2}; });
  fake_nvml::change(1, [](fake_nvml::Gpu& gpu) { gpu.links = {0, 0}; });
  fake_nvml::change(2, [](fake_nvml::Gpu& gpu) { gpu.links = {0}; });
  fake_nvml::change(3, [](fake_nvml::Gpu& gpu) { gpu.numa_node = 1; });
  std::string why;
  TopologyMatrix matrix = topology_matrix(*two_sockets(), Nvml::open(why));
  EXPECT_EQ(matrix.paths[0][1], "NV2");
  EXPECT_EQ(matrix.paths[2][0], "NV1");
  EXPECT_EQ(matrix.paths[1][2], "PHB") << "as NVML says";
  EXPECT_EQ(matrix.paths[0][3], "SYS");
  EXPECT_EQ(matrix.paths[0][4], "PIX") << "network cards: as hwloc says";
  for (int i = 0; i < 4; ++i) fake_nvml::change(i, [](fake_nvml::Gpu& gpu) { gpu.links.assign(18, -1); });
  matrix = topology_matrix(*two_sockets(), Nvml::open(why));
  EXPECT_EQ(matrix.paths[3][0], "NV18");
  EXPECT_EQ(paths_text(matrix, kGpus[3]), "NV18 to 3 GPUs; mlx5_0 SYS, mlx5_1 PIX, eth0 NODE");
}

TEST(ProcessorsOfRank, NearItsGpu) {
  const auto host = two_sockets();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(processors_of_rank(*host, Binding::numa, {rank, 4, kGpus[rank]}),
              rank < 2 ? from_to(0, 7) : from_to(8, 15));
  }
  EXPECT_THAT(processors_of_rank(*host, Binding::numa, {0, 4, "0000:aa:00.0"}), IsEmpty());
  const auto one_node = HostTopology::from_synthetic("node:1 core:4 pu:1");
  EXPECT_EQ(processors_of_rank(*one_node, Binding::numa, {0, 4, "0000:aa:00.0"}), from_to(0, 3));
}

TEST(ProcessorsOfRank, CpuRanksShareNodesEqually) {
  const auto host = HostTopology::from_synthetic("node:4 core:2 pu:1");
  const auto of = [&](int rank, int ranks) { return processors_of_rank(*host, Binding::numa, {rank, ranks, {}}); };
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(of(rank, 8), from_to(rank / 2 * 2, rank / 2 * 2 + 1)) << rank;
  EXPECT_EQ(of(0, 2), from_to(0, 1));
  EXPECT_EQ(of(1, 2), from_to(4, 5)) << "far apart: more memory bandwidth for each";
  EXPECT_EQ(processors_of_rank(*host, Binding::none, {1, 2, {}}), from_to(0, 7));
}

TEST(ProcessorsOfRank, CoresArePartedWithTheirThreads) {
  const auto host = HostTopology::from_synthetic("node:2 core:4 pu:2");
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    std::set<int> seen;
    std::size_t count = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Processors mine = processors_of_rank(*host, Binding::cores, {rank, ranks, {}});
      EXPECT_GE(mine.size(), 2U);
      EXPECT_EQ(mine.size() % 2, 0U) << "both threads of a core";
      seen.insert(mine.begin(), mine.end());
      count += mine.size();
    }
    EXPECT_EQ(count, 16U) << ranks << ": nobody shares";
    EXPECT_THAT(seen, SizeIs(16)) << ranks << ": none is left idle";
  }
}

TEST(ProcessorsOfRank, MoreRanksThanCoresShareThem) {
  const auto host = HostTopology::from_synthetic("core:2 pu:1");
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(processors_of_rank(*host, Binding::cores, {rank, 4, {}}), Processors{rank / 2});
  }
}

}  // namespace
}  // namespace fsdpbench::hardware
