// What got worse since a baseline, and that an unchanged machine is left in peace.

#include "accept/regression.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <span>
#include <tuple>

namespace fsdpbench::accept {
namespace {

using account::RestsOn;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

MeasuredFigure rate(const std::string& name, std::vector<double> samples) {
  MeasuredFigure f;
  f.name = name;
  f.unit = "GB/s";
  f.higher_is_better = true;
  f.value = median_interval(samples);
  f.samples = std::move(samples);
  return f;
}

MeasuredFigure time_of(const std::string& name, std::vector<double> samples) {
  MeasuredFigure f = rate(name, std::move(samples));
  f.unit = "ms";
  f.higher_is_better = false;
  return f;
}

ResultFigures result(const std::string& name, std::vector<MeasuredFigure> figures) {
  return {name, std::move(figures)};
}

/// Results of one figure each, called a, b, c …
std::vector<ResultFigures> results_of(const std::vector<double>& values) {
  std::vector<ResultFigures> all;
  for (const double value : values) {
    all.push_back(result(std::string(1, static_cast<char>('a' + all.size())), {rate("pairs", {value})}));
  }
  return all;
}

Change only(std::span<const ResultFigures> baseline, const MeasuredFigure& now, double threshold = kChangeThreshold) {
  const std::vector<ResultFigures> after{result("now", {now})};
  const std::vector<Change> changes = judge_changes(baseline, after, threshold);
  EXPECT_EQ(changes.size(), 1U);
  return changes.front();
}

TEST(Baseline, AnOutlierIsLeftOutAndNamed) {
  const std::vector<ResultFigures> all = results_of({100, 101, 99, 100.5, 70});
  const BaselineFigure f = baseline_figures(all).front();
  EXPECT_THAT(f.left_out, ElementsAre("e (70 GB/s)"));
  EXPECT_DOUBLE_EQ(f.figure.value.median, 100.25);
  EXPECT_THAT(f.values, ElementsAre(100, 101, 99, 100.5));
}

TEST(Changes, ASlowerResultIsWorseByTheScatterOfResults) {
  const std::vector<ResultFigures> all = results_of({100, 101, 99, 100.5, 99.5});
  const Change slow = only(all, rate("pairs", {85}));
  EXPECT_EQ(slow.judgement.verdict, Verdict::fail);
  EXPECT_EQ(slow.difference.evidence, RestsOn::results);
  EXPECT_DOUBLE_EQ(slow.difference.ratio, 0.85);
  EXPECT_LT(slow.difference.high, 1);
  EXPECT_THAT(slow.judgement.sentence, HasSubstr("85.0 GB/s instead of 100: 15.0 % less (worse)"));
  EXPECT_EQ(only(all, rate("pairs", {100.2})).judgement.verdict, Verdict::pass);
  const Change fast = only(all, rate("pairs", {120}));
  EXPECT_EQ(fast.judgement.verdict, Verdict::pass);
  EXPECT_TRUE(fast.better());
}

/// Each result is slowed by what other programs took of its processors, which is known on average only.
TEST(Changes, OtherWorkIsNoChangeAndAChangeThatItCannotExplainIsOne) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::normal_distribution<double> noise(0, 0.01);
  for (const double taken : {0.0, 0.2, 0.5, 0.9}) {
    const auto one = [&](double rate_of_machine) {
      std::vector<double> samples;
      const double slowed = 1 - taken * (0.5 + 0.5 * uniform(random));
      for (int i = 0; i < 12; ++i) samples.push_back(rate_of_machine * slowed * (1 + noise(random)));
      ResultFigures r = result("x", {rate("pairs", samples)});
      r.others_share = taken;
      return r;
    };
    int worse = 0, found = 0;
    for (int gate = 0; gate < 100; ++gate) {
      const std::vector<ResultFigures> before{one(100)}, same{one(100)}, broken{one(2)};
      worse += judge_changes(before, same).front().judgement.verdict == Verdict::fail ? 1 : 0;
      found += judge_changes(before, broken).front().judgement.verdict == Verdict::fail ? 1 : 0;
    }
    EXPECT_LE(worse, 2) << "of 100 gates of an unchanged machine, at " << taken;
    if (taken <= 0.5) {
      EXPECT_GE(found, 95) << "at " << taken;
    } else {
      EXPECT_EQ(found, 0) << "small collectives of a healthy machine have become 300 times as slow, at " << taken;
    }
  }
}

TEST(Changes, AHostThatWasTooBusyToSayAnythingIsTheReason) {
  ResultFigures before = result("a", {rate("pairs", {100, 101, 102, 100, 99, 101})}), now = before;
  now.name = "b";
  now.others_share = 0.96;
  const Change change = judge_changes({{before}}, {{now}}).front();
  EXPECT_EQ(change.judgement.verdict, Verdict::inconclusive);
  EXPECT_THAT(change.judgement.sentence,
              AllOf(HasSubstr("any factor: measure b again when the host is quiet"),
                    HasSubstr("other programs took up to 96 % of the processors"), Not(HasSubstr("interval of")),
                    Not(HasSubstr("add 2 more to the baseline"))));
  before.others_share = 0.97;
  EXPECT_THAT(judge_changes({{before}}, {{now}}).front().judgement.sentence, HasSubstr("measure a again"));
}

TEST(Changes, MoreTimeIsWorse) {
  const std::vector<ResultFigures> all{result("a", {time_of("step", {10, 10.1, 9.9, 10, 10})})};
  EXPECT_EQ(only(all, time_of("step", {13, 13.1, 12.9, 13, 13})).judgement.verdict, Verdict::fail);
  EXPECT_TRUE(only(all, time_of("step", {7, 7.1, 6.9, 7, 7})).better());
}

TEST(Changes, WhatIsSmallerThanTheThresholdIsNoNews) {
  std::vector<ResultFigures> all{result("a", {time_of("step", {10, 10, 10, 10})})};
  all.front().measured_on = MeasuredOn::computed_clock;
  EXPECT_EQ(only(all, time_of("step", {10.3, 10.3, 10.3})).judgement.verdict, Verdict::pass);
  EXPECT_EQ(only(all, time_of("step", {10.3, 10.3, 10.3}), 0.01).judgement.verdict, Verdict::fail);
}

/// Steps of 10 ms, 200 of them, and the same `factor` times as long.
Change against_one(MeasuredOn measured_on, double factor, std::size_t steps = 200,
                   double threshold = kChangeThreshold) {
  std::vector<double> before, after;
  for (std::size_t i = 0; i < steps; ++i) before.push_back(i % 2 == 0 ? 9.99 : 10.01);
  for (const double ms : before) after.push_back(factor * ms);
  std::vector<ResultFigures> all{result("a", {time_of("step", before)})};
  all.front().measured_on = measured_on;
  return only(all, time_of("step", after), threshold);
}

TEST(Changes, OneEarlierResultCannotSayHowRunsScatter) {
  for (const MeasuredOn on : {MeasuredOn::gpus, MeasuredOn::processors}) {
    for (const double factor : {1.0, 1.05, 1.15}) {
      const Change c = against_one(on, factor);
      EXPECT_EQ(c.judgement.verdict, Verdict::inconclusive) << factor;
      EXPECT_GT(c.difference.at_most, 1.2 * factor);
      EXPECT_THAT(c.judgement.sentence,
                  HasSubstr("; one earlier result cannot say how runs scatter, so it is assumed that "
                            "they may differ by a factor of 1.2; 5 % cannot be excluded: add 2 more to the baseline"));
    }
    EXPECT_EQ(against_one(on, 1.3).judgement.verdict, Verdict::fail);
    EXPECT_EQ(against_one(on, 1.0, 200, 0.25).judgement.verdict, Verdict::pass) << "25 % can be excluded";
    EXPECT_TRUE(against_one(on, 0.7).better());
    EXPECT_FALSE(against_one(on, 0.85).better());
  }
  EXPECT_EQ(against_one(MeasuredOn::gpus, 1.3).difference.evidence, RestsOn::samples);
}

TEST(Changes, TwoEarlierResultsNeedOneMore) {
  const std::vector<ResultFigures> two{result("a", {time_of("step", {10, 10, 10})}),
                                       result("b", {time_of("step", {10, 10, 10})})};
  EXPECT_THAT(only(two, time_of("step", {10, 10, 10})).judgement.sentence,
              AllOf(HasSubstr("2 earlier results cannot say"), HasSubstr("add 1 more to the baseline")));
}

TEST(Changes, OnAComputedClockOneResultDecides) {
  EXPECT_EQ(against_one(MeasuredOn::computed_clock, 1.0).judgement.verdict, Verdict::pass);
  const Change slow = against_one(MeasuredOn::computed_clock, 1.06);
  EXPECT_EQ(slow.judgement.verdict, Verdict::fail);
  EXPECT_THAT(slow.judgement.sentence, HasSubstr("on a computed clock results do not scatter"));
}

/// profiles/recorded/accept/2026-11-25-scatter.txt: pairs of unchanged runs differed by up to so much.
TEST(Changes, NoRecordedPairOfUnchangedRunsIsWorse) {
  EXPECT_GT(unseen_scatter(MeasuredOn::processors, 0.15), 1.74);
  EXPECT_GT(unseen_scatter(MeasuredOn::processors, 2), 1.11);
  EXPECT_DOUBLE_EQ(unseen_scatter(MeasuredOn::processors, 60), 1.2);
  EXPECT_GT(unseen_scatter(MeasuredOn::processors, 0), 1.74) << "it is not known how long";
  EXPECT_DOUBLE_EQ(unseen_scatter(MeasuredOn::gpus, 0.001), 1.2);
  EXPECT_EQ(against_one(MeasuredOn::processors, 1.7, 15).judgement.verdict, Verdict::inconclusive) << "0.15 s of steps";
  EXPECT_EQ(against_one(MeasuredOn::processors, 2.4, 15).judgement.verdict, Verdict::fail);
}

TEST(Changes, IntervalsWithoutSamplesMustNotMeet) {
  MeasuredFigure before = rate("pairs", {}), near = before, far = before;
  before.value = {100, 95, 105, 20};
  near.value = {90, 84, 96, 20};
  far.value = {70, 68, 72, 20};
  const std::vector<ResultFigures> all{result("a", {before})};
  EXPECT_EQ(only(all, near).judgement.verdict, Verdict::inconclusive);
  EXPECT_EQ(only(all, far).judgement.verdict, Verdict::fail);
  EXPECT_EQ(only(all, far).difference.evidence, RestsOn::intervals);
  MeasuredFigure four = time_of("step", {}), to_five = four;
  four.value = {4, 4, 4, 9};
  to_five.value = {4, 3, 5, 9};
  std::vector<ResultFigures> on_clock{result("a", {four})};
  on_clock.front().measured_on = MeasuredOn::computed_clock;
  EXPECT_EQ(only(on_clock, to_five, 0.25).judgement.verdict, Verdict::inconclusive) << "a quarter is not excluded";
  EXPECT_EQ(only(on_clock, to_five, 0.26).judgement.verdict, Verdict::pass);
}

TEST(Changes, TwoSingleNumbersCannotBeJudged) {
  const std::vector<ResultFigures> all{result("a", {time_of("step", {13.6})})};
  for (const double now : {13.6, 86.0}) {
    const Change c = only(all, time_of("step", {now}));
    EXPECT_EQ(c.judgement.verdict, Verdict::inconclusive) << now;
    EXPECT_THAT(c.judgement.sentence, HasSubstr("two single numbers: how much they scatter is not known"));
  }
  MeasuredFigure part = time_of("compute", {86});
  part.explains = true;
  MeasuredFigure earlier = time_of("compute", {13.6});
  earlier.explains = true;
  const std::vector<ResultFigures> before{result("a", {earlier})};
  EXPECT_EQ(only(before, part).judgement.verdict, Verdict::unrated) << "the step that it is a part of is judged";
}

TEST(Changes, WhatIsCountedNeedsNoScatter) {
  MeasuredFigure bytes = time_of("peak memory", {1000});
  bytes.counted = true;
  const std::vector<ResultFigures> all{result("a", {bytes})};
  bytes.value = {1100, 1100, 1100, 1};
  EXPECT_EQ(only(all, bytes).judgement.verdict, Verdict::fail);
  bytes.value = {1040, 1040, 1040, 1};
  EXPECT_EQ(only(all, bytes).judgement.verdict, Verdict::pass);
}

TEST(Changes, WhatIsMissingIsNoPass) {
  const std::vector<ResultFigures> all{result("a", {rate("pairs", {100, 101, 99})})},
      now{result("now", {rate("rings", {3, 3, 3})})};
  const std::vector<Change> changes = judge_changes(all, now);
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[0].judgement.verdict, Verdict::inconclusive);
  EXPECT_THAT(changes[0].judgement.sentence, HasSubstr("the result does not"));
  EXPECT_EQ(changes[1].judgement.verdict, Verdict::unrated);
}

TEST(Changes, ABaselineThatShowsNothingIsInconclusive) {
  const Change c = only(results_of({100, 40, 160}), rate("pairs", {100}));
  EXPECT_EQ(c.judgement.verdict, Verdict::inconclusive);
  EXPECT_THAT(c.judgement.sentence, HasSubstr("gate several results together"));
}

TEST(Changes, AMeasurementOfZeroCannotBeJudged) {
  for (const auto& [before, now] : {std::pair{0.0, 5.0}, {5.0, 0.0}, {0.0, 0.0}}) {
    const Change c = only(results_of({before, before, before, before}), rate("pairs", {now}));
    EXPECT_EQ(c.judgement.verdict, Verdict::inconclusive) << before << " and " << now;
    EXPECT_THAT(c.judgement.sentence, HasSubstr("zero has no ratio"));
  }
}

TEST(Changes, BytesMayBeNoneAndMoreThanNoneIsWorse) {
  const auto bytes = [](double value) {
    MeasuredFigure f = time_of("bytes on the wire", {value});
    f.counted = true;
    return f;
  };
  const std::vector<ResultFigures> none{result("a", {bytes(0)})}, some{result("a", {bytes(8)})};
  EXPECT_EQ(only(none, bytes(0)).judgement.verdict, Verdict::pass);
  EXPECT_EQ(only(none, bytes(8)).judgement.verdict, Verdict::fail);
  EXPECT_TRUE(only(some, bytes(0)).better());
}

TEST(Changes, SeveralNewResultsCountTogether) {
  const std::vector<ResultFigures> all = results_of({100, 103, 97, 101, 99}), one = results_of({92.5}),
                                   three = results_of({92, 92.5, 93});
  const Change alone = judge_changes(all, one).front(), together = judge_changes(all, three).front();
  EXPECT_LT(together.difference.high / together.difference.low, alone.difference.high / alone.difference.low);
}

/// `figures` figures around 100 with a scatter of `noise` between results; all of `slow` are worse by `loss`.
ResultFigures drawn(std::mt19937& random, int figures, double noise, double loss = 0, int slow = 0) {
  std::normal_distribution<double> scatter(0, noise);
  ResultFigures r{"r", {}};
  for (int i = 0; i < figures; ++i) {
    const double scale = i % 5 == 4 ? 2 : 1;  // small messages scatter more
    r.figures.push_back(
        rate(fmt::format("figure {}", i), {100 * std::exp(scale * scatter(random)) * (i < slow ? 1 - loss : 1)}));
  }
  return r;
}

struct Rate {
  int gates = 0, accused = 0, found = 0;
};

Rate gates(int results, int figures, double noise, double loss) {
  std::mt19937 random(7);
  Rate rate;
  for (; rate.gates < 300; ++rate.gates) {
    std::vector<ResultFigures> baseline;
    for (int k = 0; k < results; ++k) baseline.push_back(drawn(random, figures, noise));
    const std::vector<ResultFigures> now{drawn(random, figures, noise, loss, 1)};
    bool others = false;
    for (const Change& c : judge_changes(baseline, now)) {
      if (c.judgement.verdict != Verdict::fail) continue;
      if (c.judgement.figure == "figure 0" && loss > 0) {
        ++rate.found;
      } else {
        others = true;
      }
    }
    rate.accused += static_cast<int>(others);
  }
  return rate;
}

TEST(Changes, AnUnchangedMachinePassesNinetyEightOfAHundredGates) {
  for (const int results : {3, 5, 10}) {
    for (const double noise : {0.01, 0.03, 0.1}) {
      const Rate r = gates(results, 25, noise, 0);
      EXPECT_LE(r.accused, r.gates / 50) << results << " results, noise " << noise;
    }
  }
}

TEST(Changes, OneFigureThatIsWorseIsFound) {
  for (const auto& [results, noise, loss] :
       {std::tuple{3, 0.01, 0.12}, {5, 0.01, 0.10}, {10, 0.01, 0.07}, {10, 0.03, 0.20}}) {
    const Rate r = gates(results, 25, noise, loss);
    EXPECT_GE(r.found, r.gates * 19 / 20) << results << " results, noise " << noise << ", loss " << loss;
    RecordProperty(fmt::format("found_{}_{}", results, loss), r.found);
  }
}

/// Figures of a run as a gate sees them: a step with its samples, scattering by `within` in a result and by
/// `between` from result to result, what was exposed of it, and bytes.
ResultFigures run_of(std::mt19937_64& random, double between, double within, double slower = 1) {
  std::normal_distribution<double> normal(0, 1);
  const double result_scale = std::exp(between * normal(random));
  std::vector<double> steps;
  for (int i = 0; i < 12; ++i) steps.push_back(slower * 72 * result_scale * std::exp(within * normal(random)));
  MeasuredFigure exposed = time_of("exposed communication", {4.4 * std::exp(0.1 * normal(random))});
  exposed.explains = true;
  MeasuredFigure bytes = time_of("peak memory", {1000});
  bytes.unit = "B";
  bytes.counted = true;
  return result("r", {time_of("step time", steps), exposed, bytes});
}

struct Answers {
  int gates = 0, fail = 0, pass = 0;
};

Answers run_gates(int results, int gated, double between, double slower, MeasuredOn measured_on = MeasuredOn::gpus) {
  std::mt19937_64 random(11);
  Answers answers;
  for (; answers.gates < 200; ++answers.gates) {
    std::vector<ResultFigures> baseline, now;
    for (int k = 0; k < results; ++k) baseline.push_back(run_of(random, between, 0.0055));
    for (int k = 0; k < gated; ++k) now.push_back(run_of(random, between, 0.0055, slower));
    for (ResultFigures& result : baseline) result.measured_on = measured_on;
    std::vector<Judgement> all;
    for (const Change& c : judge_changes(baseline, now)) all.push_back(c.judgement);
    const Verdict verdict = overall(all);
    answers.fail += static_cast<int>(verdict == Verdict::fail);
    answers.pass += static_cast<int>(verdict == Verdict::pass);
  }
  return answers;
}

/// However much results scatter: an unchanged machine is not accused, and what is 5 % worse does not pass.
TEST(Changes, NeitherAnswerIsGivenByChance) {
  for (const int results : {3, 5, 10}) {
    for (const int gated : {1, 3}) {
      for (const double between : {0.005, 0.02, 0.15}) {
        const Answers same = run_gates(results, gated, between, 1), worse = run_gates(results, gated, between, 1.05);
        EXPECT_LE(same.fail, same.gates / 50) << results << " results, " << gated << " gated, " << between;
        EXPECT_LE(worse.pass, worse.gates / 20) << results << " results, " << gated << " gated, " << between;
      }
    }
  }
}

/// With fewer results than show how they scatter, for the scatter that was recorded.
TEST(Changes, NeitherAnswerIsGivenByChanceAgainstOneResult) {
  for (const int results : {1, 2}) {
    for (const auto& [on, between] : {std::tuple{MeasuredOn::gpus, 0.03}, {MeasuredOn::processors, 0.05}}) {
      EXPECT_LE(run_gates(results, 1, between, 1, on).fail, 4) << results << " results, " << between;
      EXPECT_EQ(run_gates(results, 1, between, 1.05, on).pass, 0) << results << " results, " << between;
    }
    EXPECT_GE(run_gates(results, 1, 0.015, 1.3).fail, 190) << results << " results";
  }
}

/// Medians of quiet runs of 0.15 s, in ms, as profiles/recorded/accept/2026-11-25-scatter.txt has them.
constexpr std::array kShortRuns{2.55, 2.37, 3.38, 3.15, 2.45, 2.31, 1.94, 3.05, 2.60, 2.48, 2.94, 2.28, 3.03, 3.23};
/// And beside builds, the first twenty.
constexpr std::array kShortBusyRuns{4.08, 2.92, 3.04, 2.98, 2.87, 2.86, 3.23, 2.90, 3.04, 2.93,
                                    2.82, 2.82, 2.74, 2.77, 3.77, 3.25, 3.09, 2.98, 2.83, 2.64};

/// Gates of 1,000, of runs drawn from `pool` against others of it, that call a run slower.
int false_alarms(std::span<const double> pool, int results, MeasuredOn measured_on) {
  std::mt19937_64 random(5);
  int worse = 0;
  for (int gate = 0; gate < 1000; ++gate) {
    std::vector<double> drawn(pool.begin(), pool.end());
    std::ranges::shuffle(drawn, random);
    std::vector<ResultFigures> all;
    for (int k = 0; k <= results; ++k) {
      all.push_back(result("r", {time_of("step time", std::vector<double>(60, drawn[static_cast<std::size_t>(k)]))}));
      all.back().measured_on = measured_on;
    }
    worse += judge_changes(std::span(all).first(static_cast<std::size_t>(results)), std::span(all).last(1))
                         .front()
                         .judgement.verdict == Verdict::fail
                 ? 1
                 : 0;
  }
  return worse;
}

TEST(Changes, AFewShortRunsThatHappenToAgreeAccuseNone) {
  for (const int results : {3, 5}) {
    EXPECT_LE(false_alarms(kShortRuns, results, MeasuredOn::processors), 20) << results;
    EXPECT_LE(false_alarms(kShortBusyRuns, results, MeasuredOn::processors), 40) << results;
  }
  EXPECT_GT(false_alarms(kShortBusyRuns, 5, MeasuredOn::gpus), 60) << "by their own scatter alone";
  EXPECT_DOUBLE_EQ(recorded_scatter(MeasuredOn::processors, 0.15), 0.16);
  EXPECT_DOUBLE_EQ(recorded_scatter(MeasuredOn::processors, 2), 0);
  EXPECT_DOUBLE_EQ(recorded_scatter(MeasuredOn::processors, 0), 0);
  EXPECT_GT(recorded_scatter(MeasuredOn::processors, 1), 0.026);
}

TEST(Changes, APartOfAnotherFigureIsShownAndNotJudged) {
  std::vector<ResultFigures> all;
  MeasuredFigure part = time_of("exposed communication", {4});
  part.explains = true;
  for (const double value : {4.0, 4.01, 3.99}) {
    part.value = median_interval({value});
    all.push_back(result("a", {part}));
  }
  part.value = median_interval({8});
  const Change c = only(all, part);
  EXPECT_EQ(c.judgement.verdict, Verdict::unrated);
  EXPECT_GT(c.difference.low, 1.5) << "the interval says so all the same";
  EXPECT_THAT(c.judgement.sentence, ::testing::EndsWith("; it is a part of another figure, which is judged"));
}

TEST(Changes, WhatTheBaselineNeverMeasuredIsNotRated) {
  MeasuredFigure none = rate("pairs", {});
  const std::vector<ResultFigures> all{result("a", {none})};
  const Change c = only(all, rate("pairs", {100, 101, 99}));
  EXPECT_EQ(c.judgement.verdict, Verdict::unrated);
  EXPECT_EQ(c.judgement.sentence, "the baseline never measured it");
  EXPECT_FALSE(c.judgement.bound.has_value());
  const std::vector<ResultFigures> some{result("a", {rate("pairs", {100, 101, 99})})};
  const Change lost = only(some, none);
  EXPECT_EQ(lost.judgement.verdict, Verdict::inconclusive);
  EXPECT_EQ(lost.judgement.sentence, "the baseline has it, and the result does not");
  EXPECT_EQ(lost.judgement.bound, 100);
}

TEST(Changes, ASentenceSaysHowMuchInWhichDirection) {
  const auto sentence = [](double before, double now, bool more_is_better) {
    MeasuredFigure f = more_is_better ? rate("x", {before, before, before}) : time_of("x", {before, before, before});
    std::vector<ResultFigures> all{result("a", {f})};
    all.front().measured_on = MeasuredOn::computed_clock;
    return only(all, more_is_better ? rate("x", {now, now, now}) : time_of("x", {now, now, now})).judgement.sentence;
  };
  EXPECT_THAT(sentence(100, 110, true), HasSubstr("110 GB/s instead of 100: 10.0 % more (better)"));
  EXPECT_THAT(sentence(100, 90, false), HasSubstr("90.0 ms instead of 100: 10.0 % less (better)"));
  EXPECT_THAT(sentence(100, 110, false), HasSubstr("10.0 % more (worse)"));
  EXPECT_THAT(sentence(100, 100.04, true), HasSubstr("instead of 100: the same"));
  EXPECT_THAT(sentence(100, 100.06, true), HasSubstr("0.1 % more (better)"));
  EXPECT_THAT(sentence(100, 99.94, true), HasSubstr("0.1 % less (worse)"));
  EXPECT_THAT(sentence(500, 2000, false), HasSubstr("2.00 s instead of 0.500: 300.0 % more (worse)"));
  EXPECT_THAT(sentence(2000, 500, false), HasSubstr("0.500 s instead of 2.00: 75.0 % less (better)"));
}

/// Two figures of three results each, a part of one of them, and bytes of the same unit. Logarithms of 1, 2 and 4
/// scatter by a variance of (log 2)²; those of 1, 4 and 16 by four times as much: 2.5 times on average, which counts as
/// (3 − 1) × (2 − 1) results more.
TEST(Changes, FiguresOfAUnitLendTheirScatterToEachOther) {
  const double square = std::log(2.0) * std::log(2.0);
  const auto of = [](double scale) {
    std::vector<ResultFigures> all;
    for (const double power : {0.0, 1.0, 2.0}) {
      MeasuredFigure part = rate("part", {scale * std::pow(64, power)}), bytes = part, other = part;
      part.explains = true;
      bytes.name = "bytes";
      bytes.counted = true;
      other.name = "other unit";
      other.unit = "TB/s";
      all.push_back(result("r", {rate("x", {scale * std::pow(2, power)}), rate("y", {scale * std::pow(4, power)}), part,
                                 bytes, other, rate("never", {})}));
    }
    return all;
  };
  for (const double scale : {1.0, 1.0 / 1024}) {
    const std::vector<ResultFigures> all = of(scale);
    const std::vector<ResultFigures> now{result("now", {rate("x", {scale}), rate("part", {scale})})};
    const std::vector<Change> changes = judge_changes(all, now);
    account::Rule rule{.threshold = 0.05, .tail = 0.012, .figures = 3, .more_is_better = true, .unseen = 1.2};
    const account::Samples one{{scale}, {scale}, {scale, scale, scale, 1}};
    const account::Difference part =
        account::judge({{scale, 64 * scale, 4096 * scale}, {}, {64 * scale, 0, 0, 3}}, one, rule);
    rule.also = {{2.5 * square, 2}};
    const account::Difference x = account::judge({{scale, 2 * scale, 4 * scale}, {}, {2 * scale, 0, 0, 3}}, one, rule);
    EXPECT_NEAR(changes[0].difference.low, x.low, 1e-9 * x.low) << scale;
    EXPECT_NEAR(changes[0].difference.at_most, x.at_most, 1e-9 * x.at_most);
    EXPECT_EQ(changes[2].judgement.figure, "part");
    EXPECT_NEAR(changes[2].difference.low, part.low, 1e-9 * part.low) << "it borrows nothing";
    EXPECT_EQ(changes[0].judgement.bound, 2 * scale);
  }
  const std::vector<ResultFigures> one{result("a", {rate("x", {3})})};
  EXPECT_EQ(only(one, rate("x", {3})).judgement.bound, 3);
  const Change c = only(results_of({100, 101, 99, 100.5, 99.5}), rate("pairs", {100}));
  EXPECT_THAT(c.judgement.sentence, ::testing::EndsWith(", by 5 results"));
}

/// A figure that is the only one of its kind borrows no scatter from others, and needs no correction for several tests.
TEST(Changes, APartAloneIsJudgedAsOneFigure) {
  MeasuredFigure part = rate("part", {1});
  part.explains = true;
  std::vector<ResultFigures> all;
  for (const double value : {1.0, 2.0, 4.0}) {
    part.value = {value, value, value, 1};
    all.push_back(result("r", {part}));
  }
  const account::Rule rule{.threshold = 0.05, .tail = 0.012, .figures = 1, .more_is_better = true, .unseen = 1.2};
  const account::Difference one = account::judge({{1, 2, 4}, {}, {2, 0, 0, 3}}, {{4}, {4}, {4, 4, 4, 1}}, rule);
  EXPECT_NEAR(only(all, part).difference.low, one.low, 1e-9 * one.low);
}

TEST(Changes, ShortRunsAreHeldAgainstWhatIsRecordedOfThem) {
  const auto said = [](const std::string& unit, double before, std::size_t results, double now) {
    MeasuredFigure f = time_of("step", {before});
    f.unit = unit;
    std::vector<ResultFigures> all(results, result("a", {f}));
    for (ResultFigures& r : all) r.measured_on = MeasuredOn::processors;
    f.samples = {now, now, now};
    f.value = median_interval(f.samples);
    return only(all, f).judgement.sentence;
  };
  // 0.026 × (2 / 0.696)^(log(0.16 / 0.026) / log(2 / 0.15)) = 0.0545
  EXPECT_THAT(said("ms", 696, 3, 696), HasSubstr("by 3 results, and runs as short as these (0.7 s) were recorded to "
                                                 "scatter by 5 %"));
  EXPECT_THAT(said("us", 696'000, 3, 696'000), HasSubstr("(0.7 s) were recorded to scatter by 5 %"));
  // 1.2 to the square root of 2 s over the shorter of both: 0.5 s and 0.0125 s.
  std::vector<ResultFigures> long_one{result("a", {time_of("step", std::vector<double>(4, 125))})};
  long_one.front().measured_on = MeasuredOn::processors;
  const Change c = only(long_one, time_of("step", std::vector<double>(4, 3.125)));
  EXPECT_THAT(c.judgement.sentence, ::testing::EndsWith("may differ by a factor of 10"));
  const Change open = only(long_one, time_of("step", std::vector<double>(4, 125)));
  EXPECT_THAT(open.judgement.sentence,
              HasSubstr(fmt::format(", at most {:.1f} % worse; one", 100 * (open.difference.at_most - 1))));
}

/// Following the advice must help: as many results, or results as long, pass where none of them scatter.
TEST(Changes, WhatWouldTellIsSaidAndTrue) {
  const auto gated = [](std::size_t results, std::size_t steps, double wobble = 0.0) {
    std::vector<ResultFigures> all;
    for (std::size_t i = 0; i < results; ++i) {
      const double ms = 75 * (1 + wobble * (static_cast<double>(i % 3) - 1));
      all.push_back(result("a", {time_of("step", std::vector<double>(steps, ms))}));
      all.back().measured_on = MeasuredOn::processors;
    }
    return only(all, time_of("step", std::vector<double>(10, 75))).judgement;
  };
  EXPECT_THAT(gated(3, 10).sentence, EndsWith("; 5 % cannot be excluded: store results that measure it for 2 s (27 "
                                              "times instead of 10), or 9 more like these"));
  EXPECT_EQ(gated(11, 10).verdict, Verdict::inconclusive);
  EXPECT_EQ(gated(12, 10).verdict, Verdict::pass);
  EXPECT_EQ(gated(3, 26).verdict, Verdict::inconclusive);
  EXPECT_EQ(gated(3, 27).verdict, Verdict::pass);
  EXPECT_THAT(gated(1, 10).sentence, EndsWith("or 11 more like these"));
  EXPECT_THAT(gated(3, 30, 0.02).sentence, EndsWith("cannot be excluded: add 3 more to the baseline"));
  EXPECT_EQ(gated(6, 30, 0.02).verdict, Verdict::pass);
  EXPECT_THAT(gated(3, 30, 0.2).sentence, EndsWith("cannot be excluded: gate several results together"));
  EXPECT_THAT(gated(3, 10, 0.2).sentence, EndsWith("(27 times instead of 10)")) << "no number of results would do";
}

/// One figure that is 0 in all results has no logarithm to lend.
TEST(Changes, ZeroLendsNoScatter) {
  std::vector<ResultFigures> all;
  for (const double value : {100.0, 101.0, 99.0}) all.push_back(result("a", {rate("x", {value}), rate("zero", {0})}));
  const std::vector<ResultFigures> now{result("b", {rate("x", {100}), rate("zero", {0})})};
  EXPECT_GT(judge_changes(all, now).front().difference.low, 0.8);
}

TEST(Changes, OfTheGatedResultsAllCountHoweverFarOff) {
  const std::vector<ResultFigures> before = results_of({100, 101, 99}), now = results_of({100, 101, 99, 100.5, 70});
  const Change c = judge_changes(before, now).front();
  EXPECT_EQ(c.judgement.value.n, 5);
  EXPECT_EQ(c.judgement.value.low, 70);
  EXPECT_EQ(c.judgement.bound, 100);
  EXPECT_EQ(c.before.n, 3);
}

TEST(Changes, FiguresAreInTheOrderInWhichTheyFirstOccurWithTheirSamples) {
  const std::vector<ResultFigures> all{result("a", {rate("x", {1, 2}), rate("y", {4})}),
                                       result("b", {rate("z", {5}), rate("x", {3, 3})}), result("c", {rate("x", {})})};
  const std::vector<BaselineFigure> figures = baseline_figures(all);
  ASSERT_EQ(figures.size(), 3U);
  EXPECT_EQ(figures[0].figure.name, "x");
  EXPECT_EQ(figures[1].figure.name, "y");
  EXPECT_EQ(figures[2].figure.name, "z");
  EXPECT_THAT(figures[0].values, ElementsAre(1.5, 3)) << "the median of each that measured it";
  EXPECT_THAT(figures[0].figure.samples, ElementsAre(1, 2, 3, 3));
  EXPECT_EQ(figures[0].figure.value.n, 2);
  EXPECT_THAT(figures[1].values, ElementsAre(4));
  EXPECT_THAT(figures[1].figure.samples, ElementsAre(4));
}

/// Words of a sentence beside its numbers, by what there is to judge by.
TEST(Changes, ASentenceSaysWhatItRestsOn) {
  const auto said = [](MeasuredFigure before, MeasuredFigure now, std::size_t results, MeasuredOn on, double others) {
    std::vector<ResultFigures> all(results, result("a", {std::move(before)}));
    for (ResultFigures& r : all) r.measured_on = on;
    all.front().others_share = others;
    const std::string text = only(all, now).judgement.sentence;
    return text.substr(text.find(')') + 1);
  };
  EXPECT_EQ(
      said(rate("x", {100, 100, 100}), rate("x", {80, 80, 80}), 1, MeasuredOn::gpus, 0),
      ", interval of now / before 0.667 to 0.960; one earlier result cannot say how runs scatter, so it is assumed "
      "that they may differ by a factor of 1.2");
  EXPECT_EQ(said(rate("x", {100, 100, 100}), rate("x", {80, 80, 80}), 1, MeasuredOn::computed_clock, 0),
            ", interval of now / before 0.800 to 0.800; on a computed clock results do not scatter");
  EXPECT_EQ(
      said(rate("x", {100, 100, 100}), rate("x", {80, 80, 80}), 2, MeasuredOn::computed_clock, 0.2),
      ", interval of now / before 0.640 to 0.800; on a computed clock results do not scatter; other programs took up "
      "to 20 % of the processors");
  MeasuredFigure bytes = time_of("bytes", {1000});
  bytes.unit = "B";
  bytes.counted = true;
  MeasuredFigure more = bytes;
  more.value = {1100, 1100, 1100, 1};
  EXPECT_EQ(said(bytes, more, 1, MeasuredOn::gpus, 0), "; it is counted, not measured");
  EXPECT_EQ(said(bytes, more, 1, MeasuredOn::gpus, 0.9),
            "; it is counted, not measured; other programs took up to 90 % of the processors");
}

TEST(Changes, WithoutARatioItSaysWhatThereIs) {
  const auto change = [](double before, double now, bool counted, bool more_is_better, bool explains = false) {
    MeasuredFigure f = rate("x", {before});
    f.unit = "B";
    f.counted = counted;
    f.higher_is_better = more_is_better;
    f.explains = explains;
    const std::vector<ResultFigures> all{result("a", {f})};
    f.value = median_interval({now});
    return only(all, f);
  };
  EXPECT_EQ(change(0, 8, true, false).judgement.sentence, "8 B instead of 0: zero has no ratio");
  EXPECT_EQ(change(0, 8, false, false).judgement.sentence,
            "8 B instead of 0: zero has no ratio, and cannot be measured");
  EXPECT_EQ(change(0, 8, true, true).judgement.verdict, Verdict::pass);
  EXPECT_TRUE(change(0, 8, true, true).better());
  EXPECT_EQ(change(8, 0, true, true).judgement.verdict, Verdict::fail);
  EXPECT_EQ(change(0, 0, true, true).difference.verdict, account::Verdict::no_difference);
  EXPECT_EQ(change(8, 0, true, true).difference.verdict, account::Verdict::slower);
  EXPECT_EQ(change(0, 8, false, false, true).judgement.verdict, Verdict::unrated);
  EXPECT_EQ(change(0, 8, false, false, true).judgement.sentence, "8 B instead of 0: zero has no ratio");
}

TEST(Changes, WhatIsNewIsSaidToBe) {
  const std::vector<ResultFigures> all{result("a", {rate("x", {1})})},
      now{result("b", {rate("x", {1}), time_of("y", {2})})};
  const std::vector<Change> changes = judge_changes(all, now);
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[1].judgement.figure, "y");
  EXPECT_EQ(changes[1].judgement.rule, "change");
  EXPECT_EQ(changes[1].judgement.unit, "ms");
  EXPECT_EQ(changes[1].judgement.value.median, 2);
  EXPECT_EQ(changes[1].judgement.sentence, "it is new: the baseline does not have it");
  EXPECT_FALSE(changes[1].higher_is_better);
}

TEST(MostSlowed, IsTheShareThatOthersTookUpToAHalfAndAnythingBeyond) {
  EXPECT_EQ(most_slowed(0), 1);
  EXPECT_DOUBLE_EQ(most_slowed(0.2), 1.25);
  EXPECT_DOUBLE_EQ(most_slowed(0.5), 2);
  EXPECT_DOUBLE_EQ(most_slowed(0.51), 1000);
  EXPECT_DOUBLE_EQ(recorded_scatter(MeasuredOn::processors, 0.01), 0.16) << "no more than was recorded";
  EXPECT_EQ(recorded_scatter(MeasuredOn::gpus, 0.15), 0);
  EXPECT_NEAR(recorded_scatter(MeasuredOn::processors, 2 - 1e-9), 0.026, 1e-6);
  EXPECT_EQ(unseen_scatter(MeasuredOn::computed_clock, 0.1), 1);
  EXPECT_DOUBLE_EQ(unseen_scatter(MeasuredOn::processors, 0.5), 1.44) << "1.2 to the second power";
}

}  // namespace
}  // namespace fsdpbench::accept
