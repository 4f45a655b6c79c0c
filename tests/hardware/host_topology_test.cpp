#include <gtest/gtest.h>

#include "hardware/fake_nvml/fake_nvml.h"
#include "hardware/host_topology.h"

namespace fsdpbench::hardware {
namespace {

/// 2 sockets of 4 cores with 2 threads each; on each 2 GPUs and an InfiniBand card behind one PCIe switch; an Ethernet
/// card on a host bridge of its own at the second. The GPUs are at the places of the stand-in's.
std::shared_ptr<const HostTopology> two_sockets() {
  return HostTopology::from_xml(FSDPBENCH_TOPOLOGIES "/two_sockets_four_gpus.xml");
}
constexpr const char* kGpus[] = {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"};

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

TEST(HostTopology, WhatDescribesNoneIsNull) {
  EXPECT_EQ(HostTopology::from_synthetic("no such thing"), nullptr);
  EXPECT_EQ(HostTopology::from_xml("/no/such/file.xml"), nullptr);
}

TEST(PathsOfAGpu, WithoutNvmlAreThoseOfTheBus) {
  const auto host = two_sockets();
  ASSERT_NE(host, nullptr);
  EXPECT_EQ(host->paths_text(kGpus[0], nullptr), "PIX to 1 GPU; SYS to 2 GPUs; mlx5_0 PIX, mlx5_1 SYS, eth0 SYS");
  EXPECT_EQ(host->paths_text(kGpus[2], nullptr), "PIX to 1 GPU; SYS to 2 GPUs; mlx5_0 SYS, mlx5_1 PIX, eth0 NODE");
  EXPECT_EQ(host->paths_text("0000:aa:00.0", nullptr), "");
}

TEST(PathsOfAGpu, NvlinksAreCountedDirectAndThroughSwitches) {
  fake_nvml::set_gpus(4);
  fake_nvml::change(0, [](fake_nvml::Gpu& gpu) { gpu.links = {1, 1, 2}; });
  fake_nvml::change(1, [](fake_nvml::Gpu& gpu) { gpu.links = {0, 0}; });
  fake_nvml::change(2, [](fake_nvml::Gpu& gpu) { gpu.links = {0}; });
  fake_nvml::change(3, [](fake_nvml::Gpu& gpu) { gpu.numa_node = 1; });
  std::string why;
  const auto host = two_sockets();
  ASSERT_NE(host, nullptr);
  const auto paths = [&](int gpu) { return host->paths_text(kGpus[gpu], Nvml::open(why)); };
  // NVML says how GPUs reach each other, hwloc how network cards are reached.
  EXPECT_EQ(paths(0), "NV1 to 1 GPU; NV2 to 1 GPU; SYS to 1 GPU; mlx5_0 PIX, mlx5_1 SYS, eth0 SYS");
  EXPECT_EQ(paths(1), "NV2 to 1 GPU; PHB to 1 GPU; SYS to 1 GPU; mlx5_0 PIX, mlx5_1 SYS, eth0 SYS");
  for (int i = 0; i < 4; ++i) fake_nvml::change(i, [](fake_nvml::Gpu& gpu) { gpu.links.assign(18, -1); });
  EXPECT_EQ(paths(3), "NV18 to 3 GPUs; mlx5_0 SYS, mlx5_1 PIX, eth0 NODE");
}

}  // namespace
}  // namespace fsdpbench::hardware
