#include "account/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <stdexcept>

namespace fsdpbench::account {
namespace {

using Trials = std::vector<std::vector<double>>;

/// Step times as a shared machine has them: drift that both sides feel, a luck that all steps of a trial share, noise
/// from step to step with bursts of foreign load.
class Machine {
 public:
  Machine(double noise, unsigned seed) : random_(seed), noise_(noise) {}

  void compare(double factor, int trials, Trials& a, Trials& b) {
    for (int i = 0; i < trials; ++i) {
      const bool a_first = i % 2 == 0;
      for (const bool first : {true, false}) (first == a_first ? a : b).push_back(trial(first == a_first ? 1 : factor));
    }
  }

 private:
  std::vector<double> trial(double factor) {
    drift_ += normal_(random_) * noise_ / 2;
    const double luck = drift_ + normal_(random_) * noise_;
    std::vector<double> steps(10);
    for (double& step : steps) {
      const double burst = uniform_(random_) < 0.1 ? 0.3 * uniform_(random_) : 0;
      step = factor * 90 * std::exp(luck + 0.03 * normal_(random_) + burst);
    }
    return steps;
  }

  std::mt19937 random_;
  std::normal_distribution<double> normal_{0, 1};
  std::uniform_real_distribution<double> uniform_{0, 1};
  double noise_;
  double drift_ = 0;
};

int count(Verdict verdict, double factor, double noise, int trials, int comparisons, unsigned seed) {
  int found = 0;
  for (int i = 0; i < comparisons; ++i) {
    Machine machine(noise, seed + static_cast<unsigned>(i));
    Trials a, b;
    machine.compare(factor, trials, a, b);
    found += compare_samples(a, b).verdict == verdict ? 1 : 0;
  }
  return found;
}

TEST(CompareSamples, FortyComparisonsOfEqualsGiveAtMostTwoFalseDifferences) {
  for (const double noise : {0.005, 0.01, 0.02}) {
    for (const unsigned seed : {1000U, 2000U, 3000U}) {
      EXPECT_GE(count(Verdict::no_difference, 1.0, noise, 12, 40, seed), 38) << noise << ' ' << seed;
    }
  }
}

TEST(CompareSamples, FewTrialsDoNotMakeItRash) {
  for (const int trials : {3, 4, 5, 6, 8}) {
    EXPECT_GE(count(Verdict::no_difference, 1.0, 0.01, trials, 200, 500), 190) << trials;
  }
}

TEST(CompareSamples, FindsASlowdownOfFivePercent) {
  for (const double noise : {0.005, 0.01, 0.015}) {
    EXPECT_GE(count(Verdict::slower, 1.05, noise, 12, 20, 10), 19) << noise;
  }
}

TEST(CompareSamples, FindsASpeedup) { EXPECT_GE(count(Verdict::faster, 1 / 1.05, 0.01, 12, 20, 20), 19); }

TEST(CompareSamples, ACertainButTinyDifferenceIsNone) {
  const Trials a(6, {100.0, 100.0}), b(6, {100.5, 100.5});
  const Comparison c = compare_samples(a, b);
  EXPECT_EQ(c.verdict, Verdict::no_difference);
  EXPECT_NEAR(c.ratio, 1.005, 1e-9);
  EXPECT_GT(c.ci_low, 1);
  EXPECT_EQ(compare_samples(a, b, 0.004).verdict, Verdict::slower);
}

TEST(CompareSamples, DriftCancelsWithinPairs) {
  Trials a, b;
  for (int i = 0; i < 8; ++i) {
    a.push_back({100.0 + 20 * i});
    b.push_back({(100.0 + 20 * i) * 1.05 + 0.1 * (i % 2)});
  }
  const Comparison c = compare_samples(a, b);
  EXPECT_NEAR(c.ratio, 1.05, 0.002);
  EXPECT_EQ(c.verdict, Verdict::slower);
}

TEST(CompareSamples, TheIntervalHoldsTheRatio) {
  Machine machine(0.02, 77);
  Trials a, b;
  machine.compare(1.1, 10, a, b);
  const Comparison c = compare_samples(a, b);
  EXPECT_LE(c.ci_low, c.ratio);
  EXPECT_GE(c.ci_high, c.ratio);
  ASSERT_TRUE(c.aa_noise);
  EXPECT_GT(*c.aa_noise, 0);
}

TEST(CompareSamples, RefusesTooFewOrUnequalTrials) {
  const Trials two(2, {1.0}), three(3, {1.0}), four(4, {1.0});
  EXPECT_THROW(compare_samples(two, two), std::invalid_argument);
  EXPECT_THROW(compare_samples(three, four), std::invalid_argument);
  EXPECT_NO_THROW(compare_samples(three, three));
}

TEST(AaNoise, GrowsWithTheNoiseAndIsZeroWithout) {
  EXPECT_EQ(aa_noise(std::vector<double>(10, 3.0)), 0.0);
  Machine quiet(0, 1), loud(0.1, 1);
  const auto noise_of = [](Machine& machine) {
    Trials a, b;
    machine.compare(1, 20, a, b);
    std::vector<double> steps;
    for (const auto& trial : a) steps.push_back(trial.front());
    return aa_noise(steps).value();
  };
  EXPECT_LT(noise_of(quiet), noise_of(loud));
}

TEST(AaNoise, TooFewValuesSayNothing) { EXPECT_FALSE(aa_noise({1, 2, 3})); }

TEST(CompareRuns, TheStepsOfTwoRunsAreComparedAsTheyAre) {
  const std::vector<double> a{100, 101, 99, 100, 102}, b{110, 111, 109, 110, 112};
  const Comparison c = compare_runs(a, b);
  EXPECT_DOUBLE_EQ(c.median_a, 100);
  EXPECT_DOUBLE_EQ(c.median_b, 110);
  EXPECT_DOUBLE_EQ(c.ratio, 1.1);
  EXPECT_LE(c.ci_low, c.ratio);
  EXPECT_GE(c.ci_high, c.ratio);
  EXPECT_EQ(c.verdict, Verdict::slower);
  EXPECT_FALSE(c.aa_noise.has_value());
  EXPECT_EQ(compare_runs(b, a).verdict, Verdict::faster);
  EXPECT_EQ(compare_runs(a, b, 0.2).verdict, Verdict::no_difference) << "below the threshold";
}

TEST(CompareRuns, StepsThatOverlapDoNotDiffer) {
  const std::vector<double> a{100, 140, 90, 105, 120}, b{104, 95, 150, 110, 108};
  EXPECT_EQ(compare_runs(a, b).verdict, Verdict::no_difference);
  EXPECT_THROW(compare_runs({1, 2}, {1, 2, 3}), std::invalid_argument);
}

}  // namespace
}  // namespace fsdpbench::account
