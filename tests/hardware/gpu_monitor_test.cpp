#include "hardware/gpu_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "hardware/fake_nvml/fake_nvml.h"

namespace fsdpbench::hardware {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr GpuMonitor::Pace kFast{std::chrono::microseconds{200}, 4096};

/// Waits for what must come, and gives up on what hangs.
void until(const std::function<bool()>& is_so) {
  const std::int64_t deadline_ns = now_ns() + 60'000'000'000;
  while (!is_so()) {
    ASSERT_LT(now_ns(), deadline_ns);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

void until_read_again(int gpu) {
  const int before = fake_nvml::clock_reads(gpu);
  until([&] { return fake_nvml::clock_reads(gpu) > before + 1; });
}

TEST(GpuMonitor, SamplesOnItsOwnThreadInOrderOfTime) {
  fake_nvml::set_gpus(2);
  fake_nvml::change(1, [](fake_nvml::Gpu& gpu) { gpu.sm_mhz = 1410; });
  const std::int64_t begin = now_ns();  // its thread may have sampled often before this one goes on
  const GpuMonitor monitor("0000:02:00.0", kFast);
  until([&] { return monitor.health().samples.size() >= 5; });
  const GpuHealth health = monitor.health();
  EXPECT_THAT(health.unknown_because, IsEmpty());
  EXPECT_EQ(health.limits.power_mw, 700'000);
  EXPECT_EQ(health.limits.ecc, true);
  for (std::size_t i = 0; i < health.samples.size(); ++i) {
    EXPECT_EQ(health.samples[i].sm_mhz, 1410);
    if (i > 0) {
      EXPECT_GE(health.samples[i].time_ns, health.samples[i - 1].until_ns);
    }
  }
  EXPECT_LE(health.samples.back().time_ns, now_ns());
  EXPECT_GE(health.samples.front().time_ns, begin);
  EXPECT_EQ(fake_nvml::clock_reads(0), 0) << "only its own GPU";
}

TEST(GpuMonitor, MissingLibraryAndUnknownGpuAreSentences) {
  EXPECT_THAT(GpuMonitor("0000:01:00.0", kFast, "libno-such-nvml.so.1").health().unknown_because,
              HasSubstr("libno-such-nvml.so.1"));
  fake_nvml::set_gpus(1);
  EXPECT_THAT(GpuMonitor("0000:aa:00.0", kFast).health().unknown_because, HasSubstr("0000:aa:00.0"));
  EXPECT_EQ(fake_nvml::users(), 0);
}

TEST(GpuMonitor, MemoryIsBoundedAndNothingThatWasSeenIsLost) {
  fake_nvml::set_gpus(1);
  constexpr std::size_t kMost = 16;
  const GpuMonitor monitor("0000:01:00.0", {std::chrono::microseconds{20}, kMost});
  until_read_again(0);
  fake_nvml::change(0, [](fake_nvml::Gpu& gpu) {
    gpu.limits = bit(ClockLimit::hardware_thermal);
    gpu.sm_mhz = 345;
    gpu.temperature_c = 95;
  });
  until_read_again(0);
  fake_nvml::change(0, [](fake_nvml::Gpu& gpu) { gpu = fake_nvml::Gpu{}; });
  until([] { return fake_nvml::clock_reads(0) > 4 * static_cast<int>(kMost); });
  const GpuHealth health = monitor.health();
  EXPECT_LT(health.samples.size(), kMost);
  int hot = 0;
  for (const GpuSample& sample : health.samples) {
    EXPECT_LE(sample.time_ns, sample.until_ns);
    if ((sample.limits.value_or(0) & bit(ClockLimit::hardware_thermal)) == 0) continue;
    ++hot;
    EXPECT_EQ(sample.sm_mhz, 345);
    EXPECT_EQ(sample.temperature_c, 95);
  }
  EXPECT_GE(hot, 1);
}

TEST(GpuMonitor, CountsWhatGrewWhileItWatched) {
  fake_nvml::set_gpus(1);
  fake_nvml::change(0, [](fake_nvml::Gpu& gpu) {
    gpu.links = {-1, -1};
    gpu.replays = 100;
  });
  const GpuMonitor monitor("0000:01:00.0", kFast);
  EXPECT_EQ(monitor.health().errors.ecc_corrected, 0u) << "those before do not count";
  fake_nvml::change(0, [](fake_nvml::Gpu& gpu) {
    gpu.ecc_corrected += 2;
    gpu.ecc_uncorrected += 1;
    gpu.replays += 4;
  });
  const GpuErrors errors = monitor.health().errors;
  EXPECT_EQ(errors.ecc_corrected, 2u);
  EXPECT_EQ(errors.ecc_uncorrected, 1u);
  EXPECT_EQ(errors.nvlink_replays, 8u);
  EXPECT_EQ(errors.nvlink_recoveries, 0u);
}

TEST(GpuMonitor, XidsAreKeptUpToABound) {
  fake_nvml::set_gpus(1);
  const GpuMonitor monitor("0000:01:00.0", kFast);
  fake_nvml::change(0, [](fake_nvml::Gpu& gpu) { gpu.xids.assign(100, 74); });
  until([&] { return monitor.health().xids.size() + static_cast<std::size_t>(monitor.health().xids_left_out) >= 100; });
  const GpuHealth health = monitor.health();
  EXPECT_EQ(health.xids.size(), 64u);
  EXPECT_EQ(health.xids_left_out, 36);
  EXPECT_EQ(health.xids.front().code, 74u);
}

TEST(GpuMonitor, WithoutEventsItStillSamples) {
  fake_nvml::set_gpus(1);
  fake_nvml::fail("nvmlDeviceRegisterEvents", 3);
  const GpuMonitor monitor("0000:01:00.0", kFast);
  until([&] { return !monitor.health().samples.empty(); });
  EXPECT_EQ(fake_nvml::open_event_sets(), 0);
}

TEST(GpuMonitor, ALostGpuEndsTheWatchAndKeepsWhatWasSeen) {
  fake_nvml::set_gpus(1);
  const GpuMonitor monitor("0000:01:00.0", kFast);
  until([&] { return monitor.health().samples.size() >= 2; });
  fake_nvml::change(0, [](fake_nvml::Gpu& gpu) { gpu.lost = true; });
  until([&] { return !monitor.health().unknown_because.empty(); });
  const GpuHealth health = monitor.health();
  EXPECT_THAT(health.unknown_because, HasSubstr("lost"));
  EXPECT_GE(health.samples.size(), 2u);
  EXPECT_EQ(health.samples.back().sm_mhz, 1755);
  EXPECT_FALSE(health.errors.ecc_corrected.has_value());
}

TEST(GpuMonitor, EndsWithNothingLeftOpen) {
  fake_nvml::set_gpus(1);
  { const GpuMonitor monitor("0000:01:00.0", {std::chrono::hours{1}, 16}); }
  EXPECT_EQ(fake_nvml::open_event_sets(), 0);
  EXPECT_EQ(fake_nvml::users(), 0);
}

}  // namespace
}  // namespace fsdpbench::hardware
