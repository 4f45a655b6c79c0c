#include "account/late_ranks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace fsdpbench::account {
namespace {

TEST(LateRanks, BinomialTailsAreExact) {
  for (int trials = 0; trials < 80; ++trials) EXPECT_EQ(binomial_tail(trials, 0, 1.0 / 3), 1) << trials;
  EXPECT_NEAR(binomial_tail(3, 1, 1.0 / 3), 1 - 8.0 / 27, 1e-15);
  EXPECT_NEAR(binomial_tail(10, 10, 0.5), std::pow(0.5, 10), 1e-15);
  EXPECT_NEAR(binomial_tail(3, 2, 1.0 / 3), 7.0 / 27, 1e-15);
  EXPECT_NEAR(binomial_tail(2000, 1001, 0.5), 0.5, 0.01);
}

/// 5 steps of 20 things that each of `ranks` does in 1 ms and up to 10 % more, by luck.
RankTimes even_luck(int ranks, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<std::int64_t> ns(1'000'000, 1'100'000);
  RankTimes times(5, std::vector<std::vector<std::int64_t>>(static_cast<std::size_t>(ranks)));
  for (auto& step : times) {
    for (auto& mine : step) {
      for (int i = 0; i < 20; ++i) mine.push_back(ns(random));
    }
  }
  return times;
}

TEST(LateRanks, LuckNamesNobody) {
  int named = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    for (const int ranks : {2, 3, 4, 8}) {
      for (const Lateness& rank : find_late_ranks(even_luck(ranks, seed), 0.2)) named += rank.significant ? 1 : 0;
    }
  }
  EXPECT_EQ(named, 0);
}

TEST(LateRanks, TheSlowerRankIsNamedAndHowMuchItTakes) {
  for (const int ranks : {2, 3, 4, 8}) {
    RankTimes times = even_luck(ranks, 1);
    for (auto& step : times) {
      for (std::int64_t& ns : step[1]) ns += 150'000;
    }
    const std::vector<Lateness> found = find_late_ranks(times, 0.2);
    for (std::size_t rank = 0; rank < found.size(); ++rank) EXPECT_EQ(found[rank].significant, rank == 1) << ranks;
    EXPECT_EQ(found[1].trials, 100);
    EXPECT_EQ(found[1].late, 100);
    EXPECT_NEAR(found[1].excess_ms.median, 20 * 0.15, 0.3);
  }
}

TEST(LateRanks, NoTimeIsATimeAndMinusOneIsNone) {
  const auto trials = [](std::int64_t first) {
    return find_late_ranks(RankTimes(5, {{first, 7}, {10, 7}, {10, 9}}), 0.2)[2].trials;
  };
  EXPECT_EQ(trials(0), 10);
  EXPECT_EQ(trials(-1), 5);
}

/// By hand: of three ranks the first is 10 and 4 ms later than both others in two steps, and as quick in a third.
TEST(LateRanks, ExcessIsBeyondTheMedianOfTheOthers) {
  constexpr std::int64_t kMilli = 1'000'000;
  const RankTimes times{{{20 * kMilli, 5 * kMilli}, {8 * kMilli, 5 * kMilli}, {12 * kMilli, 5 * kMilli}},
                        {{10 * kMilli, 0}, {6 * kMilli, 0}, {6 * kMilli, 0}},
                        {{7 * kMilli, 3 * kMilli}, {7 * kMilli, 2 * kMilli}, {7 * kMilli, 4 * kMilli}}};
  const std::vector<Lateness> found = find_late_ranks(times, 0);
  EXPECT_EQ(found[0].trials, 3) << "ties are none";
  EXPECT_EQ(found[0].late, 2) << "slower than two of three";
  EXPECT_EQ(found[0].excess_ms.min, 0);
  EXPECT_EQ(found[0].excess_ms.max, 10);
  EXPECT_EQ(found[0].excess_ms.median, 4);
  EXPECT_EQ(found[1].late, 0);
  EXPECT_EQ(found[2].late, 1);
  EXPECT_NEAR(found[0].by_chance, binomial_tail(3, 2, 1.0 / 3), 1e-15);
  EXPECT_TRUE(find_late_ranks({}, 0).empty());
  const std::vector<Lateness> alone = find_late_ranks(RankTimes{{{1, 2}}}, 0);
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].trials, 0);
  EXPECT_FALSE(alone[0].significant);
}

TEST(LateRanks, HalfOfTheRanksMayBeLate) {  // a slow node
  RankTimes times = even_luck(4, 2);
  for (auto& step : times) {
    for (const std::size_t rank : {0U, 1U}) {
      for (std::int64_t& ns : step[rank]) ns += 150'000;
    }
  }
  const std::vector<Lateness> found = find_late_ranks(times, 0.2);
  EXPECT_TRUE(found[0].significant && found[1].significant);
  EXPECT_FALSE(found[2].significant || found[3].significant);
}

/// One rank of four is the slowest in so many steps: a chance of 1 / 2 each.
TEST(LateRanks, AsManyAsRanksMayBeLateByChance) {
  const auto last = [](std::size_t steps) {
    return find_late_ranks(RankTimes(steps, {{1000}, {1000}, {1000}, {2000}}), 0)[3];
  };
  EXPECT_LT(last(7).by_chance, kLateLevel);
  EXPECT_FALSE(last(7).significant) << "four ranks are tried";
  EXPECT_LT(last(9).by_chance, kLateLevel / 4);
  EXPECT_TRUE(last(9).significant);
}

TEST(LateRanks, HalfOfAllRanksMustBeFaster) {
  const auto late = [](RankTimes times) {
    std::vector<int> each;
    for (const Lateness& rank : find_late_ranks(times, 0)) each.push_back(rank.late);
    return each;
  };
  EXPECT_EQ(late({{{1}, {2}, {3}, {4}}}), (std::vector{0, 0, 1, 1}));
  EXPECT_EQ(late({{{1}, {2}, {3}, {4}, {5}}}), (std::vector{0, 0, 0, 1, 1}));
}

TEST(LateRanks, CertainButBelowTheNoiseIsNotNamed) {
  RankTimes times(4, {{std::vector<std::int64_t>(50, 1000), std::vector<std::int64_t>(50, 1001)}});
  const Lateness late = find_late_ranks(times, 0.001)[1];
  EXPECT_LT(late.by_chance, 1e-9);
  EXPECT_FALSE(late.significant);
  EXPECT_TRUE(find_late_ranks(times, 0)[1].significant);
}

TEST(LateRanks, LateInOneStepOnlyIsNotNamed) {  // something else had its core
  RankTimes times = even_luck(4, 3);
  for (std::int64_t& ns : times[2][3]) ns += 5'000'000;
  EXPECT_FALSE(find_late_ranks(times, 0.2)[3].significant);
}

TEST(LateRanks, OneRankNoStepsEqualTimesAndGaps) {
  EXPECT_TRUE(find_late_ranks({}, 0).empty());
  EXPECT_FALSE(find_late_ranks({{{5, 5, 5}}}, 0).front().significant);
  const RankTimes equal(3, {std::vector<std::int64_t>(30, 7), std::vector<std::int64_t>(30, 7)});
  for (const Lateness& rank : find_late_ranks(equal, 0)) {
    EXPECT_EQ(rank.late, 0);
    EXPECT_FALSE(rank.significant);
  }
  const RankTimes gap{{{1, -1, 3, 4}, {2, 2, 2, 4}}};  // neither what one rank has not nor a tie is a trial
  EXPECT_EQ(find_late_ranks(gap, 0)[0].trials, 2);
}

TEST(BinomialTail, IsTheChanceOfSoManyAndMore) {
  EXPECT_NEAR(binomial_tail(5, 3, 0.5), 0.5, 1e-12);
  EXPECT_NEAR(binomial_tail(10, 8, 0.5), 56.0 / 1024, 1e-12);
  EXPECT_NEAR(binomial_tail(3, 2, 0.1), 0.028, 1e-12);
  EXPECT_EQ(binomial_tail(3, 0, 0.1), 1);
  EXPECT_NEAR(binomial_tail(3, 1, 0.1), 0.271, 1e-12);
}

}  // namespace
}  // namespace fsdpbench::account
