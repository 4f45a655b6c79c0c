#include "accept/step_arms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdpbench::accept {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> ranks_of(const Cluster& cluster) {
  std::vector<int> ranks;
  for (const Scale& scale : scales_of(cluster)) ranks.push_back(scale.ranks);
  return ranks;
}

std::vector<Rung> rungs(const Cluster& cluster, const std::vector<double>& rates, double spread = 0.01) {
  std::vector<Rung> all;
  for (const Scale& scale : scales_of(cluster)) {
    Rung& rung = all.emplace_back(Rung{scale, {}});
    for (int i = 0; i < 20; ++i) rung.gb_per_s.push_back(rates.at(all.size() - 1) * (1 + spread * (i - 9.5) / 10));
  }
  return all;
}

TEST(ScaleTest, GroupsDivideTheRanksAndNodesStayWhole) {
  EXPECT_THAT(ranks_of({.nodes = 1, .gpus_per_node = 8}), ElementsAre(2, 4, 8));
  EXPECT_THAT(ranks_of({.nodes = 1, .gpus_per_node = 6}), ElementsAre(2, 6));
  EXPECT_THAT(ranks_of({.nodes = 1, .gpus_per_node = 5}), ElementsAre(5));
  EXPECT_THAT(ranks_of({.nodes = 4, .gpus_per_node = 8}), ElementsAre(2, 4, 8, 16, 32));
  EXPECT_THAT(ranks_of({.nodes = 3, .gpus_per_node = 4}), ElementsAre(2, 4, 12)) << "6 ranks would split a node";
  EXPECT_THAT(ranks_of({.nodes = 2, .gpus_per_node = 3}), ElementsAre(2, 3, 6))
      << "whole nodes, though 3 is less than 4";
  EXPECT_EQ(scales_of({.nodes = 4, .gpus_per_node = 8}).front().nodes, 1);
  EXPECT_EQ(scales_of({.nodes = 4, .gpus_per_node = 8}).back().nodes, 4);
  EXPECT_TRUE(scales_of({.nodes = 1, .gpus_per_node = 1}).empty());
}

TEST(ScaleTest, TheScaleAtWhichItFallsIsNamed) {
  const Cluster cluster{.nodes = 4, .gpus_per_node = 8};
  // Between nodes it is slower than within, which is no fault; at 32 ranks it falls.
  const Judgement j = judge_scale("x", rungs(cluster, {300, 295, 290, 45, 30}), 0.8);
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_THAT(j.sentence, HasSubstr("32 ranks on 4 nodes carry 67 %"));
  EXPECT_THAT(j.sentence, HasSubstr("of what 16 ranks on 2 nodes do"));
  EXPECT_EQ(judge_scale("x", rungs(cluster, {300, 295, 290, 45, 43}), 0.8).verdict, Verdict::pass);
  const Judgement within = judge_scale("x", rungs(cluster, {300, 200, 150, 45, 30}), 0.8);
  EXPECT_THAT(within.sentence, HasSubstr("4 ranks carry 67 %")) << "the first, not the last";
}

TEST(ScaleTest, ASentenceHasEachScaleAndTheFirstThatFalls) {
  const Cluster cluster{.nodes = 4, .gpus_per_node = 2};
  const Judgement falls = judge_scale("x", rungs(cluster, {100, 40, 20, 10}, 0), 0.8);  // 2, 4, 8 ranks
  EXPECT_EQ(falls.sentence,
            "8 ranks on 4 nodes carry 50 % (95 %: 50 to 50) of what 4 ranks on 2 nodes do, and 80 % are asked for: 2 "
            "ranks 100 GB/s, 4 ranks on 2 nodes 40 GB/s, 8 ranks on 4 nodes 20 GB/s (50 %)");
  EXPECT_EQ(falls.bound, 0.8);
  EXPECT_EQ(falls.value.median, 0.5);
  const Judgement passes = judge_scale("x", rungs(cluster, {100, 40, 36}, 0), 0.8);
  EXPECT_EQ(passes.verdict, Verdict::pass);
  EXPECT_EQ(passes.sentence, "2 ranks 100 GB/s, 4 ranks on 2 nodes 40 GB/s, 8 ranks on 4 nodes 36 GB/s (90 %)");
  EXPECT_EQ(judge_scale("x", {}, 0.8).sentence, "no scale was measured");
  EXPECT_EQ(judge_scale("x", {Rung{{2, 1}, {}}}, 0.8).sentence, "2 ranks were not measured");
  EXPECT_EQ(judge_scale("x", rungs({.nodes = 1, .gpus_per_node = 2}, {300}, 0), 0.8).sentence,
            "there is no second scale to compare with: 2 ranks 300 GB/s");
  EXPECT_EQ(judge_scale("x", rungs({.nodes = 1, .gpus_per_node = 2}, {300}, 0), 0.8).verdict, Verdict::unrated);
  const Cluster node{.nodes = 1, .gpus_per_node = 16};
  const Judgement worst = judge_scale("x", rungs(node, {100, 95, 85, 90}, 0), 0.8);
  EXPECT_EQ(worst.value.median, 0.85) << "of those that pass the worst";
  EXPECT_EQ(judge_scale("x", rungs(node, {0, 95, 85, 90}, 0), 0.8).verdict, Verdict::fail)
      << "of nothing nothing is a share";
  EXPECT_EQ(judge_scale("x", rungs({.nodes = 1, .gpus_per_node = 4}, {0.5, 0.45}, 0), 0.8).value.median, 0.9);
}

/// Rates of groups of 2, 4 and 8 ranks.
TEST(ScaleTest, TheFirstDoubtStaysWhateverFollows) {
  const auto judged = [](std::vector<double> second, std::vector<double> third) {
    return judge_scale("x", {{{2, 1}, {1, 1, 1}}, {{4, 1}, std::move(second)}, {{8, 1}, std::move(third)}}, 0.8);
  };
  const Judgement doubt = judged({0.7, 0.95, 1}, {0.85, 0.85, 0.85});
  EXPECT_EQ(doubt.verdict, Verdict::inconclusive);
  EXPECT_THAT(doubt.sentence, HasSubstr("4 ranks carry 95 % (95 %: 70 to 100)"));
  EXPECT_EQ(judged({0.9, 0.9, 0.9}, {0.85, 0.9, 0.95}).value.low, 0.9) << "of two alike the first";
  const Judgement lost = judged({0.9, 0.9, 0.9}, {});
  EXPECT_EQ(lost.verdict, Verdict::inconclusive);
  EXPECT_EQ(lost.sentence, "8 ranks were not measured");
}

}  // namespace
}  // namespace fsdpbench::accept
