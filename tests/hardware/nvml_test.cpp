#include "hardware/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hardware/fake_nvml/fake_nvml.h"

namespace fsdpbench::hardware {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Nvml, AMissingLibraryIsOneSentence) {
  std::string why;
  EXPECT_EQ(Nvml::open(why, "libno-such-nvml.so.1"), nullptr);
  EXPECT_THAT(why, HasSubstr("libno-such-nvml.so.1"));
  EXPECT_EQ(why.back(), '.');
  EXPECT_EQ(why.find('\n'), std::string::npos);
}

TEST(Nvml, ALibraryThatDoesNotStartIsOneSentence) {
  fake_nvml::set_gpus(1);
  fake_nvml::fail("nvmlInit_v2", 9);
  std::string why;
  EXPECT_EQ(Nvml::open(why), nullptr);
  EXPECT_THAT(why, HasSubstr("Driver Not Loaded"));
  EXPECT_EQ(fake_nvml::users(), 0);
}

TEST(Nvml, IsEndedAsOftenAsBegun) {
  fake_nvml::set_gpus(1);
  std::string why;
  {
    const auto first = Nvml::open(why);
    const auto second = Nvml::open(why);
    EXPECT_EQ(fake_nvml::users(), 2);
  }
  EXPECT_EQ(fake_nvml::users(), 0);
}

TEST(Nvml, GpusAreFoundByNumberAndPlace) {
  fake_nvml::set_gpus(3);
  std::string why;
  const auto nvml = Nvml::open(why);
  ASSERT_NE(nvml, nullptr) << why;
  EXPECT_EQ(nvml->gpus(), 3);
  EXPECT_EQ(nvml->driver_version(), "580.95.05");
  EXPECT_EQ(NvmlGpu(nvml, nvml->gpu(2)).place(), "0000:03:00.0");
  EXPECT_EQ(nvml->gpu_at("0000:03:00.0", why), nvml->gpu(2));
  EXPECT_EQ(nvml->gpu_at("0000:09:00.0", why), nullptr);
  EXPECT_THAT(why, HasSubstr("0000:09:00.0"));
  EXPECT_THAT(why, HasSubstr("Not Found"));
}

TEST(Nvml, WhatIsNotToldIsAbsentAndNeverZero) {
  fake_nvml::set_gpus(1);
  fake_nvml::fail("nvmlDeviceGetPowerUsage", 3);
  fake_nvml::fail("nvmlDeviceGetEccMode", 3);
  fake_nvml::fail("nvmlDeviceGetTotalEccErrors", 3);
  std::string why;
  const auto nvml = Nvml::open(why);
  const NvmlGpu gpu(nvml, nvml->gpu(0));
  const GpuSample sample = gpu.sample(7);
  EXPECT_EQ(sample.time_ns, 7);
  EXPECT_EQ(sample.sm_mhz, 1755);
  EXPECT_FALSE(sample.power_mw.has_value());
  EXPECT_EQ(sample.pcie_width, 16);
  EXPECT_FALSE(gpu.limits().ecc.has_value());
  EXPECT_EQ(gpu.limits().sm_mhz, 1980);
  EXPECT_FALSE(gpu.errors().ecc_corrected.has_value());
  EXPECT_FALSE(gpu.errors().nvlink_replays.has_value()) << "it has no links";
  EXPECT_FALSE(gpu.is_lost());
}

TEST(Nvml, ErrorsOfLinksAreSummed) {
  fake_nvml::set_gpus(2);
  fake_nvml::change(0, [](fake_nvml::Gpu& gpu) {
    gpu.links = {1, 1, -1};
    gpu.replays = 2;
    gpu.crc = 5;
  });
  std::string why;
  const auto nvml = Nvml::open(why);
  const NvmlGpu gpu(nvml, nvml->gpu(0));
  EXPECT_EQ(gpu.errors().nvlink_replays, 6u);
  EXPECT_EQ(gpu.errors().nvlink_crc, 15u);
  EXPECT_EQ(gpu.errors().nvlink_recoveries, 0u);
  const std::vector<NvmlGpu::Link> links = gpu.active_links();
  ASSERT_EQ(links.size(), 3u);
  EXPECT_EQ(links[0].place, "0000:02:00.0");
  EXPECT_FALSE(links[1].to_switch);
  EXPECT_TRUE(links[2].to_switch);
}

TEST(Nvml, AGpuThatIsLostSaysSo) {
  fake_nvml::set_gpus(1);
  fake_nvml::change(0, [](fake_nvml::Gpu& gpu) { gpu.lost = true; });
  std::string why;
  const auto nvml = Nvml::open(why);
  const NvmlGpu gpu(nvml, nvml->gpu(0));
  EXPECT_THAT(gpu.name(), IsEmpty());
  EXPECT_TRUE(gpu.is_lost());
}

}  // namespace
}  // namespace fsdpbench::hardware
