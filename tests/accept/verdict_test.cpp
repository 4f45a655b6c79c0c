#include "accept/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdpbench::accept {
namespace {

using ::testing::HasSubstr;

std::vector<double> around(double value, double spread, int n = 20) {
  std::vector<double> values;
  for (int i = 0; i < n; ++i) values.push_back(value + spread * (i - (n - 1) / 2.0) / n);
  return values;
}

TEST(VerdictTest, TheFloorFailsAndPassesOnlyForCertain) {
  const Reference reference{400, "the maker's table"};
  EXPECT_EQ(judge_floor("x", "GB/s", around(380, 4), reference).verdict, Verdict::pass);
  EXPECT_EQ(judge_floor("x", "GB/s", around(340, 4), reference).verdict, Verdict::fail);
  EXPECT_EQ(judge_floor("x", "GB/s", around(361, 40), reference).verdict, Verdict::inconclusive);
  const Judgement failed = judge_floor("x", "GB/s", around(340, 4), reference);
  EXPECT_EQ(failed.bound, 360);
  EXPECT_THAT(failed.sentence, HasSubstr("90 % of the maker's table"));
}

TEST(VerdictTest, TheToleranceIsTheProfiles) {
  const Reference reference{400, "table"};
  EXPECT_EQ(judge_floor("x", "GB/s", around(340, 4), reference, 0.8).verdict, Verdict::pass);
  EXPECT_EQ(judge_floor("x", "GB/s", around(380, 4), reference, 1).verdict, Verdict::fail);
  const Reference latency{10, "table"};
  EXPECT_EQ(judge_latency("x", "us", around(10.9, 0.1), latency).verdict, Verdict::pass);
  EXPECT_EQ(judge_latency("x", "us", around(12, 0.1), latency).verdict, Verdict::fail);
  EXPECT_EQ(judge_latency("x", "us", around(12, 0.1), latency, 0.8).verdict, Verdict::pass);
  EXPECT_EQ(judge_latency("x", "us", around(10.9, 0.1), latency, 1).verdict, Verdict::fail);
}

TEST(VerdictTest, WhatIsNotKnownIsNoPass) {
  EXPECT_EQ(judge_floor("x", "GB/s", around(380, 4), std::nullopt).verdict, Verdict::unrated);
  EXPECT_EQ(judge_floor("x", "GB/s", {}, Reference{400, "table"}).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_floor("x", "GB/s", {}, std::nullopt).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_ceiling("x", "GB/s", around(380, 4), std::nullopt).verdict, Verdict::unrated);
  EXPECT_EQ(judge_tail("x", {}).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_shape("x", {}).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_exposed("x", {}, 0.1).verdict, Verdict::inconclusive);
}

TEST(VerdictTest, MoreThanTheLinksCarryIsAWrongMeasurement) {
  EXPECT_EQ(judge_ceiling("x", "GB/s", around(380, 4), 450).verdict, Verdict::pass);
  const Judgement wrong = judge_ceiling("x", "GB/s", around(500, 4), 450);
  EXPECT_EQ(wrong.verdict, Verdict::inconclusive);
  EXPECT_THAT(wrong.sentence, HasSubstr("the measurement is wrong"));
}

TEST(VerdictTest, TheTailNeedsAHundredSamples) {
  EXPECT_EQ(judge_tail("x", std::vector<double>(99, 10.0)).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_tail("x", std::vector<double>(100, 10.0)).verdict, Verdict::pass);
  std::vector<double> late(100, 10.0);
  late[0] = late[1] = 16;
  const Judgement j = judge_tail("x", late);
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_THAT(j.sentence, HasSubstr("1.60 times the median"));
}

TEST(VerdictTest, ACliffIsFoundWhereItIs) {
  const auto shape = [](std::initializer_list<std::pair<std::int64_t, double>> sizes, double spread = 0) {
    std::vector<SizeRate> rates;
    for (const auto& [bytes, rate] : sizes) rates.push_back({bytes, median_interval(around(rate, spread))});
    return judge_shape("x", rates);
  };
  EXPECT_EQ(shape({{1, 1}, {2, 2}, {4, 1.9}, {8, 3}}).verdict, Verdict::pass);
  const Judgement j = shape({{8, 3}, {1, 1}, {2, 2}, {4, 1.5}});
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_THAT(j.sentence, HasSubstr("4 B carry 1.5 GB/s, 25 % less than the 2 GB/s of 2 B"));
  EXPECT_EQ(shape({{8, 3}}).verdict, Verdict::unrated);
  // What scatters as much as it falls accuses nobody, and does not pass either.
  EXPECT_EQ(shape({{1, 1}, {2, 2}, {4, 1.5}}, 1).verdict, Verdict::inconclusive);
}

TEST(VerdictTest, ExposedCommunicationHasABudget) {
  EXPECT_EQ(judge_exposed("x", around(0.05, 0.01), 0.1).verdict, Verdict::pass);
  EXPECT_EQ(judge_exposed("x", around(0.2, 0.01), 0.1).verdict, Verdict::fail);
  EXPECT_EQ(judge_exposed("x", around(0.1, 0.05), 0.1).verdict, Verdict::inconclusive);
}

TEST(VerdictTest, TheWorstCountsAndNothingIsNoPass) {
  const auto all = [](std::initializer_list<Verdict> verdicts) {
    std::vector<Judgement> judgements;
    for (const Verdict v : verdicts) judgements.emplace_back().verdict = v;
    return overall(judgements);
  };
  EXPECT_EQ(all({}), Verdict::inconclusive);
  EXPECT_EQ(all({Verdict::unrated}), Verdict::unrated);
  EXPECT_EQ(all({Verdict::pass, Verdict::unrated}), Verdict::pass);
  EXPECT_EQ(all({Verdict::pass, Verdict::inconclusive}), Verdict::inconclusive);
  EXPECT_EQ(all({Verdict::pass, Verdict::inconclusive, Verdict::fail}), Verdict::fail);
}

}  // namespace
}  // namespace fsdpbench::accept
