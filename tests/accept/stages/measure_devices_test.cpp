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

TEST(Launches, OfAllThatAreBadOneJudgementIsOfAllAndOneAloneIsNamed) {
  const auto told = [](const std::vector<double>& us, double tolerance_pct) {
    AcceptanceMeasurements m = measured({});
    m.hosts.assign(us.size(), "a");
    m.launch_us.assign(9, us);
    config::Acceptance w;
    w.tolerance_pct = tolerance_pct;
    w.references = {{.figure = "launch", .value = 10, .hop_us = 0, .ceiling = 0, .source = "a table"}};
    std::string text;
    for (const Judgement& j : judge_acceptance(w, m, nullptr).judgements) {
      if (j.rule == "latency")
        text += (j.part.empty() ? "all" : j.part) + " " + std::string(to_string(j.verdict)) + "; ";
    }
    return text;
  };
  EXPECT_EQ(told({20.1}, 50), "rank 0 on a fail; ") << "20 us are allowed";
  EXPECT_EQ(told({20}, 50), "all pass; ");
  EXPECT_EQ(told({30, 30}, 50), "all fail; ");
  EXPECT_EQ(told({30, 30, 30}, 50), "all fail; ");
  EXPECT_EQ(told({10, 30, 30}, 50), "rank 1 on a fail; rank 2 on a fail; ");
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

TEST(ScalesTest, EndWhereNoTimeIsLeft) {
  EXPECT_THAT(scales({}, 0).measured, SizeIs(0));
  const Scales one = scales({}, 1);
  EXPECT_THAT(one.measured, SizeIs(2));
  EXPECT_FALSE(one.seconds.front().has_value()) << "nobody knows what a link carries";
}

}  // namespace
}  // namespace fsdpbench::app
