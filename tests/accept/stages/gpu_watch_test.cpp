#include "accept/stages/gpu_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "acceptance_cases.h"

namespace fsdpbench::app {
namespace {

using accept::Element;
using accept::Judgement;
using accept::Verdict;
using ::testing::HasSubstr;

/// A GPU that was watched for ten samples, in so many of which it throttled.
std::optional<WatchedGpu> gpu_that_throttled(int samples, ClockLimits why = bit(ClockLimit::hardware_thermal)) {
  GpuHealth health;
  health.limits.pcie_width = 16;
  for (int i = 0; i < 10; ++i) {
    GpuSample& sample = health.samples.emplace_back();
    sample.sm_mhz = i < samples ? 990 : 1755;
    sample.limits = i < samples ? why : 0;
    sample.pcie_width = 16;
  }
  return watched_gpu(health);
}

TEST(AcceptanceGpus, AThrottledGpuIsNamedAsTheReasonOfASlowDevice) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({{{Element::Kind::gpu, 3, 0}, accept::Fault::Kind::slow, 0.7}});
  for (int rank = 0; rank < 8; ++rank) m.gpus.push_back(gpu_that_throttled(rank == 3 ? 9 : 0));
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_EQ(report.verdict, Verdict::fail);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings.front().element.index, 3);
  EXPECT_THAT(report.findings.front().evidence,
              HasSubstr("its GPU throttled (hardware thermal slowdown) in 90 % of the samples, at 990 MHz"));
  EXPECT_THAT(report.findings.front().check, HasSubstr("cooling"));
  const Judgement* const gpu = judgement(report, "GPU", Verdict::fail);
  ASSERT_NE(gpu, nullptr);
  EXPECT_THAT(gpu->sentence, HasSubstr("rank 3 on node"));
}

TEST(AcceptanceGpus, HealthyOnesPassAndThoseNobodyKnowsAreUnrated) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  m.gpus.assign(8, gpu_that_throttled(0));
  EXPECT_NE(judgement(judge_acceptance(wanted(), m, &trial), "GPU", Verdict::pass), nullptr);
  GpuHealth unknown;
  unknown.unknown_because = "There is no library.";
  m.gpus.assign(8, watched_gpu(unknown));
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  const Judgement* const unrated = judgement(report, "GPU", Verdict::unrated);
  ASSERT_NE(unrated, nullptr);
  EXPECT_THAT(unrated->sentence, HasSubstr("There is no library"));
  EXPECT_EQ(report.verdict, Verdict::pass);
}

TEST(AcceptanceGpus, WhatHappensDuringTheStepsIsAddedToWhatWasSeenBefore) {
  std::vector<std::optional<WatchedGpu>> seen{gpu_that_throttled(0), gpu_that_throttled(0), std::nullopt};
  GpuHealth hot, broken;
  hot.samples.resize(10);
  for (GpuSample& sample : hot.samples) sample.sm_mhz = 900, sample.limits = bit(ClockLimit::hardware_thermal);
  broken.samples.resize(10);
  broken.xids = {{1, 79}};
  EXPECT_EQ(judge_gpus(seen, {"a", "a", "a"}).front().verdict, Verdict::pass);
  add_watched(seen, {hot, broken, std::nullopt});
  add_watched(seen, {std::nullopt, broken, std::nullopt});  // a stage in which nothing else was seen
  const std::vector<Judgement> all = judge_gpus(seen, {"a", "a", "a"});
  ASSERT_EQ(all.size(), 2U) << "the complaint once";
  EXPECT_EQ(all[0].verdict, Verdict::fail);
  EXPECT_THAT(all[0].sentence,
              HasSubstr("rank 0 on a throttled (hardware thermal slowdown) in 100 % of the samples, at 900"));
  EXPECT_EQ(all[1].sentence, "the GPU of rank 1 on a reported Xid 79 (the GPU has fallen off the bus)");
  EXPECT_FALSE(seen[2].has_value()) << "a rank without a GPU";
}

TEST(AcceptanceGpus, AnErrorFailsAndAShortThrottlingIsInconclusive) {
  GpuHealth ill;
  ill.samples.resize(100);
  ill.samples[7].limits = bit(ClockLimit::power_brake);
  ill.xids = {{1, 74}};
  const std::vector<Judgement> all = judge_gpus({std::nullopt, watched_gpu(ill)}, {"a", "b"});
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].verdict, Verdict::fail);
  EXPECT_EQ(all[0].sentence, "the GPU of rank 1 on b reported Xid 74 (NVLink error)");
  EXPECT_EQ(all[1].verdict, Verdict::inconclusive);
  EXPECT_THAT(all[1].sentence, HasSubstr("power brake"));
  EXPECT_TRUE(judge_gpus({std::nullopt, std::nullopt}, {"a", "b"}).empty()) << "CPU ranks";
}

TEST(AcceptanceGpus, WhatTravelsComesBack) {
  for (const std::optional<WatchedGpu>& sent : {gpu_that_throttled(4), watched_gpu(GpuHealth{})}) {
    const std::string text = message_of(*sent);
    EXPECT_EQ(message_of(read_messages<WatchedGpu>({text}).front()), text);
  }
}

TEST(AcceptanceGpus, SettingsAreFactsOfTheInventory) {
  GpuHealth health;
  health.limits = {.sm_mhz = 1980, .power_mw = 700'000, .pcie_width = 16, .pcie_generation = 5, .ecc = true};
  AcceptanceMeasurements m = measured({});
  for (int rank = 0; rank < 8; ++rank) {
    if (rank == 5) health.limits.power_mw = 500'000;
    for (auto& setting : gpu_settings(health)) m.fingerprints[static_cast<std::size_t>(rank)].push_back(setting);
    health.limits.power_mw = 700'000;
  }
  const AcceptanceReport report = judge_acceptance(wanted(), m, nullptr);
  const Judgement* const differs = judgement(report, "inventory", Verdict::fail);
  ASSERT_NE(differs, nullptr);
  EXPECT_THAT(differs->sentence,
              HasSubstr("rank 5 on node has GPU power limit = '500 W', and 7 of 8 ranks have '700 W'"));
}

TEST(AcceptanceGpus, EachSettingThatIsToldIsAFact) {
  using Facts = std::vector<std::pair<std::string, std::string>>;
  GpuHealth health;
  EXPECT_EQ(gpu_settings(health), Facts{});
  health.limits = {.sm_mhz = 1980, .power_mw = 700'500, .pcie_width = 16, .pcie_generation = 5, .ecc = false};
  EXPECT_EQ(gpu_settings(health), (Facts{{"GPU clock at most", "1980 MHz"},
                                         {"GPU power limit", "700 W"},
                                         {"GPU PCIe at most", "16 lanes, generation 5"},
                                         {"GPU ECC", "off"}}));
  health.limits = {.sm_mhz = {}, .power_mw = {}, .pcie_width = 16, .pcie_generation = {}, .ecc = true};
  EXPECT_EQ(gpu_settings(health), (Facts{{"GPU ECC", "on"}}));
}

TEST(AcceptanceGpus, ClocksAreOfSamplesThatThrottledOrWorked) {
  GpuHealth health;
  const auto sample = [&](std::optional<std::int32_t> mhz, std::optional<ClockLimits> limits) {
    GpuSample& s = health.samples.emplace_back();
    s.sm_mhz = mhz;
    s.limits = limits;
  };
  EXPECT_FALSE(watched_gpu(std::nullopt));
  EXPECT_EQ(watched_gpu(health)->unknown_because, "It was never sampled.");
  sample(300, bit(ClockLimit::idle));
  sample(1700, 0);
  sample(1900, bit(ClockLimit::power_cap));
  sample(1800, std::nullopt);
  sample(std::nullopt, 0);
  WatchedGpu gpu = *watched_gpu(health);
  EXPECT_EQ(gpu.sm_mhz, 1800) << "of 1700, 1800 and 1900: nobody is slow for having nothing to do";
  EXPECT_EQ(gpu.throttled, 0);
  EXPECT_EQ(gpu.limits, bit(ClockLimit::power_cap));
  sample(1000, bit(ClockLimit::hardware_thermal));
  sample(900, bit(ClockLimit::hardware_thermal));
  sample(1100, bit(ClockLimit::hardware_thermal));
  sample(1300, bit(ClockLimit::hardware_thermal));
  sample(1200, bit(ClockLimit::hardware_thermal));
  gpu = *watched_gpu(health);
  EXPECT_EQ(gpu.sm_mhz, 1100);
  EXPECT_DOUBLE_EQ(gpu.throttled, 0.5);
  EXPECT_EQ(gpu.limits, bit(ClockLimit::power_cap) | bit(ClockLimit::hardware_thermal));
}

TEST(AcceptanceGpus, OfTwoStagesTheWorseCounts) {
  GpuHealth brief, hot, unknown;
  brief.samples.resize(10);
  brief.samples[0].sm_mhz = 1500;
  brief.samples[0].limits = bit(ClockLimit::hardware_thermal);
  hot.samples.resize(10);
  for (int i = 0; i < 3; ++i) {
    hot.samples[static_cast<std::size_t>(i)].sm_mhz = 1000;
    hot.samples[static_cast<std::size_t>(i)].limits = bit(ClockLimit::power_brake);
  }
  std::vector<std::optional<WatchedGpu>> seen;
  add_watched(seen, {brief, unknown});
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0]->sm_mhz, 1500);
  EXPECT_FALSE(seen[1]->unknown_because.empty());
  add_watched(seen, {hot});
  EXPECT_EQ(seen[0]->sm_mhz, 1000);
  EXPECT_DOUBLE_EQ(seen[0]->throttled, 0.3);
  EXPECT_EQ(seen[0]->limits, bit(ClockLimit::hardware_thermal) | bit(ClockLimit::power_brake));
  add_watched(seen, {brief, hot});
  EXPECT_EQ(seen[0]->sm_mhz, 1000) << "it throttled less";
  for (GpuSample& sample : hot.samples) sample.sm_mhz = 800;
  add_watched(seen, {hot});
  EXPECT_EQ(seen[0]->sm_mhz, 1000) << "it throttled as much";
  EXPECT_EQ(seen[1]->unknown_because, "");
  EXPECT_DOUBLE_EQ(seen[1]->throttled, 0.3);
  add_watched(seen, {unknown, unknown});
  EXPECT_EQ(seen[0]->unknown_because, "") << "it was watched before";
}

TEST(AcceptanceGpus, ATwentiethOfTheTimeIsShortly) {
  const auto judged = [](double throttled, std::optional<std::int32_t> mhz = 990) {
    WatchedGpu gpu;
    gpu.limits = bit(ClockLimit::hardware_thermal) | bit(ClockLimit::power_cap);
    gpu.throttled = throttled;
    gpu.sm_mhz = mhz;
    return judge_gpus({std::nullopt, gpu}, {"a", "b"});
  };
  EXPECT_EQ(judged(0.05).front().verdict, Verdict::inconclusive);
  EXPECT_EQ(judged(0.051).front().verdict, Verdict::fail);
  EXPECT_EQ(judged(0.25).front().sentence,
            "the GPU of rank 1 on b throttled (hardware thermal slowdown) in 25 % of the samples, at 990 MHz");
  EXPECT_EQ(judged(0.25, std::nullopt).front().sentence,
            "the GPU of rank 1 on b throttled (hardware thermal slowdown) in 25 % of the samples");
  EXPECT_EQ(judged(0.25).front().part, "rank 1");
  EXPECT_EQ(judged(0.25).front().ranks, std::vector{1});
  EXPECT_EQ(judged(0.25).size(), 1U);
  WatchedGpu good, unknown, other;
  unknown.unknown_because = "There is no library.";
  other.unknown_because = "Another reason.";
  EXPECT_EQ(judge_gpus({good, good}, {"a", "b"}).front().sentence, "2 GPUs throttled nowhere and reported no error");
  const std::vector<Judgement> some = judge_gpus({good, unknown, other}, {"a", "b", "c"});
  ASSERT_EQ(some.size(), 1U) << "it is not known of all";
  EXPECT_EQ(some[0].sentence, "rank 1: There is no library");
  EXPECT_EQ(some[0].verdict, Verdict::unrated);
}

TEST(AcceptanceGpus, AFindingSaysWhatHeldItsGpuDown) {
  WatchedGpu hot, capped, good;
  hot.limits = bit(ClockLimit::hardware_thermal);
  hot.throttled = 0.5;
  capped.limits = bit(ClockLimit::power_cap);
  capped.sm_mhz = 1200;
  const auto named = [&](accept::Element element, const std::vector<std::optional<WatchedGpu>>& gpus) {
    std::vector<accept::Finding> findings(1);
    findings[0].element = element;
    findings[0].evidence = "it is slow";
    findings[0].check = "clocks";
    name_throttling(findings, gpus);
    return findings[0].evidence + "; " + findings[0].check;
  };
  const accept::Element second{Element::Kind::gpu, 1, 0};
  EXPECT_EQ(named(second, {hot, capped}), "it is slow; its GPU met its power limit, at 1200 MHz; clocks");
  EXPECT_EQ(named(second, {capped, hot}),
            "it is slow; its GPU throttled (hardware thermal slowdown) in 50 % of the samples; its cooling and power: "
            "fans, inlet air, power supplies, the chassis' power limit");
  EXPECT_EQ(named(second, {hot, good}), "it is slow; clocks");
  EXPECT_EQ(named(second, {hot}), "it is slow; clocks");
  EXPECT_EQ(named(second, {hot, std::nullopt}), "it is slow; clocks");
  EXPECT_EQ(named({Element::Kind::node, 1, 0}, {capped, hot}), "it is slow; clocks");
}

}  // namespace
}  // namespace fsdpbench::app
