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
