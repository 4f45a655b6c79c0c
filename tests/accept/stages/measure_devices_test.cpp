// Times of launches, compared with a profile and measured; collectives in groups of ranks.

#include "accept/stages/measure_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "accept/stages/acceptance_report.h"
#include "acceptance_cases.h"
#include "runs/select_backend.h"

namespace fsdpbench::app {
namespace {

using accept::Judgement;
using accept::Verdict;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Judgements of launches in 9 rounds of 4 ranks, of which rank 2 has another time; a profile allows 10 us.
std::vector<Judgement> judged_launches(double each, double of_rank_2) {
  AcceptanceMeasurements m = measured({});
  m.hosts = {"a", "a", "b", "b"};
  m.launch_us.assign(9, {each, each, of_rank_2, each});
  config::Acceptance w;
  w.references = {{.figure = "launch", .value = 10, .hop_us = 0, .ceiling = 0, .source = "a table"}};
  std::vector<Judgement> all = judge_acceptance(w, m, nullptr).judgements;
  std::erase_if(all, [](const Judgement& j) { return j.rule != "latency"; });
  return all;
}

TEST(Launches, AHostThatIsSlowIsNamedAndAFleetIsNot) {
  const std::vector<Judgement> good = judged_launches(10, 10);
  ASSERT_THAT(good, SizeIs(1));
  EXPECT_EQ(good[0].verdict, Verdict::pass) << good[0].sentence;
  const std::vector<Judgement> bad = judged_launches(10, 30);
  ASSERT_THAT(bad, SizeIs(1));
  EXPECT_EQ(bad[0].verdict, Verdict::fail) << bad[0].sentence;
  EXPECT_THAT(bad[0].sentence, AllOf(HasSubstr("rank 2 on b"), HasSubstr("30 us")));
  EXPECT_THAT(bad[0].ranks, ElementsAre(2));
  const std::vector<Judgement> fleet = judged_launches(30, 30);
  ASSERT_THAT(fleet, SizeIs(1));
  EXPECT_EQ(fleet[0].verdict, Verdict::fail);
  EXPECT_THAT(fleet[0].ranks, IsEmpty());
}

TEST(Launches, WithoutGpusTheyNeverPass) {
  AcceptanceMeasurements m = measured({});
  config::Acceptance w;
  const auto launches = [&] {
    std::vector<Judgement> all = judge_acceptance(w, m, nullptr).judgements;
    std::erase_if(all, [](const Judgement& j) { return j.rule != "latency"; });
    return all;
  };
  EXPECT_THAT(launches(), IsEmpty());
  w.references = {{.figure = "launch", .value = 10, .hop_us = 0, .ceiling = 0, .source = "a table"}};
  ASSERT_THAT(launches(), SizeIs(1));
  EXPECT_EQ(launches()[0].verdict, Verdict::inconclusive);
}

TEST(Launches, WhatOtherProgramsTookIsAnUncertaintyOfWhatProcessorsDo) {
  for (const bool busy : {false, true}) {
    AcceptanceMeasurements m;
    m.others_share = busy ? 0.99 : 0.05;
    std::vector<Judgement> judgements = judged_launches(10, 30);
    std::vector<accept::Finding> findings;
    soften(m, judgements, findings);
    EXPECT_EQ(judgements.at(0).verdict, busy ? Verdict::inconclusive : Verdict::fail);
  }
}

TEST(Launches, AreMeasuredInEveryRound) {
  constexpr int kRanks = 2, kRounds = 3;
  backend::BackendOptions options;
  options.ranks = kRanks;
  RankMeeting meeting(kRanks, nullptr);
  accept::DeviceRounds rounds;
  select_backend("cpu")->run(options, [&](backend::RankContext& context) {
    accept::DeviceRounds us =
        measure_launches({kRounds, context, meeting, [](double, int) { return true; }, [] { return true; }});
    if (context.rank == 0) rounds = std::move(us);
  });
  ASSERT_THAT(rounds, SizeIs(kRounds));
  for (const std::vector<double>& round : rounds) {
    EXPECT_THAT(round, SizeIs(kRanks));
    EXPECT_THAT(round, Each(Gt(0)));
  }
}

/// Scales of four ranks in one process, and the seconds that each stage says it takes.
struct Scales {
  std::vector<CollectiveRow> measured;
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
    std::vector<CollectiveRow> mine = measure_scales({.nodes = 1, .gpus_per_node = kRanks}, effort, context, meeting,
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

TEST(ScalesTest, AreMeasuredFromTwoRanksToAll) {
  const Scales s = scales({.link_bytes_per_s = 1024});
  EXPECT_THAT(s.names, ElementsAre("collectives in groups of 2", "collectives in groups of 4"));
  // 64 elements of 4 bytes take a quarter of a second; three iterations and one before them.
  EXPECT_THAT(s.seconds, ElementsAre(2.0, 6.0));
  std::vector<std::string> rows;
  for (const CollectiveRow& row : s.measured) {
    rows.push_back(std::string(to_string(row.message.op)) + " " + std::to_string(row.message.ranks) + " " +
                   std::string(type_name(row.message.dtype)) + (row.in_place ? " in place" : ""));
    const Timing& timing = row.timing();
    EXPECT_EQ(row.message.count, 64);
    EXPECT_EQ(row.reduction.has_value(), row.message.reduces());
    ASSERT_EQ(timing.iterations_us.size(), 3U);
    EXPECT_GT(timing.time_us, 0);
    EXPECT_DOUBLE_EQ(timing.time_us, timing.scatter.mean_us);
    EXPECT_THAT(timing.iterations_us, Each(Gt(0)));
  }
  EXPECT_THAT(rows, ElementsAre("all_gather 2 bfloat16 in place", "reduce_scatter 2 float",
                                "all_gather 4 bfloat16 in place", "reduce_scatter 4 float"));
  EXPECT_EQ(scale_bytes({.count = 1 << 20, .gathered = DType::bf16}, 4), 3 * (16 << 20));
}

TEST(ScalesTest, EndWhereNoTimeIsLeft) {
  EXPECT_THAT(scales({}, 0).measured, SizeIs(0));
  const Scales one = scales({}, 1);
  EXPECT_THAT(one.measured, SizeIs(2));
  EXPECT_FALSE(one.seconds.front().has_value()) << "nobody knows what a link carries";
}

}  // namespace
}  // namespace fsdpbench::app
