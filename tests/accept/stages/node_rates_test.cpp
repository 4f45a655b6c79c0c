// What nodes carry beside the fabric, held against a profile: planted rates, and devices that copy.

#include "accept/stages/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "accept/stages/acceptance_report.h"
#include "accept/stages/measure_devices.h"
#include "acceptance_cases.h"
#include "runs/select_backend.h"

namespace fsdpbench::app {
namespace {

using accept::Judgement;
using accept::Verdict;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const std::vector<std::string> kHosts{"a", "a", "b", "b"};

config::Acceptance wanting(const std::string& figure, double value) {
  config::Acceptance w;
  w.references = {{.figure = figure, .value = value, .hop_us = 0, .ceiling = 0, .source = "a table"}};
  return w;
}

/// 9 rounds of 4 ranks, of which rank 2 has another value.
accept::DeviceRounds rounds_of(double each, double of_rank_2) {
  return accept::DeviceRounds(9, {each, each, of_rank_2, each});
}

/// GB/s of copies: 20 in memory, 50 to GPUs, 40 from them; launches take 10 us.
NodeRates healthy() {
  NodeRates rates;
  rates.has_gpus = true;
  rates.host_copy = rounds_of(20e9, 20e9);
  rates.to_device = rounds_of(50e9, 50e9);
  rates.from_device = rounds_of(40e9, 40e9);
  rates.launch_us = rounds_of(10, 10);
  return rates;
}

std::vector<Judgement> rated(const std::vector<Judgement>& all) {
  std::vector<Judgement> some;
  std::ranges::copy_if(all, std::back_inserter(some), [](const Judgement& j) { return j.verdict != Verdict::unrated; });
  return some;
}

struct NodeFault {
  const char* figure;
  double reference;
  void (*plant)(NodeRates& rates);
  const char* sentence;
};
const std::vector<NodeFault> kFaults{
    {"host_memory", 20, [](NodeRates& r) { r.host_copy = rounds_of(20e9, 10e9); }, "10 GB/s"},
    {"host_to_device", 50, [](NodeRates& r) { r.to_device = rounds_of(50e9, 12e9); }, "12 GB/s"},
    {"device_to_host", 40, [](NodeRates& r) { r.from_device = rounds_of(40e9, 12e9); }, "12 GB/s"},
    {"launch", 10, [](NodeRates& r) { r.launch_us = rounds_of(10, 30); }, "30 us"}};

TEST(NodeRatesTest, AGoodNodePassesEachFloorAndABadPartFailsItByName) {
  for (const NodeFault& fault : kFaults) {
    const config::Acceptance w = wanting(fault.figure, fault.reference);
    const std::vector<Judgement> good = rated(judge_node_rates(w, healthy(), kHosts));
    ASSERT_THAT(good, SizeIs(1)) << fault.figure << ": only what the profile has a reference for is rated";
    EXPECT_EQ(good[0].verdict, Verdict::pass) << fault.figure << ": " << good[0].sentence;
    NodeRates planted = healthy();
    fault.plant(planted);
    const std::vector<Judgement> bad = rated(judge_node_rates(w, planted, kHosts));
    ASSERT_THAT(bad, SizeIs(1)) << fault.figure;
    EXPECT_EQ(bad[0].verdict, Verdict::fail) << fault.figure << ": " << bad[0].sentence;
    EXPECT_THAT(bad[0].sentence, HasSubstr(fault.sentence));
    EXPECT_THAT(bad[0].ranks, ElementsAre(2)) << fault.figure;
  }
}

TEST(NodeRatesTest, WhereAllAreSlowNobodyIsNamed) {
  NodeRates slow = healthy();
  slow.host_copy = rounds_of(5e9, 5e9);
  const std::vector<Judgement> bad = rated(judge_node_rates(wanting("host_memory", 20), slow, kHosts));
  ASSERT_THAT(bad, SizeIs(1));
  EXPECT_EQ(bad[0].verdict, Verdict::fail);
  EXPECT_TRUE(bad[0].ranks.empty());
}

TEST(NodeRatesTest, WithoutAReferenceFiguresAreToldAndNotRated) {
  const std::vector<Judgement> all = judge_node_rates({}, healthy(), kHosts);
  EXPECT_THAT(rated(all), SizeIs(0));
  EXPECT_THAT(all, SizeIs(4));
  for (const Judgement& j : all) EXPECT_GT(j.value.median, 0) << j.figure;
}

TEST(NodeRatesTest, WithoutGpusTheirFiguresAreAbsentAndNeverPass) {
  NodeRates rates = healthy();
  rates.has_gpus = false;
  rates.to_device.clear(), rates.from_device.clear(), rates.launch_us.clear();
  const auto says_why = [](const Judgement& j) { return j.sentence.find("there is no GPU") != std::string::npos; };
  for (const char* const figure : {"host_to_device", "device_to_host", "launch"}) {
    const std::vector<Judgement> asked = rated(judge_node_rates(wanting(figure, 1), rates, kHosts));
    ASSERT_THAT(asked, SizeIs(1)) << figure;
    EXPECT_EQ(asked[0].verdict, Verdict::inconclusive);
    EXPECT_TRUE(says_why(asked[0]));
    EXPECT_EQ(asked[0].value.n, 0);
  }
  const std::vector<Judgement> all = judge_node_rates({}, rates, kHosts);
  EXPECT_EQ(std::ranges::count_if(all, says_why), 1);
  EXPECT_THAT(rated(all), SizeIs(0));
}

TEST(NodeRatesTest, WhatOtherProgramsTookIsAnUncertaintyOfWhatProcessorsDo) {
  AcceptanceMeasurements m;
  m.on_processors = false;
  m.others_share = 0.8;
  for (const NodeFault& fault : kFaults) {
    NodeRates planted = healthy();
    fault.plant(planted);
    for (const bool busy : {false, true}) {
      m.others_share = busy ? 0.99 : 0.05;
      std::vector<Judgement> judgements = judge_node_rates(wanting(fault.figure, fault.reference), planted, kHosts);
      std::vector<accept::Finding> findings;
      soften(m, judgements, findings);
      const bool of_gpus = std::string(fault.figure).find("device") != std::string::npos;
      EXPECT_EQ(rated(judgements).at(0).verdict, busy && !of_gpus ? Verdict::inconclusive : Verdict::fail)
          << fault.figure;
    }
  }
}

TEST(NodeRatesTest, EmulatedComputationHasNone) {
  NodeRates rates;
  rates.unknown_because = "computation is emulated";
  const std::vector<Judgement> all = judge_node_rates(wanting("host_memory", 2), rates, kHosts);
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].verdict, Verdict::unrated);
}

TEST(NodeRatesTest, DevicesCopyAndLaunchInEveryRound) {
  constexpr int kRanks = 2, kRounds = 3;
  constexpr std::int64_t kBytes = 1 << 16;
  backend::BackendOptions options;
  options.ranks = kRanks;
  RankMeeting meeting(kRanks, nullptr);
  std::vector<accept::DeviceRounds> all;
  select_backend("cpu")->run(options, [&](backend::RankContext& context) {
    const Rounds rounds{kRounds, context, meeting, [](double, int) { return true; }, [] { return true; }};
    for (accept::DeviceRounds measured :
         {measure_copies_to_device(kBytes, rounds), measure_copies_from_device(kBytes, rounds),
          measure_host_copies(kBytes, rounds), measure_launches(rounds)}) {
      if (context.rank == 0) all.push_back(std::move(measured));
    }
  });
  ASSERT_THAT(all, SizeIs(4));
  for (const accept::DeviceRounds& rounds : all) {
    ASSERT_THAT(rounds, SizeIs(kRounds));
    for (const std::vector<double>& round : rounds) {
      EXPECT_THAT(round, SizeIs(kRanks));
      EXPECT_THAT(round, Each(Gt(0)));
    }
  }
}

/// Scales of four ranks in one process, and the seconds that each stage says it takes.
struct Scales {
  ScaleMeasurements measured;
  std::vector<std::string> names;
  std::vector<std::optional<double>> seconds;
};

Scales scales(ScaleEffort effort, std::size_t stages = 9) {
  constexpr int kRanks = 4;
  effort.count = 64;
  effort.iterations = 3;
  effort.gathered = DType::bf16;
  backend::BackendOptions options;
  options.ranks = kRanks;
  RankMeeting meeting(kRanks, nullptr);
  Scales all;
  select_backend("cpu")->run(options, [&](backend::RankContext& context) {
    std::size_t asked = 0;
    ScaleMeasurements mine = measure_scales({.nodes = 1, .gpus_per_node = kRanks}, effort, context, meeting,
                                            [&](const std::string& name, std::optional<double> seconds) {
                                              if (context.rank == 0) {
                                                all.names.push_back(name);
                                                all.seconds.push_back(seconds);
                                              }
                                              return asked++ < stages;
                                            });
    if (context.rank == 0) all.measured = std::move(mine);
  });
  return all;
}

TEST(ScalesTest, AreMeasuredFromTwoRanksToAllAndInBothGroupsOfHybridAtOnce) {
  const Scales s = scales({.link_bytes_per_s = 1024});
  EXPECT_THAT(s.names, ElementsAre("collectives in groups of 2", "collectives in groups of 4",
                                   "reduce-scatter in groups of 2 beside all-reduce across them"));
  // 64 elements of 4 bytes take a quarter of a second; three iterations and one before them.
  EXPECT_THAT(s.seconds, ElementsAre(2.0, 6.0, 7.0));
  std::vector<std::string> rows;
  for (const CollectiveRow& row : s.measured.rows) {
    rows.push_back(std::string(to_string(row.message.op)) + " " + std::to_string(row.message.ranks) + " " +
                   std::string(type_name(row.message.dtype)) + (row.in_place ? " in place" : ""));
    const Timing& timing = row.in_place ? *row.in_place : *row.out_of_place;
    EXPECT_EQ(row.message.count, 64);
    EXPECT_EQ(row.reduction.has_value(), row.message.reduces());
    ASSERT_EQ(timing.iterations_us.size(), 3U);
    EXPECT_GT(timing.time_us, 0);
    EXPECT_DOUBLE_EQ(timing.time_us, timing.scatter.mean_us);
    EXPECT_THAT(timing.iterations_us, Each(Gt(0)));
  }
  EXPECT_THAT(rows,
              ElementsAre("all_gather 2 bfloat16 in place", "reduce_scatter 2 float", "all_gather 4 bfloat16 in place",
                          "reduce_scatter 4 float", "all_reduce 2 float in place"));
  EXPECT_EQ(s.measured.shard, 2);
  EXPECT_EQ(s.measured.replicate, 2);
  EXPECT_THAT(s.measured.reduce_alone_us, SizeIs(3));
  EXPECT_THAT(s.measured.reduce_beside_us, SizeIs(3));
  EXPECT_EQ(scale_bytes({.count = 1 << 20, .gathered = DType::bf16}, 4), 3 * (16 << 20));
}

TEST(ScalesTest, EndWhereNoTimeIsLeft) {
  EXPECT_THAT(scales({}, 0).measured.rows, SizeIs(0));
  const Scales one = scales({}, 1);
  EXPECT_THAT(one.measured.rows, SizeIs(2));
  EXPECT_FALSE(one.seconds.front().has_value()) << "nobody knows what a link carries";
  const Scales two = scales({}, 2);
  EXPECT_THAT(two.measured.rows, SizeIs(4));
  EXPECT_EQ(two.measured.shard, 0);
}

TEST(ScalesTest, GroupsOfHybridShardingAreThoseOfTheRunIfTheyDivideTheRanks) {
  EXPECT_EQ(scales({.shard = 2}).measured.shard, 2);
  EXPECT_EQ(scales({.shard = 1}).measured.shard, 2) << "half of the ranks";
  EXPECT_EQ(scales({.shard = 3}).measured.shard, 0);
  EXPECT_EQ(scales({.shard = 4}).measured.shard, 0) << "nobody is left to all-reduce with";
}

}  // namespace
}  // namespace fsdpbench::app
