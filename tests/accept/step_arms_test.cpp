#include "accept/step_arms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace fsdpbench::accept {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// 60 ms of computation and 40 ms of communication, of which 30 ms are hidden; each round a little different.
std::vector<ArmRound> rounds(double whole_ms = 70, double slowdown = 1.1) {
  std::vector<ArmRound> all;
  for (int i = 0; i < 8; ++i) {
    const double drift = 1 + 0.002 * i;
    all.push_back({.computation_ms = 60 * drift,
                   .communication_ms = 40 * drift,
                   .whole_ms = whole_ms * drift,
                   .kernels_alone_ms = 50 * drift,
                   .kernels_beside_ms = 50 * slowdown * drift,
                   .transfers_alone_ms = 38 * drift,
                   .transfers_beside_ms = 57 * drift});
  }
  return all;
}

const Judgement& of(const std::vector<Judgement>& all, const std::string& rule, const std::string& figure) {
  for (const Judgement& j : all) {
    if (j.rule == rule && j.figure.find(figure) != std::string::npos) return j;
  }
  throw std::out_of_range(rule);
}

TEST(StepArms, WhatAStepTakesBeyondItsComputationIsExposed) {
  const std::vector<Judgement> all = judge_arms(rounds(), {.exposed = 0.2}, {});
  EXPECT_NEAR(of(all, "exposed communication", "a step").value.median, 10.0 / 70, 1e-12);
  EXPECT_EQ(of(all, "exposed communication", "a step").verdict, Verdict::pass);
  EXPECT_EQ(of(judge_arms(rounds(), {.exposed = 0.1}, {}), "exposed communication", "a step").verdict, Verdict::fail);
  EXPECT_NEAR(of(all, "overlap", "shorter").value.median, 30.0 / 40, 1e-12);
  EXPECT_EQ(of(all, "overlap", "shorter").verdict, Verdict::unrated);
}

TEST(StepArms, AShareBelowZeroSaysWhy) {
  EXPECT_THAT(of(judge_arms(rounds(110), {}, {}), "overlap", "shorter").sentence,
              AllOf(HasSubstr("-25.0 %"), HasSubstr("longer than one after the other")));
}

TEST(StepArms, WhoSlowsWhomIsToldBothWays) {
  const std::vector<Judgement> all = judge_arms(rounds(), {}, {});
  EXPECT_NEAR(of(all, "slow-down", "computation beside").value.median, 1.1, 1e-12);
  EXPECT_NEAR(of(all, "slow-down", "communication beside").value.median, 1.5, 1e-12);
  EXPECT_EQ(of(all, "slow-down", "computation beside").verdict, Verdict::unrated);
  const ArmBounds bounds{.slowdown = 1.15};
  EXPECT_EQ(of(judge_arms(rounds(), bounds, {}), "slow-down", "computation").verdict, Verdict::pass);
  EXPECT_EQ(of(judge_arms(rounds(70, 1.3), bounds, {}), "slow-down", "computation").verdict, Verdict::fail);
}

TEST(StepArms, NoRoundIsInconclusiveAndSaysWhy) {
  for (const Judgement& j : judge_arms({}, {.slowdown = 1.1}, "the budget was spent")) {
    EXPECT_EQ(j.verdict, Verdict::inconclusive);
    EXPECT_EQ(j.sentence, "the budget was spent");
  }
}

TEST(StepArms, SentencesHaveTheMediansOfTheArms) {
  const ArmRound round{.computation_ms = 60,
                       .communication_ms = 40,
                       .whole_ms = 70,
                       .kernels_alone_ms = 50,
                       .kernels_beside_ms = 55,
                       .transfers_alone_ms = 38,
                       .transfers_beside_ms = 57};
  const std::vector<Judgement> all =
      judge_arms(std::vector<ArmRound>(8, round), {.exposed = 0.2, .slowdown = 1.05}, {});
  EXPECT_EQ(
      of(all, "overlap", "shorter").sentence,
      "computation alone takes 60 ms, communication alone 40 ms and the step 70 ms: 75.0 % (95 %: 75.0 to 75.0, 8 "
      "rounds) of the shorter is hidden");
  EXPECT_EQ(of(all, "slow-down", "computation beside").bound, 1.05);
  EXPECT_EQ(of(all, "slow-down", "computation beside").verdict, Verdict::fail);
  EXPECT_EQ(of(all, "exposed communication", "a step").bound, 0.2);
  ArmRound none = round;
  none.kernels_alone_ms = none.transfers_alone_ms = none.whole_ms = none.communication_ms = 0;
  for (const Judgement& j : judge_arms({none}, {}, "why")) {
    EXPECT_EQ(j.value.n, 0) << j.figure;
    EXPECT_EQ(j.sentence, "why");
  }
  ArmRound small = round;  // each arm below a millisecond; nothing of the shorter is hidden
  small.computation_ms = small.kernels_alone_ms = small.transfers_alone_ms = 0.25;
  small.communication_ms = 0.5;
  small.whole_ms = 0.75;
  const std::vector<Judgement> one = judge_arms({small}, {}, "why");
  EXPECT_EQ(of(one, "overlap", "shorter").sentence,
            "computation alone takes 0.25 ms, communication alone 0.5 ms and the step 0.75 ms: 0.0 % (95 %: 0.0 to "
            "0.0, 1 rounds) of the shorter is hidden");
  EXPECT_EQ(of(one, "overlap", "shorter").verdict, Verdict::unrated);
  for (const Judgement& j : one) EXPECT_EQ(j.value.n, 1) << j.figure;
}

TEST(StepArms, DriftIsOfTheLastThirdOverTheFirst) {
  const auto drift = [](std::size_t rounds, double from, double factor) {
    std::vector<ArmRound> all(rounds, ArmRound{.computation_ms = 10, .communication_ms = 20, .whole_ms = 30});
    for (std::size_t i = static_cast<std::size_t>(from * static_cast<double>(rounds)); i < rounds; ++i)
      all[i].whole_ms *= factor;
    return judge_drift(all).back();
  };
  EXPECT_EQ(drift(17, 1, 1).verdict, Verdict::inconclusive);
  EXPECT_EQ(drift(17, 1, 1).sentence, "17 rounds are too few: 18 are needed");
  EXPECT_EQ(drift(18, 1, 1).verdict, Verdict::pass);
  EXPECT_EQ(drift(18, 1, 1).value.n, 6);
  EXPECT_EQ(drift(18, 0.67, 1.029).verdict, Verdict::pass);
  EXPECT_EQ(drift(18, 0.67, 1.031).verdict, Verdict::fail);
  EXPECT_EQ(drift(18, 0.34, 1.2).value.median, 1.2) << "the middle third counts not";
  EXPECT_EQ(drift(18, 0, 1.2).value.median, 1);
  std::vector<ArmRound> all(18);
  for (std::size_t i = 0; i < 18; ++i) {  // median 3.5, what does not count, and twice as much as in the beginning
    all[i].whole_ms = i < 6 ? static_cast<double>(i + 1) : i < 12 ? 100 : 7;
  }
  const Interval twice = judge_drift(all).back().value;
  EXPECT_EQ(twice.median, 2);
  EXPECT_EQ(twice.high, 2);
  const Judgement some = drift(18, 0.84, 1.2);  // half of the last third
  EXPECT_EQ(some.verdict, Verdict::inconclusive);
  EXPECT_EQ(some.sentence,
            "over 18 rounds the last third took 110.0 % (95 %: 100.0 to 120.0, 6 rounds) of the first's time, on both "
            "sides of the 103 % that are allowed");
  EXPECT_EQ(some.bound, 1.03);
  EXPECT_EQ(some.unit, "of the first third's time");
  EXPECT_EQ(judge_drift(std::vector<ArmRound>(30)).front().verdict, Verdict::inconclusive) << "arms of no time";
}

TEST(StepArms, WhatGrowsSlowerOverTimeIsNamed) {
  std::vector<ArmRound> steady(30, rounds().front());
  for (const Judgement& j : judge_drift(steady)) EXPECT_EQ(j.verdict, Verdict::pass) << j.figure;
  std::vector<ArmRound> throttling = steady;  // as a GPU that grows hot
  for (std::size_t i = 0; i < throttling.size(); ++i) {
    throttling[i].computation_ms *= 1 + 0.005 * static_cast<double>(i);
  }
  const std::vector<Judgement> drifts = judge_drift(throttling);
  EXPECT_EQ(of(drifts, "drift", "computation").verdict, Verdict::fail);
  EXPECT_EQ(of(drifts, "drift", "communication").verdict, Verdict::pass);
  EXPECT_THAT(of(drifts, "drift", "computation").sentence, HasSubstr("over 30 rounds the last third took 109."));
  for (const Judgement& j : judge_drift(rounds())) EXPECT_EQ(j.verdict, Verdict::inconclusive);
}

}  // namespace
}  // namespace fsdpbench::accept
