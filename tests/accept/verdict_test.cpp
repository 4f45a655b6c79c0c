#include "accept/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace fsdpbench::accept {
namespace {

using ::testing::HasSubstr;

std::vector<double> around(double value, double spread, int n = 20) {
  std::vector<double> values;
  for (int i = 0; i < n; ++i) values.push_back(value + spread * (i - (n - 1) / 2.0) / n);
  return values;
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
  EXPECT_EQ(judge_tail("x", {}).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_shape("x", {}).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_exposed("x", {}, 0.1).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_exposed("x", {}, 0.1).bound, 0.1);
  EXPECT_EQ(judge_slowdown("x", {}, 10).bound, 10);
  EXPECT_EQ(judge_ceiling("x", "GB/s", {}, 10).bound, 10);
  EXPECT_EQ(judge_tail("x", {}).rule, "tail");
  EXPECT_EQ(judge_shape("x", {}).figure, "x");
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

/// A figure that just reaches its limit keeps it; an interval that only touches it from the wrong side does not fail.
TEST(VerdictTest, LimitsAreKeptByWhatReachesThem) {
  const std::vector<double> below{9, 9, 9, 10, 10}, above{10, 10, 11, 11, 11};  // 95 %: 9 to 10, and 10 to 11
  const auto exactly = [](double value) { return std::vector<double>(8, value); };
  const Reference half{20, "table"};
  EXPECT_EQ(judge_floor("x", "GB/s", exactly(10), half, 0.5).verdict, Verdict::pass);
  EXPECT_EQ(judge_floor("x", "GB/s", above, half, 0.5).verdict, Verdict::pass);
  EXPECT_EQ(judge_floor("x", "GB/s", below, half, 0.5).verdict, Verdict::inconclusive);
  const Reference five{5, "table"};
  EXPECT_EQ(judge_latency("x", "us", below, five, 0.5).verdict, Verdict::pass);
  EXPECT_EQ(judge_latency("x", "us", above, five, 0.5).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_latency("x", "us", above, five, 0.5).bound, 10);
  EXPECT_EQ(judge_ceiling("x", "GB/s", above, 10).verdict, Verdict::pass);
  EXPECT_EQ(judge_ceiling("x", "GB/s", above, 9.9).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_ceiling("x", "GB/s", above, 9.9).bound, 9.9);
  EXPECT_EQ(judge_exposed("x", below, 10).verdict, Verdict::pass);
  EXPECT_EQ(judge_exposed("x", above, 10).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_exposed("x", above, 10).bound, 10);
  EXPECT_EQ(judge_slowdown("x", below, 10).verdict, Verdict::pass);
  EXPECT_EQ(judge_slowdown("x", above, 10).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_slowdown("x", above, 9.9).verdict, Verdict::fail);
  EXPECT_EQ(judge_slowdown("x", above, 9.9).bound, 9.9);
  EXPECT_EQ(judge_slowdown("x", above, std::nullopt).verdict, Verdict::unrated);
  EXPECT_EQ(judge_slowdown("x", {}, 10).verdict, Verdict::inconclusive);
}

/// 100 times: the 99th is the 99th percentile. Those of 10 and so many of 15.
TEST(VerdictTest, TheTailIsHalfAsMuchAgainOrScattersByMoreThanFivePercent) {
  const auto tail = [](int late, double us) {
    std::vector<double> times(100, 10.0);
    for (int i = 0; i < late; ++i) times[static_cast<std::size_t>(i)] = us;
    return judge_tail("x", times);
  };
  EXPECT_EQ(tail(1, 15).verdict, Verdict::pass) << "one of a hundred may be anything, within 5 % of deviation";
  EXPECT_EQ(tail(1, 16).verdict, Verdict::fail) << "0.597 of 10.06";
  EXPECT_EQ(tail(2, 13.4).verdict, Verdict::pass);
  EXPECT_EQ(tail(2, 14).verdict, Verdict::fail) << "0.56 of 10.08";
  EXPECT_EQ(tail(2, 14).bound, 15);
  EXPECT_THAT(tail(1, 15).sentence,
              HasSubstr("p99 is 1.00 times the median of 10.0 us, the deviation 5.0 % of the mean"));
  EXPECT_THAT(tail(2, 14).sentence,
              HasSubstr("p99 is 1.40 times the median of 10.0 us, the deviation 5.6 % of the mean"));
  EXPECT_THAT(judge_tail("x", {10, 10, 12}).sentence, HasSubstr("the maximum is 1.20 times the median"));
  EXPECT_THAT(judge_tail("x", {0.5, 0.5, 1}).sentence,
              HasSubstr("2.00 times the median of 500 ns, the deviation 35.4 % of the mean"))
      << "√2 / 4";
  std::vector<double> half(50, 9.5);
  half.resize(100, 10.5);
  EXPECT_EQ(judge_tail("x", half).verdict, Verdict::pass) << "5 % of deviation";
  std::vector<double> many(10'000, 10.0);
  std::fill_n(many.begin(), 101, 15.0);
  EXPECT_EQ(judge_tail("x", many).verdict, Verdict::pass) << "half as much again";
}

TEST(VerdictTest, OneSampleIsMeasured) {
  const std::optional<Reference> reference{{1, "a table"}};
  EXPECT_EQ(judge_floor("x", "GB/s", {1}, reference).verdict, Verdict::pass);
  EXPECT_EQ(judge_latency("x", "us", {1}, reference, 0.8).sentence,
            "1 us (95 %: 1 to 1, 1 samples) is within the 1.25 us that are allowed: a table by 80 %");
  EXPECT_EQ(judge_ceiling("x", "GB/s", {1}, 1).verdict, Verdict::pass);
  EXPECT_EQ(judge_tail("x", {1}).bound, 1.5);
  EXPECT_EQ(judge_exposed("x", {0.95}, 0.9).sentence,
            "95.0 % (95 %: 95.0 to 95.0, 1 steps) of a step exceeds the budget of 90 %");
  EXPECT_EQ(judge_slowdown("x", {1}, 1).verdict, Verdict::pass);
}

TEST(VerdictTest, EachSentenceHasItsNumbers) {
  const std::vector<double> ten(8, 10), spread{9, 9, 9, 10, 11, 11, 11};
  const Reference twenty{20, "a table"};
  EXPECT_EQ(judge_floor("x", "GB/s", ten, twenty, 0.5).sentence,
            "10 GB/s (95 %: 10 to 10, 8 samples) reaches the floor of 10 GB/s, 50 % of a table");
  EXPECT_EQ(judge_floor("x", "GB/s", ten, twenty, 0.6).sentence,
            "10 GB/s (95 %: 10 to 10, 8 samples) is below the floor of 12 GB/s, 60 % of a table");
  EXPECT_EQ(
      judge_floor("x", "GB/s", spread, twenty, 0.5).sentence,
      "10 GB/s (95 %: 9 to 11, 7 samples) is on both sides of the floor of 10 GB/s, 50 % of a table: more samples "
      "are needed");
  EXPECT_EQ(judge_floor("x", "GB/s", ten, std::nullopt).sentence,
            "10 GB/s (95 %: 10 to 10, 8 samples); no reference of this fabric says what it should be");
  EXPECT_EQ(judge_latency("x", "us", ten, Reference{4, "a table"}, 0.5).sentence,
            "10 us (95 %: 10 to 10, 8 samples) is more than the 8 us that are allowed: a table by 50 %");
  EXPECT_EQ(judge_latency("x", "us", ten, Reference{5, "a table"}, 0.5).sentence,
            "10 us (95 %: 10 to 10, 8 samples) is within the 10 us that are allowed: a table by 50 %");
  EXPECT_EQ(judge_floor("x", "GB/s", {}, twenty, 0.5).bound, 10) << "also of what was not measured";
  EXPECT_EQ(judge_floor("x", "GB/s", {}, twenty).sentence, "it was not measured");
  EXPECT_EQ(judge_ceiling("x", "GB/s", {}, 10).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge_ceiling("x", "GB/s", ten, 11).sentence,
            "10 GB/s (95 %: 10 to 10, 8 samples) is within the ceiling of 11 GB/s");
  EXPECT_EQ(judge_ceiling("x", "GB/s", ten, 9).sentence,
            "10 GB/s (95 %: 10 to 10, 8 samples) is more than the ceiling of 9 GB/s: the measurement is wrong");
  EXPECT_EQ(judge_exposed("x", {0.25, 0.25, 0.25}, 0.2).sentence,
            "25.0 % (95 %: 25.0 to 25.0, 3 steps) of a step exceeds the budget of 20 %");
  EXPECT_EQ(judge_slowdown("x", {1.5, 1.5}, 1.25).sentence,
            "1.5 times its time alone (95 %: 1.5 to 1.5, 2 samples) are more than the profile's 1.25");
  EXPECT_EQ(judge_slowdown("x", {1.5, 1.5}, std::nullopt).sentence,
            "1.5 times its time alone (95 %: 1.5 to 1.5, 2 samples); the profile has no limit");
  EXPECT_EQ(judge_floor("x", "GB/s", ten, twenty).rule, "floor");
  EXPECT_EQ(
      judge_tail("x", {0, 0, 0}).sentence,
      "the maximum is 0.00 times the median of 0 us, the deviation 0.0 % of the mean (3 samples); a p99 needs 100 "
      "samples");
}

TEST(VerdictTest, AShapeFallsFromTheBestOfTheSmallerSizes) {
  const auto shape = [](std::vector<SizeRate> sizes) { return judge_shape("x", std::move(sizes), 0.2); };
  const auto exactly = [](double rate) { return Interval{rate, rate, rate, 9}; };
  EXPECT_EQ(shape({{1, exactly(10)}}).verdict, Verdict::unrated);
  EXPECT_EQ(shape({{1, exactly(10)}}).sentence, "one size has no shape");
  EXPECT_EQ(shape({{4, exactly(8)}, {1, exactly(10)}}).verdict, Verdict::pass) << "by no more than a fifth";
  const Judgement falls = shape({{4, exactly(7)}, {1, exactly(10)}, {2, exactly(20)}});
  EXPECT_EQ(falls.verdict, Verdict::fail);
  EXPECT_EQ(falls.sentence, "4 B carry 7 GB/s, 65 % less than the 20 GB/s of 2 B");
  EXPECT_EQ(falls.bound, 16);
  EXPECT_EQ(falls.value.median, 7);
  const Judgement open = shape({{1, {10, 5, 12, 9}}, {2, {7, 6, 8, 9}}});
  EXPECT_EQ(open.verdict, Verdict::inconclusive);
  EXPECT_EQ(open.sentence, "2 B carry 7 GB/s, 30 % less than the 10 GB/s of 1 B, but both scatter too much to be sure");
  const Judgement later = shape({{1, {10, 9, 12, 9}}, {2, {7, 6, 8, 9}}, {3, exactly(5)}, {4, exactly(4)}});
  EXPECT_EQ(later.verdict, Verdict::fail) << "a later size is sure";
  EXPECT_EQ(later.sentence, "3 B carry 5 GB/s, 50 % less than the 10 GB/s of 1 B") << "the first that is";
  const Judgement touching = shape({{1, exactly(10)}, {2, {7, 6, 8, 9}}, {3, {6, 5, 9, 9}}});
  EXPECT_EQ(touching.verdict, Verdict::inconclusive) << "8 may be a fifth less";
  EXPECT_THAT(touching.sentence, ::testing::StartsWith("2 B carry 7 GB/s")) << "the first that is not";
  EXPECT_THAT(shape({{1, exactly(10)}, {2, exactly(10)}, {4, exactly(7)}}).sentence,
              ::testing::EndsWith("the 10 GB/s of 1 B"))
      << "the smallest of those that carry most";
  EXPECT_EQ(judge_shape("x", {{1, exactly(10)}, {2, exactly(9)}}, 0.6).sentence,
            "bandwidth does not fall by more than 60 % from a size to a larger one");
}

TEST(VerdictTest, WordsPlacesAndCodes) {
  const std::vector<Verdict> all{Verdict::pass, Verdict::unrated, Verdict::inconclusive, Verdict::fail};
  std::vector<std::string> told;
  for (const Verdict v : all) {
    told.push_back(std::string(to_string(v)) + ' ' + std::to_string(place_in_tables(v)) + ' ' +
                   std::to_string(exit_code(v, ExitCode::slower)));
  }
  EXPECT_THAT(told, ::testing::ElementsAre("pass 2 0", "unrated 3 11", "inconclusive 1 11", "fail 0 7"));
  EXPECT_EQ(held({5, 4, 6, 9}, 6, Good::below), Verdict::pass);
  EXPECT_EQ(held({5, 4, 6, 9}, 3.9, Good::below), Verdict::fail);
  EXPECT_EQ(held({5, 4, 6, 9}, 4, Good::below), Verdict::inconclusive);
  EXPECT_EQ(held({5, 4, 6, 9}, 4, Good::above), Verdict::pass);
  EXPECT_EQ(held({5, 4, 6, 9}, 6, Good::above), Verdict::inconclusive);
  EXPECT_EQ(held({5, 4, 6, 9}, 6.1, Good::above), Verdict::fail);
}

}  // namespace
}  // namespace fsdpbench::accept
