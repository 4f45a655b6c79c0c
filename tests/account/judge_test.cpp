// One question, whether a figure has changed: how often the answer is false on an unchanged machine, how often a change
// is found, and what each part of the rule is for.

#include "account/judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <stdexcept>
#include <tuple>

#include "base/student.h"

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

  std::vector<double> trial(double factor, int count = 10) {
    drift_ += normal_(random_) * noise_ / 2;
    const double luck = drift_ + normal_(random_) * noise_;
    std::vector<double> steps(static_cast<std::size_t>(count));
    for (double& step : steps) {
      const double burst = uniform_(random_) < 0.1 ? 0.3 * uniform_(random_) : 0;
      step = factor * 90 * std::exp(luck + 0.03 * normal_(random_) + burst);
    }
    return steps;
  }

  /// One value of a result, which scatters by `noise` from result to result.
  double result(double factor = 1) { return factor * 90 * std::exp(noise_ * normal_(random_)); }

 private:
  std::mt19937 random_;
  std::normal_distribution<double> normal_{0, 1};
  std::uniform_real_distribution<double> uniform_{0, 1};
  double noise_;
  double drift_ = 0;
};

/// Answers of a thousand comparisons and more.
struct Answers {
  int of = 0, faster = 0, slower = 0, none = 0, inconclusive = 0;
  int missed = 0;     ///< intervals without the true ratio
  int too_small = 0;  ///< changes that were less than at_most allows

  void add(const Difference& d, double truth) {
    ++of;
    faster += d.verdict == Verdict::faster ? 1 : 0;
    slower += d.verdict == Verdict::slower ? 1 : 0;
    none += d.verdict == Verdict::no_difference ? 1 : 0;
    inconclusive += d.verdict == Verdict::inconclusive ? 1 : 0;
    missed += d.low > truth || d.high < truth ? 1 : 0;
    too_small += d.at_most < truth ? 1 : 0;
  }
  double share(int count) const { return 100.0 * count / of; }
};

Answers in_turns(double factor, double noise, int trials, int comparisons, double threshold = kPracticalThreshold) {
  Answers answers;
  for (int i = 0; i < comparisons; ++i) {
    Machine machine(noise, static_cast<unsigned>(1000 * trials + i));
    Trials a, b;
    machine.compare(factor, trials, a, b);
    answers.add(judge_in_turns(a, b, threshold), factor);
  }
  return answers;
}

/// `figures` at once against several results; what any of them says of an unchanged machine, and what the first says.
std::pair<Answers, int> against_results(double factor, double noise, int results, int gated, int figures, int gates,
                                        double threshold = 0.05) {
  Answers first;
  int accused = 0;
  for (int gate = 0; gate < gates; ++gate) {
    Machine machine(noise, static_cast<unsigned>(gate));
    bool any = false;
    for (int figure = 0; figure < figures; ++figure) {
      Samples before, now;
      for (int i = 0; i < results; ++i) before.results.push_back(machine.result());
      for (int i = 0; i < gated; ++i) now.results.push_back(machine.result(figure == 0 ? factor : 1));
      before.value = median_interval(before.results);
      now.value = median_interval(now.results);
      const Difference d = judge(before, now, {.threshold = threshold, .tail = 0.012, .figures = figures});
      if (figure == 0) first.add(d, factor);
      any = any || d.verdict == Verdict::slower;
    }
    accused += any ? 1 : 0;
  }
  return {first, accused};
}

/// Ratios of e^0.01 to e^0.04: their logarithms scatter by a variance of 5/3 of 0.01^2 around 0.025. Also of values
/// below 1.
TEST(InTurns, TheIntervalIsStudentsOfTheRatiosOfEachTurn) {
  for (const double scale : {1.0, 1e-3}) {
    Samples before, now;
    for (const double log : {0.01, 0.02, 0.03, 0.04}) {
      before.results.push_back(scale);
      now.results.push_back(scale * std::exp(log));
    }
    before.value = median_interval(before.results);
    now.value = median_interval(now.results);
    const Difference d = judge(before, now, {.threshold = 0.02, .tail = 0.025, .in_turns = true});
    const double width = 3.18245 * 0.01 * std::sqrt(5 / 3.0 / 4);
    EXPECT_NEAR(std::log(d.ratio), 0.025, 1e-12);
    EXPECT_NEAR(std::log(d.low), 0.025 - width, 1e-6);
    EXPECT_NEAR(std::log(d.high), 0.025 + width, 1e-6);
    EXPECT_EQ(d.verdict, Verdict::slower);
    EXPECT_EQ(judge(before, now, {.threshold = 0.02, .tail = 0.025}).evidence, RestsOn::results);
    before.repetitions = now.repetitions = before.results;
    before.results.clear();
    EXPECT_EQ(judge(before, now, {.threshold = 0.02, .tail = 0.025}).evidence, RestsOn::samples);
  }
}

TEST(InTurns, EqualsAreCalledDifferentInAtMostTwoOfAHundred) {
  for (const double noise : {0.01, 0.05}) {
    for (const int trials : {3, 4, 5, 6, 8, 12}) {
      for (const double threshold : {kPracticalThreshold, 1e-6}) {  // without the second, the interval alone decides
        const Answers equals = in_turns(1, noise, trials, 2000, threshold);
        EXPECT_LE(equals.share(equals.faster + equals.slower), 2) << noise << ' ' << trials << ' ' << threshold;
      }
    }
  }
}

TEST(InTurns, TheIntervalIsOneOfNinetyNinePercent) {
  for (const int trials : {3, 6, 12}) {
    const Answers answers = in_turns(1.03, 0.02, trials, 8000);
    EXPECT_LE(answers.share(answers.missed), 1.6) << trials;
    EXPECT_GE(answers.share(answers.missed), 0.4) << trials << ": wider than it must be";
  }
}

TEST(InTurns, FivePercentIsFound) {
  for (const double noise : {0.005, 0.01, 0.015}) {
    const Answers slow = in_turns(1.05, noise, 12, 1000), fast = in_turns(1 / 1.05, noise, 12, 1000);
    EXPECT_GE(slow.share(slow.slower), 95) << noise;
    EXPECT_GE(fast.share(fast.faster), 95) << noise;
    EXPECT_EQ(slow.faster + fast.slower, 0) << noise;
  }
}

TEST(InTurns, APairThatSomethingElseDisturbedIsLeftOut) {
  Trials a(12, {100.0, 100.0}), b(12, {105.0, 105.0});
  for (std::size_t i = 0; i < b.size(); ++i) b[i].assign(2, 104.5 + 0.1 * static_cast<double>(i));
  b[5] = {150, 150};
  const Difference d = judge_in_turns(a, b);
  EXPECT_NEAR(d.ratio, 1.05, 0.002);
  EXPECT_EQ(d.verdict, Verdict::slower);
  EXPECT_LT(d.high, 1.06);
}

TEST(InTurns, DriftCancelsWithinPairs) {
  Trials a, b;
  for (int i = 0; i < 8; ++i) {
    a.push_back({100.0 + 20 * i});
    b.push_back({(100.0 + 20 * i) * 1.05 + 0.1 * (i % 2)});
  }
  const Difference d = judge_in_turns(a, b);
  EXPECT_NEAR(d.ratio, 1.05, 0.002);
  EXPECT_EQ(d.verdict, Verdict::slower);
}

TEST(InTurns, RefusesTooFewOrUnequalTrials) {
  const Trials two(2, {1.0}), three(3, {1.0}), four(4, {1.0});
  EXPECT_THROW(judge_in_turns(two, two), std::invalid_argument);
  EXPECT_THROW(judge_in_turns(three, four), std::invalid_argument);
  EXPECT_NO_THROW(judge_in_turns(three, three));
}

/// Twenty figures may each be wrong by chance: without the correction one of them is in every fifth gate.
TEST(SeveralResults, TwentyFiguresTogetherAccuseInAtMostTwoOfAHundred) {
  for (const int results : {3, 5, 10}) {
    for (const int gated : {1, 3}) {
      const auto [first, accused] = against_results(1, 0.05, results, gated, 20, 2000);
      EXPECT_LE(accused, 40) << results << ' ' << gated;
      EXPECT_EQ(first.of, 2000);
    }
  }
}

TEST(SeveralResults, OneFigureAccusesInOneToTwoOfAHundred) {
  const auto [first, accused] = against_results(1, 0.05, 5, 1, 1, 8000, 1e-6);
  EXPECT_LE(first.share(accused), 2);
  EXPECT_GE(first.share(accused), 0.8) << "stricter than it must be: less is found";
}

TEST(SeveralResults, FivePercentIsFound) {
  for (const auto& [results, gated, noise] :
       {std::tuple{3, 1, 0.0025}, {5, 1, 0.006}, {5, 3, 0.008}, {10, 1, 0.009}, {10, 3, 0.013}}) {
    const Answers slow = against_results(1.05, noise, results, gated, 1, 1000).first;
    EXPECT_GE(slow.share(slow.slower), 95) << results << ' ' << gated << ' ' << noise;
    const Answers same = against_results(1, noise, results, gated, 1, 1000).first;
    EXPECT_GE(same.share(same.none), 90) << results << ' ' << gated << ' ' << noise;
  }
}

TEST(SeveralResults, WhatIsWorseByTheThresholdIsNoDifferenceInAtMostFiveOfAHundred) {
  for (const int results : {3, 5, 10}) {
    for (const double noise : {0.005, 0.01, 0.02, 0.04}) {
      const Answers worse = against_results(1.05, noise, results, 1, 1, 4000).first;
      EXPECT_LE(worse.share(worse.none), 5) << results << ' ' << noise;
      EXPECT_LE(worse.share(worse.too_small), 5) << results << ' ' << noise;
      EXPECT_GE(worse.share(worse.too_small), 3) << results << ' ' << noise << ": at_most is more than it must be";
    }
  }
}

Samples of_steps(std::vector<double> steps) {
  Samples samples{.results = {median(steps)}, .repetitions = steps, .value = median_interval(steps)};
  return samples;
}

/// The steps of two runs whose luck is the same.
TEST(TwoRuns, EqualsAreCalledDifferentInAtMostTwoOfAHundredAndFivePercentIsFound) {
  for (const int steps : {3, 10, 100}) {
    Answers equals, slow;
    for (unsigned i = 0; i < 2000; ++i) {
      Machine machine(0, i);
      const Samples a = of_steps(machine.trial(1, steps));
      equals.add(judge(a, of_steps(machine.trial(1, steps)), {.threshold = 1e-6}), 1);
      slow.add(judge(a, of_steps(machine.trial(1.05, steps)), {}), 1.05);
    }
    EXPECT_LE(equals.share(equals.faster + equals.slower), 2) << steps;
    EXPECT_EQ(slow.faster, 0) << steps;
    if (steps >= 100) {
      EXPECT_GE(slow.share(slow.slower), 95) << steps;
    }
  }
}

TEST(TwoRuns, AFewStepsThatTookFarLongerHideNoChange) {
  std::vector<double> steps(100, 10.0), slow(100, 10.5);
  for (std::size_t i = 0; i < 100; ++i) {
    steps[i] += 0.02 * static_cast<double>(i % 7);
    slow[i] += 0.02 * static_cast<double>(i % 7);
  }
  for (const std::size_t i : {10U, 40U, 90U}) steps[i] = slow[i] = 200;
  const Difference d = judge(of_steps(steps), of_steps(slow), {});
  EXPECT_EQ(d.verdict, Verdict::slower);
  EXPECT_LT(d.high - d.low, 0.01);
  EXPECT_EQ(d.evidence, RestsOn::samples);
}

TEST(TwoRuns, StepsThatAreAllAlikeAreExact) {
  const Difference d = judge(of_steps(std::vector<double>(7, 152.3)), of_steps(std::vector<double>(9, 232.1)), {});
  EXPECT_EQ(d.low, d.ratio);
  EXPECT_EQ(d.high, d.ratio);
}

TEST(TwoRuns, StepsThatOverlapShowNothing) {
  EXPECT_EQ(judge(of_steps({100, 140, 90, 105, 120}), of_steps({104, 95, 150, 110, 108}), {}).verdict,
            Verdict::inconclusive);
}

TEST(TwoRuns, WhatRunsMayDifferByIsNoChange) {
  const Samples a = of_steps({10, 10, 10, 10, 10}), b = of_steps({11, 11, 11, 11, 11});
  EXPECT_EQ(judge(a, b, {}).verdict, Verdict::slower);
  const Difference d = judge(a, b, {.unseen = 1.2});
  EXPECT_EQ(d.verdict, Verdict::inconclusive);
  EXPECT_DOUBLE_EQ(d.low, 1.1 / 1.2);
  EXPECT_DOUBLE_EQ(d.high, 1.1 * 1.2);
  EXPECT_DOUBLE_EQ(d.at_most, 1.1 * 1.2);
  EXPECT_DOUBLE_EQ(d.at_least, 1.1 / 1.2);
}

Samples interval(double median, double low, double high) { return {.value = {median, low, high, 20}}; }

TEST(Threshold, LessIsNoDifferenceHoweverCertain) {
  const Trials a(6, {100.0, 100.0}), b(6, {100.5, 100.5});
  const Difference d = judge_in_turns(a, b);
  EXPECT_EQ(d.verdict, Verdict::no_difference);
  EXPECT_NEAR(d.ratio, 1.005, 1e-9);
  EXPECT_GT(d.low, 1);
  EXPECT_EQ(judge_in_turns(a, b, 0.004).verdict, Verdict::slower);
  EXPECT_EQ(judge_in_turns(b, a, 0.004).verdict, Verdict::faster);
}

TEST(Threshold, HalfOfItMustBeMeasuredAndAllOfItPossible) {
  const Samples before = interval(100, 100, 100);
  const auto verdict = [&](double median, double low, double high, double threshold = 0.05) {
    return judge(before, interval(median, low, high), {.threshold = threshold}).verdict;
  };
  EXPECT_EQ(verdict(102.6, 101, 105.5), Verdict::slower);
  EXPECT_EQ(verdict(102.4, 101, 105.5), Verdict::inconclusive) << "less than half";
  EXPECT_EQ(verdict(102.6, 101, 104.9), Verdict::no_difference) << "5 % is excluded";
  EXPECT_EQ(verdict(104, 99, 109), Verdict::inconclusive) << "it is not certain";
  EXPECT_EQ(verdict(104, 99, 109, 0.1), Verdict::no_difference);
  EXPECT_EQ(verdict(97, 95, 99.5), Verdict::faster);
  EXPECT_EQ(verdict(98, 94, 101), Verdict::inconclusive) << "it may be better by the threshold";
}

TEST(Threshold, OfARateLessIsWorse) {
  const Rule rule{.threshold = 0.05, .more_is_better = true};
  const Difference d = judge(interval(100, 100, 100), interval(90, 88, 92), rule);
  EXPECT_EQ(d.verdict, Verdict::slower);
  EXPECT_DOUBLE_EQ(d.low, 0.88);
  EXPECT_DOUBLE_EQ(d.at_most, 1 / 0.88);
  EXPECT_EQ(judge(interval(90, 90, 90), interval(100, 98, 102), rule).verdict, Verdict::faster);
}

TEST(OtherWork, MayHaveSlowedEitherSide) {
  Samples before = interval(100, 100, 100), now = interval(108, 108, 108);
  EXPECT_EQ(judge(before, now, {}).verdict, Verdict::slower);
  now.slowed = 1.25;
  EXPECT_DOUBLE_EQ(judge(before, now, {}).low, 1.08 / 1.25);
  EXPECT_DOUBLE_EQ(judge(before, now, {}).at_least, 1.08 / 1.25);
  EXPECT_EQ(judge(before, now, {}).verdict, Verdict::inconclusive);
  before.slowed = 1.1;
  EXPECT_DOUBLE_EQ(judge(before, now, {}).at_most, 1.08 * 1.1);
  const Difference rate = judge(before, now, {.more_is_better = true});
  EXPECT_DOUBLE_EQ(rate.low, 1.08 / 1.1);
  EXPECT_DOUBLE_EQ(rate.high, 1.08 * 1.25);
}

TEST(KnownScatter, OfOtherFiguresWidensAndNeverNarrows) {
  Samples before{.results = {100, 100.1, 99.9}, .value = {100, 99.9, 100.1, 3}}, now = interval(100, 100, 100);
  now.results = {100};
  const auto width = [&](double deviation) {
    const Difference d = judge(before, now, {.also = {{deviation * deviation, 3}}});
    return std::log(d.high / d.low);
  };
  EXPECT_GT(width(0.16), width(0.05));
  // Less scatter elsewhere makes a figure's own no smaller; that it rests on more values does.
  EXPECT_DOUBLE_EQ(width(0), width(0.0005));
}

TEST(Evidence, WhatIsCountedIsCertainAndASingleNumberIsNothing) {
  const Samples few{.results = {100}, .repetitions = {100}, .value = {100, 100, 100, 1}};
  Samples more = few;
  more.value.median = 106;
  EXPECT_EQ(judge(few, more, {.threshold = 0.05, .counted = true}).verdict, Verdict::slower);
  EXPECT_EQ(judge(few, few, {.threshold = 0, .counted = true}).verdict, Verdict::no_difference);
  EXPECT_EQ(judge(few, more, {.threshold = 0.05}).verdict, Verdict::inconclusive);
  EXPECT_EQ(judge(few, more, {.threshold = 0.05}).evidence, RestsOn::numbers);
  more.slowed = 2;  // other work changes no count, and what one number says is not known any better
  for (const bool counted : {true, false}) {
    const Difference d = judge(few, more, {.threshold = 0.05, .counted = counted});
    EXPECT_DOUBLE_EQ(d.low, 1.06);
    EXPECT_DOUBLE_EQ(d.high, 1.06);
  }
}

/// Variance of the median of n normal values of variance 1.
double varies(int n) {
  return n == 1 ? 1.0 : n == 3 ? 1.346 / 3 : n == 4 ? 1.193 / 4 : n == 10 ? 1.383 / 10 : std::numbers::pi / 2 / n;
}

/// `n` values whose logarithms scatter by a variance of 0.01 around that of `middle`.
std::vector<double> scattering(int n, double middle) {
  std::vector<double> values;
  double squares = 0;
  for (int i = 0; i < n; ++i) squares += (i - (n - 1) / 2.0) * (i - (n - 1) / 2.0);
  const double step = n == 1 ? 0 : std::sqrt(0.01 * (n - 1) / squares);
  for (int i = 0; i < n; ++i) values.push_back(middle * std::exp(step * (i - (n - 1) / 2.0)));
  return values;
}

TEST(SeveralResults, TheIntervalIsStudentsByTheScatterOfTheEarlierOnes) {
  for (const auto& [earlier, later] : {std::pair{3, 1}, {4, 3}, {10, 1}, {11, 1}, {12, 12}}) {
    Samples before{.results = scattering(earlier, 100)}, now{.results = scattering(later, 110)};
    before.value = median_interval(before.results);
    now.value = median_interval(now.results);
    const Rule rule{.tail = 0.012, .figures = 4};
    const Difference d = judge(before, now, rule);
    const double error = std::sqrt(0.01 * (varies(earlier) + varies(later)));
    const double width = student_quantile(0.003, earlier - 1) * error;
    EXPECT_EQ(d.evidence, RestsOn::results);
    EXPECT_NEAR(std::log(d.high / d.ratio), width, 1e-9) << earlier << ' ' << later;
    EXPECT_NEAR(std::log(d.ratio / d.low), width, 1e-9) << earlier << ' ' << later;
    const double likely = student_quantile(0.04, earlier - 1) * error;
    EXPECT_NEAR(std::log(d.at_most / d.ratio), likely, 1e-9);
    EXPECT_NEAR(std::log(d.ratio / d.at_least), likely, 1e-9);
    const Difference rate = judge(before, now, {.more_is_better = true});
    EXPECT_NEAR(std::log(rate.at_most * d.ratio), likely, 1e-9) << "of a rate less is worse";
  }
}

TEST(SeveralResults, WhatIsKnownFromElsewhereCountsAsSoManyResults) {
  Samples before{.results = scattering(3, 100)}, now{.results = {100}};
  before.value = median_interval(before.results);
  now.value = median_interval(now.results);
  // 2 values that scatter by 0.01 and 4 by 0.04: by 0.03, and as sure as 6 of them are.
  const Difference d = judge(before, now, {.also = {{0.04, 4}}});
  EXPECT_NEAR(std::log(d.high), student_quantile(kTail, 6) * std::sqrt(0.03 * (1.346 / 3 + 1)), 1e-9);
  // Less elsewhere makes it no smaller.
  const Difference less = judge(before, now, {.also = {{0.001, 3}, {0.001, 1}}});
  EXPECT_NEAR(std::log(less.high), student_quantile(kTail, 6) * std::sqrt(0.01 * (1.346 / 3 + 1)), 1e-9);
}

TEST(TwoRuns, TheScatterIsThatOfBothSides) {
  Samples before{.results = {100}, .repetitions = scattering(4, 100)};
  Samples now{.results = {100}, .repetitions = {100, 100, 100, 100, 100, 100, 100, 100, 100, 100}};
  before.value = median_interval(before.repetitions);
  now.value = median_interval(now.repetitions);
  const Difference d = judge(before, now, {});
  EXPECT_EQ(d.evidence, RestsOn::samples);
  // 3 degrees of freedom that scatter by 0.01, and 9 that do not.
  const double error = std::sqrt(0.01 * 3 / 12 * (1.193 / 4 + 1.383 / 10));
  EXPECT_NEAR(std::log(d.high / d.ratio), student_quantile(kTail, 12) * error, 1e-9);
}

TEST(Evidence, IsTheBestThatBothSidesHave) {
  const auto rests = [](std::vector<double> results, std::vector<double> repetitions, Estimate value,
                        std::vector<double> now = {5, 5, 5}) {
    const Samples before{.results = std::move(results), .repetitions = std::move(repetitions), .value = value};
    return judge(before, {.results = {5}, .repetitions = std::move(now), .value = {5, 4, 6, 3}}, {}).evidence;
  };
  const Estimate known{5, 4, 6, 3};
  EXPECT_EQ(rests({5, 5, 5}, {}, known), RestsOn::results);
  EXPECT_EQ(rests({5, 5}, {5, 5, 5}, known), RestsOn::samples);
  EXPECT_EQ(rests({5, 5, 0}, {5, 5, 5}, known), RestsOn::samples) << "0 has no logarithm";
  EXPECT_EQ(rests({5}, {5, 5}, known), RestsOn::intervals);
  EXPECT_EQ(rests({5}, {5, 5, 0}, known), RestsOn::intervals);
  EXPECT_EQ(rests({5}, {5, 5, 5}, known, {5, 5}), RestsOn::intervals);
  EXPECT_EQ(rests({5}, {5, 5, 5}, known, {5, 5, 0}), RestsOn::intervals);
  EXPECT_EQ(rests({5}, {}, {5, 4, 6, 1}), RestsOn::numbers);
  EXPECT_EQ(rests({5}, {}, {5, 0, 6, 3}), RestsOn::numbers);
  EXPECT_EQ(to_string(RestsOn::turns), "trials in turns");
  EXPECT_EQ(to_string(Verdict::no_difference), "no difference");
}

TEST(Threshold, IsReachedByWhatIsJustAsMuch) {
  const Samples before = interval(64, 64, 64);
  const auto verdict = [&](double median, double low, double high, double threshold) {
    return judge(before, interval(median, low, high), {.threshold = threshold}).verdict;
  };
  EXPECT_EQ(verdict(72, 65, 80, 0.25), Verdict::slower) << "half of it and all of it";
  EXPECT_EQ(verdict(72, 64, 80, 0.25), Verdict::inconclusive) << "it may be as before";
  EXPECT_EQ(verdict(72, 65, 79, 0.25), Verdict::no_difference);
  EXPECT_EQ(verdict(64, 64, 64, 0), Verdict::no_difference);
}

TEST(Inliers, NeverLeaveOutTooMany) {
  EXPECT_EQ(inliers({100, 100, 100, 30}), (std::vector{true, true, true, false}));
  EXPECT_EQ(inliers({100, 100, 100, 30, 40, 50}).size(), 6U);
  EXPECT_EQ(inliers({100, 100, 100, 0}), std::vector<bool>(4, true)) << "0 has no logarithm";
  EXPECT_EQ(inliers({100, 100, 100, 106}), (std::vector{true, true, true, false}));
  EXPECT_EQ(inliers({100, 100, 100, 94}), (std::vector{true, true, true, false}));
}

TEST(Inliers, LeaveOutOneThatIsFarOff) {
  EXPECT_EQ(inliers({100, 101, 99, 100.5, 70}), (std::vector{true, true, true, true, false}));
  EXPECT_EQ(inliers({100, 80, 120, 90, 110}), std::vector<bool>(5, true)) << "they scatter alike";
  EXPECT_EQ(inliers({100, 101, 50}), std::vector<bool>(3, true)) << "three are too few";
  EXPECT_EQ(inliers({100, 100, 100, 104}), std::vector<bool>(4, true)) << "less than 5 %";
}

TEST(Scatter, IsTheVarianceOfLogarithms) {
  EXPECT_NEAR(log_variance({1, std::exp(1.0), std::exp(2.0)}), 1, 1e-12);
  EXPECT_NEAR(log_variance({7, 7 * std::exp(1.0), 7 * std::exp(2.0), 7 * std::exp(3.0)}), 5.0 / 3, 1e-12);
  EXPECT_EQ(log_variance({3, 3, 3}), 0);
}

/// Logarithms of six values around 0, and a seventh: what lies farther from the others than Student's bound for the
/// farthest of seven is left out.
TEST(Outliers, AreFartherFromTheOthersThanTheFarthestOfSoMany) {
  const std::vector<double> logs{-0.05, -0.03, -0.01, 0.01, 0.03, 0.05};  // variance 2 (25 + 9 + 1) / 5 of 0.01^2
  const double error = 0.01 * std::sqrt(14.0 * (1 + 1 / 6.0));
  const double bound = student_quantile(0.005 / 14, 5) * error;
  const auto kept = [&](double log) {
    std::vector<double> values;
    for (const double one : logs) values.push_back(std::exp(one));
    values.push_back(std::exp(log));
    return std::ranges::count(inliers(values), true);
  };
  EXPECT_EQ(kept(bound - 1e-6), 7);
  EXPECT_EQ(kept(bound + 1e-6), 6);
  EXPECT_EQ(kept(-bound - 1e-6), 6);
}

/// Each of six is far beyond all that are nearer; more than half of twelve stay.
TEST(Outliers, AreNeverHalfOfAllValues) {
  std::vector<double> values;
  for (const double log : {0.0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.5, 2.0, 8.0, 32.0, 128.0, 512.0}) {
    values.push_back(std::exp(log));
  }
  EXPECT_EQ(std::ranges::count(inliers(values), true), 7);
}

TEST(KnownScatter, WhatRunsMayDifferByIsInSeveralResultsAlready) {
  Samples before{.results = {100, 101, 99}, .value = {100, 99, 101, 3}}, now = before;
  const Difference with = judge(before, now, {.unseen = 2}), without = judge(before, now, {});
  EXPECT_EQ(with.evidence, RestsOn::results);
  EXPECT_EQ(with.low, without.low);
  EXPECT_EQ(with.at_least, without.at_least);
}

}  // namespace
}  // namespace fsdpbench::account
