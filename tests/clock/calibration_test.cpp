// A calibration of a run on the computed clock must give that run back, and say how far it reaches beyond it.
#include "clock/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "base/error.h"
#include "clock/emulated_times.h"
#include "clock/forecast.h"
#include "support/schedule_cases.h"

namespace fsdpbench::clock {
namespace {

/// A decoder whose modules compute, on a link of a byte a nanosecond and 3 us a hop.
struct Measured {
  explicit Measured(const config::RunConfig& config) : made(testing::make_case(config)) {
    for (std::size_t m = 1; m < made.sizes.size(); ++m) {
      made.sizes[m].forward_flops = 2e6 + 1e5 * static_cast<double>(m);
      made.sizes[m].recompute_flops = 1.5e6;
      made.sizes[m].backward_flops = 4e6;
    }
    times = emulated_times(made, {1e9, {1e9, 3e-6}});
    times.host.issue_ns = 200;
  }
  double step_ns(const OpTimes& with) const { return forecast(made, with).slowest_ns(); }
  /// As a run of `steps` steps whose ops take lognormal times about what they should.
  void add_to(Calibrator& calibrator, double sigma = 0, std::uint64_t seed = 1, int steps = 4) const {
    using Residuals = std::vector<std::vector<double>>;
    add_to(calibrator, sigma > 0 ? Residuals{Jitter::lognormal(sigma)} : Residuals{}, seed, steps);
  }
  void add_to(Calibrator& calibrator, const std::vector<std::vector<double>>& residuals, std::uint64_t seed,
              int steps) const {
    std::vector<trace::RankTrace> traces(static_cast<std::size_t>(made.plan.groups.ranks()));
    for (std::size_t rank = 0; rank < traces.size(); ++rank) traces[rank].rank = static_cast<int>(rank);
    OpTimes later = times;
    later.host.start_ns = 1e6;  // a record at 0 is of an op that did not run
    if (!residuals.empty()) later.jitter = Jitter(seed, residuals);
    forecast_run(made, later, static_cast<std::size_t>(steps), 0, traces);
    calibrator.add(MeasuredTimes(made, traces, std::nullopt, true), HostCosts{200, 0, 0, 0, 0, 0});
  }

  testing::ScheduleCase made;
  OpTimes times;
};

int beyond(const CalibratedTimes& times) { return times.uncertainty.reach[Reach::extrapolated]; }

/// Time of the step of `run`, predicted by `calibration`.
Bounds interval(const config::Calibration& calibration, const Measured& run) {
  const CalibratedTimes predicted = calibrated_times(calibration, run.made);
  std::vector<double> steps;
  for (int draw = 0; draw < Uncertainty::kDraws; ++draw) {
    steps.push_back(run.step_ns(drawn(predicted.times, predicted.uncertainty, draw)));
  }
  const double step = run.step_ns(predicted.times);
  return interval_around(step, step, steps, predicted.uncertainty.step_miss * step);
}

config::Calibration calibrated(const Measured& run, double sigma, std::uint64_t seed = 1, int steps = 4) {
  Calibrator calibrator;
  run.add_to(calibrator, sigma, seed, steps);
  return calibrator.result();
}

/// Another policy than that of Measured(decoder_config(4, 4)), with messages of other sizes.
config::RunConfig other_policy() {
  config::RunConfig other = testing::decoder_config(4, 4);
  other.fsdp.backward_prefetch.mode = config::Prefetch::Mode::none;
  other.fsdp.wrap = {config::Wrap::Mode::blocks, 2, 0};
  return other;
}

TEST(Calibration, GivesTheRunBack) {
  const Measured run(testing::decoder_config(4, 4));
  Calibrator calibrator;
  run.add_to(calibrator);
  const CalibratedTimes again = calibrated_times(calibrator.result(), run.made);
  EXPECT_NEAR(run.step_ns(again.times), run.step_ns(run.times), 1e-4 * run.step_ns(run.times));
  EXPECT_EQ(beyond(again), 0);
  EXPECT_LT(again.spread_pct, 0.1);
}

TEST(Calibration, PredictsAnotherPolicyAndSaysWhereItReachesBeyond) {
  const Measured run(testing::decoder_config(4, 4));
  Calibrator calibrator;
  run.add_to(calibrator);
  const Measured truth(other_policy());
  const CalibratedTimes predicted = calibrated_times(calibrator.result(), truth.made);
  EXPECT_NEAR(truth.step_ns(predicted.times), truth.step_ns(truth.times), 1e-3 * truth.step_ns(truth.times));
  EXPECT_GT(beyond(predicted), 0);
}

TEST(Calibration, TakesTheNearestGroupAndRefusesKindsItDoesNotKnow) {
  const Measured two(testing::decoder_config(4, 2)), six(testing::decoder_config(4, 6));
  Measured eight(testing::decoder_config(4, 8));
  for (StepCosts& costs : eight.times.steps) {
    for (OpCost& cost : costs) cost.link_ns *= 2;
  }
  Calibrator calibrator;
  two.add_to(calibrator);
  eight.add_to(calibrator);
  const config::Calibration both = calibrator.result();
  EXPECT_GT(beyond(calibrated_times(both, six.made)), 0);
  const auto step_ns = [](const config::Calibration& calibration, const Measured& run) {
    return run.step_ns(calibrated_times(calibration, run.made).times);
  };
  Calibrator of_two, of_eight;
  two.add_to(of_two);
  eight.add_to(of_eight);
  const Measured three(testing::decoder_config(4, 3));
  EXPECT_EQ(step_ns(both, three), step_ns(of_two.result(), three));
  EXPECT_EQ(step_ns(both, six), step_ns(of_eight.result(), six));
  config::RunConfig hybrid = testing::decoder_config(4, 2, 2);
  hybrid.fsdp.strategy = config::Strategy::hybrid_shard;
  EXPECT_THROW(calibrated_times(both, Measured(hybrid).made), ConfigError);  // no all-reduce was measured
}

TEST(Calibration, IsSureOfWhatItKnowsExactly) {
  const Measured run(testing::decoder_config(4, 4));
  const Bounds sure = interval(calibrated(run, 0), run);
  EXPECT_LT(sure.width(), 1e-4 * run.step_ns(run.times));  // whole nanoseconds
  EXPECT_NEAR(sure.low, run.step_ns(run.times), 1e-4 * run.step_ns(run.times));
}

/// Walks that miss a step although their ops are right make the interval wider.
TEST(Calibration, IsNoSurerThanOfItsOwnSteps) {
  const Measured run(testing::decoder_config(4, 4));
  config::Calibration calibration = calibrated(run, 0);
  const double step = run.step_ns(run.times);
  calibration.misses.assign(4, {0.01, 0.002});
  const Bounds bounds = interval(calibration, run);
  EXPECT_NEAR(bounds.low, (1 - 2.776 * 0.01) * step, 1e-4 * step);  // Student's 97.5 % of four
  EXPECT_NEAR(bounds.high, (1 + 2.776 * 0.01) * step, 1e-4 * step);
  EXPECT_NEAR(calibrated_times(calibration, run.made).uncertainty.exposed_miss, 2.776 * 0.002, 1e-5);
  calibration.misses = {{0, 0}, {0, 0}};
  EXPECT_LT(interval(calibration, run).width(), 1e-4 * step);
}

TEST(Calibration, TheHostIsTheMeasuredOneAndMayBeAnyOfItsRefits) {
  const Measured run(testing::decoder_config(4, 4));
  config::Calibration calibration = calibrated(run, 0);
  calibration.host = {.issue_ns = 200, .launch_ns = 30, .gap_ns = 20, .wake_ns = 10};
  calibration.host_refits = {calibration.host, {.issue_ns = 300, .launch_ns = 31, .gap_ns = 22, .wake_ns = 13}};
  const CalibratedTimes times = calibrated_times(calibration, run.made);
  for (int draw = 0; draw < 2; ++draw) {
    const HostCosts host = drawn(times.times, times.uncertainty, draw).host;
    EXPECT_EQ(host.issue_ns, draw == 0 ? 200 : 300);
    EXPECT_EQ(host.launch_ns, draw == 0 ? 30 : 31);
    EXPECT_EQ(host.gap_ns, draw == 0 ? 20 : 22);
    EXPECT_EQ(host.wake_ns, draw == 0 ? 10 : 13);
  }
}

TEST(Uncertainty, EachOpIsDrawnFromItsSource) {
  OpTimes times;
  times.steps = {{{100, 10}, {100, 10}, {100, 10}}};
  times.own_issue = {{30, 31}};
  Uncertainty uncertainty;
  uncertainty.source = {{0, -1, 1}};
  uncertainty.ratios = {{2, 0.5}, {1, 3}};
  uncertainty.own_issue = {1, 0.5};
  for (const int draw : {0, 1}) {
    const OpTimes one = drawn(times, uncertainty, draw);
    std::vector<double> run, link;
    for (const OpCost& cost : one.steps[0]) run.push_back(cost.run_ns), link.push_back(cost.link_ns);
    EXPECT_EQ(run, draw == 0 ? (std::vector<double>{200, 100, 100}) : (std::vector<double>{50, 100, 300}));
    EXPECT_EQ(link, draw == 0 ? (std::vector<double>{20, 10, 10}) : (std::vector<double>{5, 10, 30}));
    EXPECT_EQ(one.own_issue[0], draw == 0 ? (std::vector<double>{30, 31}) : (std::vector<double>{15, 16}));
  }
}

TEST(Uncertainty, IndependentErrorsOfAnIntervalAddInSquares) {
  const Bounds bounds = interval_around(100, 50, {47, 53, 50}, 4);
  EXPECT_DOUBLE_EQ(bounds.low, 95);
  EXPECT_DOUBLE_EQ(bounds.high, 105);
  EXPECT_DOUBLE_EQ(
      interval_around(1, 50, {40, 60}, 0).low,
      0);  // no step is shorter
           // The 95 % interval of the next of 39 values is the first to the last; of fewer it reaches beyond them.
  std::vector<double> values;
  for (int i = 1; i <= 39; ++i) values.push_back(i);
  EXPECT_DOUBLE_EQ(quantile_of_next(values, 39, 1 / 40.0), 1);
  EXPECT_DOUBLE_EQ(quantile_of_next(values, 39, 39 / 40.0), 39);
  EXPECT_DOUBLE_EQ(quantile_of_next(values, 39, 0.5), 20);
  EXPECT_DOUBLE_EQ(quantile_of_next({1, 4, 9}, 3, 3 / 8.0), 2);  // straight in logarithms
  const double scatter = std::log(4.0) * std::sqrt(1 + 1 / 3.0);
  EXPECT_NEAR(quantile_of_next({0.25, 1, 4}, 3, 0.975), std::exp(4.303 * scatter), 1) << "Student";
  EXPECT_NEAR(quantile_of_next({0.25, 1, 4}, 3, 0.025) * quantile_of_next({0.25, 1, 4}, 3, 0.975), 1, 1e-9);
  EXPECT_EQ(quantile_of_next({1.5}, 1, 0.025), 1.5);
  // From the first source to the last the ranks decide, beyond them Student's interval if it is wider.
  EXPECT_DOUBLE_EQ(quantile_of_next({1, 1.1, 1000}, 3, 0.26), std::pow(1.1, 0.04));
  EXPECT_DOUBLE_EQ(quantile_of_next({1, 900, 1000}, 3, 0.74), 900 * std::pow(10 / 9.0, 0.96));
  EXPECT_LT(quantile_of_next({1, 1.1, 1000}, 3, 0.24), 0.5);
  EXPECT_GT(quantile_of_next({1, 900, 1000}, 3, 0.76), 2000);
  // Values of one source err together: twice the same three are no surer than one Student's bound of three.
  const double twice = std::log(4.0) * std::sqrt(4 / 5.0 * (1 + 1 / 3.0));
  EXPECT_NEAR(quantile_of_next({0.25, 0.25, 1, 1, 4, 4}, 3, 0.975), std::exp(4.303 * twice), 1);
  EXPECT_EQ(quantile_of_next({0.25, 0.25, 1, 1, 4, 4}, 1, 0.975), 4) << "one source tells no scatter";
  EXPECT_NEAR(next_within({-0.02}), 12.706 * 0.02, 1e-5);
  EXPECT_NEAR(next_within(std::vector<double>(1000, 0.5)), 1.962 * 0.5, 1e-3);
}

TEST(Calibration, IsLessSureTheMoreItsRunsScatter) {
  const Measured run(testing::decoder_config(4, 4));
  const double little = interval(calibrated(run, 0.01), run).width();
  const double some = interval(calibrated(run, 0.04), run).width();
  const double much = interval(calibrated(run, 0.16), run).width();
  EXPECT_GT(little, 0);
  EXPECT_GT(some, 2 * little);
  EXPECT_GT(much, 2 * some);
}

TEST(Calibration, ItsIntervalHoldsTheTruthOfAnotherPolicy) {
  const Measured run(testing::decoder_config(4, 4)), truth(other_policy());
  const double step = truth.step_ns(truth.times);
  int holds = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Bounds bounds = interval(calibrated(run, 0.05, seed), truth);
    holds += bounds.low <= step && step <= bounds.high ? 1 : 0;
    EXPECT_LT(bounds.width(), 0.3 * step);  // or it would hold anything
  }
  EXPECT_GE(holds, 36);
}

TEST(Calibration, OfAnotherNumberOfRanksIsAsUnsureAsItsLinesAreApart) {
  const Measured two(testing::decoder_config(4, 2)), six(testing::decoder_config(4, 6));
  Measured eight(testing::decoder_config(4, 8));
  Calibrator one, alike, apart;
  for (Calibrator* calibrator : {&one, &alike, &apart}) two.add_to(*calibrator);
  EXPECT_TRUE(calibrated_times(one.result(), six.made).uncertainty.leaves_ranks_out);
  eight.add_to(alike);
  EXPECT_FALSE(calibrated_times(alike.result(), six.made).uncertainty.leaves_ranks_out);
  for (StepCosts& costs : eight.times.steps) {
    for (OpCost& cost : costs) cost.link_ns *= 2;
  }
  eight.add_to(apart);
  EXPECT_GT(interval(apart.result(), six).width(), 10 * interval(alike.result(), six).width());
}

TEST(Calibration, RanksThatShareCoresMoreThanThoseMeasuredMayTakeTurns) {
  const Measured two(testing::decoder_config(4, 2)), eight(testing::decoder_config(4, 8));
  config::Calibration c = calibrated(two, 0);
  EXPECT_EQ(crowding(c, 8), 1) << "ranks compute on no cores";
  c.cores = 2;
  c.ranks = 2;
  EXPECT_EQ(crowding(c, 2), 1);
  EXPECT_EQ(crowding(c, 8), 4);
  c.ranks = 8;
  EXPECT_EQ(crowding(c, 8), 1);
  EXPECT_EQ(crowding(c, 4), 0.5);
  c.cores = 1;
  EXPECT_EQ(crowding(c, 16), 2);
  c.cores = 2;
  c.ranks = 1;
  EXPECT_EQ(crowding(c, 2), 1) << "a core each";
  c.ranks = 2;
  const double step = eight.step_ns(calibrated_times(c, eight.made).times);
  EXPECT_GT(interval(c, eight).high, 3.9 * step);
  EXPECT_LT(interval(c, eight).low, 1.01 * step);
  EXPECT_EQ(calibrated_times(c, eight.made).uncertainty.reach[Reach::measured], 0);
}

/// Most of these ops take what they should, and some three times as long: steps have all of it, and a median none.
TEST(Calibration, WhatInterruptsOpsNowAndThenCounts) {
  Measured run(testing::decoder_config(4, 4));
  const CalibratedTimes sure = calibrated_times(calibrated(run, 0), run.made);
  Calibrator calibrator;
  run.add_to(calibrator, std::vector<std::vector<double>>{{1, 1, 1, 3}}, 5, 120);
  const CalibratedTimes often = calibrated_times(calibrator.result(), run.made);
  double least = 0, mean = 0;
  for (std::size_t i = 0; i < run.made.schedules.steady().ops.size(); ++i) {
    least += sure.times.steps.back()[i].run_ns;
    mean += often.times.steps.back()[i].run_ns;
  }
  EXPECT_NEAR(mean / least, 1.5, 0.05);
}

/// Runs that scatter by 10 % give simulations that do.
TEST(Calibration, KeepsHowOpsScattered) {
  const Measured run(testing::decoder_config(4, 4));
  const CalibratedTimes times = calibrated_times(calibrated(run, 0.1, 3, 60), run.made);
  const schedule::Schedule& steady = run.made.schedules.steady();
  const std::vector<double> expected = Jitter::lognormal(0.1);
  int looked_at = 0;
  for (std::size_t i = 0; i < steady.ops.size(); ++i) {
    if (steady.ops[i].kind != schedule::OpKind::forward && steady.ops[i].kind != schedule::OpKind::backward) continue;
    if (times.times.steps.back()[i].run_ns == 0) continue;  // nothing to scatter
    const int scatter = times.times.steps.back()[i].scatter;
    std::vector<double> drawn(100'000, 1e6);
    Jitter(1, times.times.measured_scatter).apply(0, i, 0, false, drawn, scatter);
    std::ranges::sort(drawn);
    for (const double q : {0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98}) {
      const auto at = [&](const std::vector<double>& values) {
        return values[static_cast<std::size_t>(q * static_cast<double>(values.size()))];
      };
      EXPECT_NEAR(at(drawn) / 1e6, at(expected), 0.03) << q;
    }
    ++looked_at;
  }
  EXPECT_GT(looked_at, 0);
}

TEST(Reach, AStepIsKnownNoBetterThanItsLeastKnownOp) {
  EXPECT_EQ(least_sure({3, 0, 0}), Reach::measured);
  EXPECT_EQ(least_sure({3, 1, 0}), Reach::interpolated);
  EXPECT_EQ(least_sure({30, 1, 1}), Reach::extrapolated);
}

/// Two ranks of a training whose ops took what is given: by step, op and rank. -1: its record was lost.
struct HandMeasured {
  HandMeasured() {
    training.plan.groups = plan::Groups{plan::Mesh{2, 1}, 1, false};
    training.schedules.steps.resize(1);
  }
  /// A forward of a module of its own.
  void add_module(double flops) {
    training.sizes.emplace_back().forward_flops = flops;
    schedule::Op& op = training.schedules.steps.back().ops.emplace_back();
    op.kind = schedule::OpKind::forward;
    op.module = static_cast<int>(training.sizes.size()) - 1;
  }
  using Times = std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>>;
  void add_to(Calibrator& calibrator, const Times& steps, const HostCosts& host = {}) const {
    std::vector<trace::RankTrace> traces(2);
    for (std::size_t step = 0; step < steps.size(); ++step) {
      for (std::size_t rank = 0; rank < 2; ++rank) {
        traces[rank].rank = static_cast<int>(rank);
        for (std::size_t op = 0; op < steps[step].size(); ++op) {
          const std::int64_t ns = rank == 0 ? steps[step][op].first : steps[step][op].second, begin = ns < 0 ? 0 : 1000;
          traces[rank].records.push_back({.step = static_cast<std::int32_t>(step),
                                          .op = static_cast<std::int32_t>(op),
                                          .issued_ns = 1,
                                          .begin_ns = begin,
                                          .end_ns = begin + std::max<std::int64_t>(ns, 0)});
        }
        traces[rank].steps.push_back({1, 1'000'000, 2});
      }
    }
    calibrator.add(MeasuredTimes(training, traces, std::nullopt, false), host);
  }
  config::Calibration calibrated(const Times& steps) const {
    Calibrator calibrator;
    add_to(calibrator, steps);
    return calibrator.result();
  }

  schedule::Training training;
};

/// Draw `draw` of the program's random numbers, of which so many were taken before.
Sequence numbers(int draw, int taken) {
  Sequence random(20261122 + static_cast<std::uint64_t>(draw));
  for (int i = 0; i < taken; ++i) random.uniform();
  return random;
}

/// Seven steps, of which three count: 300, 400 and 500 ns on rank 0, and 20 more each on rank 1.
TEST(Calibration, ALineGoesThroughTheMeansOfTheMiddleThirdOfTheSteps) {
  HandMeasured run;
  run.add_module(1e6);
  HandMeasured::Times steps;
  for (const std::int64_t ns : {700, 100, 400, 200, 900, 300, 500}) steps.push_back({{ns, ns + 20}});
  const config::Calibration c = run.calibrated(steps);
  ASSERT_EQ(c.lines.size(), 1U);
  const config::CalibrationLine& line = c.lines.front();
  EXPECT_EQ(line.kind, "forward");
  EXPECT_EQ(line.unit, "flops");
  EXPECT_EQ(line.ranks, 0);
  EXPECT_EQ(line.samples, 1);
  EXPECT_EQ(line.least, 1e6);
  EXPECT_EQ(line.most, 1e6);
  EXPECT_EQ(line.fixed_ns, 0);
  EXPECT_NEAR(line.ns_per_amount * 1e6, 410, 1e-9);
  EXPECT_NEAR(line.spread_pct, 0, 1e-9);
  ASSERT_EQ(line.off.size(), 1U);
  EXPECT_NEAR(line.off.front(), 1, 1e-12);
  ASSERT_EQ(line.residuals.size(), 14U);
  EXPECT_NEAR(line.residuals.front(), 100 * 7 / 3100.0, 1e-12);
  EXPECT_NEAR(line.residuals[1], 120 * 7 / 3240.0, 1e-12);
  EXPECT_NEAR(line.residuals.back(), 900 * 7 / 3100.0, 1e-12);
  // The quartiles of the 14 times are 220 and 520. A normal distribution with them has a deviation of 300/1.349; the
  // median is over seven steps.
  ASSERT_EQ(line.refits.size(), static_cast<std::size_t>(Uncertainty::kDraws));
  for (int draw = 0; draw < Uncertainty::kDraws; ++draw) {
    const double error = 300 / 1.349 * 1.2533 / std::sqrt(7.0) * numbers(draw, 2).normal();
    EXPECT_NEAR(line.refits[static_cast<std::size_t>(draw)].ns_per_amount * 1e6, 410 + error, 1e-6) << draw;
  }
  // Two steps of 1 and 1000 ns leave so much doubt that some draws have nothing left.
  int none = 0;
  const config::Calibration wide = run.calibrated({{{1, 1}}, {{1000, 1000}}});
  for (int draw = 0; draw < Uncertainty::kDraws; ++draw) {
    const double error = 999 / 1.349 * 1.2533 / std::sqrt(2.0) * numbers(draw, 2).normal();
    const double ns = wide.lines[0].refits[static_cast<std::size_t>(draw)].ns_per_amount * 1e6;
    EXPECT_NEAR(ns, std::max(0.0, 500.5 + error), 1e-6) << draw;
    none += ns == 0 ? 1 : 0;
  }
  EXPECT_GT(none, 0);
}

/// Three ops of one size: 100, 200 and 400 ns are 3/7, 6/7 and 12/7 of their mean.
TEST(Calibration, OpsOfALineAreOffByWhatTheyAre) {
  HandMeasured run;
  for (int i = 0; i < 3; ++i) run.add_module(1e6);
  const config::Calibration c = run.calibrated({{{200, 200}, {100, 100}, {400, 400}}});
  ASSERT_EQ(c.lines.size(), 1U);
  EXPECT_NEAR(c.lines[0].ns_per_amount * 1e6, 700 / 3.0, 1e-6);
  EXPECT_NEAR(c.lines[0].spread_pct, 100 * (1 - 7 / 12.0), 1e-6) << "17, 42 and 133 %";
  EXPECT_EQ(c.lines[0].samples, 3);
  ASSERT_EQ(c.lines[0].off.size(), 3U);
  for (const std::size_t i : {0U, 1U, 2U}) EXPECT_NEAR(c.lines[0].off[i], 3 * (1 << i) / 7.0, 1e-9);
  EXPECT_EQ(c.lines[0].residuals, std::vector<double>{1}) << "of one step nothing is known";
}

TEST(Calibration, LinesHaveTheSizesThatWereMeasured) {
  HandMeasured run;
  for (const double flops : {2e6, 8e6, 4e6}) run.add_module(flops);
  // 1 us and a nanosecond a thousand FLOPs; the update touches nothing, and takes 70 ns.
  run.training.schedules.steps[0].ops.push_back({.kind = schedule::OpKind::optimizer});
  const config::Calibration c = run.calibrated({{{3000, 3000}, {9000, 9000}, {5000, 5000}, {70, 70}}});
  ASSERT_EQ(c.lines.size(), 2U);
  EXPECT_NEAR(c.lines[0].fixed_ns, 1000, 1e-6);
  EXPECT_NEAR(c.lines[0].ns_per_amount, 1e-3, 1e-12);
  EXPECT_EQ(c.lines[0].least, 2e6);
  EXPECT_EQ(c.lines[0].most, 8e6);
  EXPECT_EQ(c.lines[1].kind, "optimizer");
  EXPECT_EQ(c.lines[1].unit, "bytes");
  EXPECT_NEAR(c.lines[1].fixed_ns, 70, 1e-9);
}

/// More values than are kept: those in the middle of equal parts.
TEST(Calibration, KeepsAFewQuantilesOfMany) {
  HandMeasured run;
  HandMeasured::Times one_step(1);
  for (int i = 0; i < 32; ++i) {
    run.add_module(1e6);
    one_step[0].emplace_back(1000 + 10 * i, 1000 + 10 * i);
  }
  const config::Calibration c = run.calibrated(one_step);
  ASSERT_EQ(c.lines[0].off.size(), 16U);
  for (int i = 0; i < 16; ++i) EXPECT_NEAR(c.lines[0].off[static_cast<std::size_t>(i)], (1010 + 20 * i) / 1155.0, 1e-9);
}

TEST(Calibration, WhatTookNothingHasALineOfNothing) {
  HandMeasured run;
  run.add_module(1e6);
  const config::Calibration c = run.calibrated({{{0, 0}}, {{0, 0}}});
  EXPECT_EQ(c.lines[0].ns_per_amount, 0);
  EXPECT_EQ(c.lines[0].spread_pct, 0);
  EXPECT_EQ(c.lines[0].off, std::vector<double>{1});
  EXPECT_EQ(c.lines[0].residuals, std::vector<double>{1});
  const CalibratedTimes times = calibrated_times(c, run.training);
  EXPECT_EQ(times.spread_pct, 0);
  EXPECT_EQ(times.uncertainty.ratios, std::vector(1, std::vector(39, 1.0)));
}

/// A line of less than a nanosecond is a line.
TEST(Calibration, WhatTakesNextToNothingIsOffByMuch) {
  HandMeasured run;
  for (int i = 0; i < 3; ++i) run.add_module(1e6);
  const config::Calibration c = run.calibrated({{{0, 0}, {1, 1}, {2, 2}}});
  for (const std::size_t i : {0U, 1U, 2U}) EXPECT_NEAR(c.lines[0].off[i], static_cast<double>(i), 1e-3);
}

TEST(Calibration, RecordsThatWereLostTellNothing) {
  HandMeasured run;
  run.add_module(1e6);
  run.add_module(2e6);
  const config::Calibration c = run.calibrated({{{300, -1}, {-1, -1}}, {{500, -1}, {-1, -1}}});
  ASSERT_EQ(c.lines.size(), 1U);
  EXPECT_EQ(c.lines[0].samples, 1);
  EXPECT_NEAR(c.lines[0].ns_per_amount * 1e6, 400, 1e-9);
  EXPECT_EQ(c.lines[0].residuals, (std::vector<double>{0.75, 1.25}));
  EXPECT_TRUE(run.calibrated({{{-1, -1}, {-1, -1}}}).lines.empty());
}

TEST(Calibration, StepsOfAnotherScheduleAreLeftOut) {
  HandMeasured run;
  run.add_module(1e6);
  run.training.schedules.steps.push_back(run.training.schedules.steps.front());
  const config::Calibration c = run.calibrated({{{9000, 9000}}, {{100, 100}}, {{300, 300}}});
  EXPECT_NEAR(c.lines[0].ns_per_amount * 1e6, 200, 1e-9);
  EXPECT_EQ(c.lines[0].residuals, (std::vector<double>{0.5, 0.5, 1.5, 1.5}));
  EXPECT_NEAR(run.calibrated({{{9000, 9000}}}).lines[0].ns_per_amount * 1e6, 9000, 1e-9) << "of the first step alone";
}

/// Two runs of 100 and 300 ns, each drawn with replacement; and the middle ones of three hosts.
TEST(Calibration, RunsAreDrawnAsAWhole) {
  HandMeasured run;
  run.add_module(1e6);
  Calibrator calibrator;
  run.add_to(calibrator, {{{100, 100}}}, {.issue_ns = 3, .launch_ns = 20, .gap_ns = 5, .wake_ns = 70});
  run.add_to(calibrator, {{{300, 300}}}, {.issue_ns = 1, .launch_ns = 30, .gap_ns = 6, .wake_ns = 90});
  const config::Calibration two = calibrator.result();
  std::array<int, 3> seen{};
  for (int draw = 0; draw < Uncertainty::kDraws; ++draw) {
    Sequence random = numbers(draw, 0);
    const std::size_t first = random.below(2), second = random.below(2);
    const double ns = two.lines[0].refits[static_cast<std::size_t>(draw)].ns_per_amount * 1e6;
    EXPECT_NEAR(ns, 100 + 100 * static_cast<double>(first + second), 1e-6);
    ++seen[first + second];
  }
  EXPECT_EQ(std::ranges::count(seen, 0), 0);
  EXPECT_EQ(two.host.issue_ns, 1) << "of two the lower";
  run.add_to(calibrator, {{{300, 300}}}, {.issue_ns = 2, .launch_ns = 10, .gap_ns = 4, .wake_ns = 80});
  const config::Calibration three = calibrator.result();
  EXPECT_EQ(three.host.issue_ns, 2);
  EXPECT_EQ(three.host.launch_ns, 20);
  EXPECT_EQ(three.host.gap_ns, 5);
  EXPECT_EQ(three.host.wake_ns, 80);
  ASSERT_EQ(three.host_refits.size(), static_cast<std::size_t>(Uncertainty::kDraws));
  for (int draw = 0; draw < Uncertainty::kDraws; ++draw) {
    Sequence random = numbers(draw, 0);
    std::array<double, 3> issue{};
    for (double& ns : issue) ns = std::array{3.0, 1.0, 2.0}[random.below(3)];
    std::ranges::sort(issue);
    EXPECT_EQ(three.host_refits[static_cast<std::size_t>(draw)].issue_ns, issue[1]) << draw;
  }
}

/// A forward of 1 MFLOP and a gather of three hops and 12 kB on the wire among four ranks, of which two and eight were
/// measured.
TEST(Calibration, OpsTakeWhatTheNearestLineSays) {
  schedule::Training training;
  training.plan.groups = plan::Groups{plan::Mesh{4, 1}, 1, false};
  training.sizes.resize(1);
  training.sizes[0].forward_flops = 1e6;
  schedule::Schedule schedule;
  schedule.ops = {{.kind = schedule::OpKind::forward, .module = 0},
                  {.kind = schedule::OpKind::host_wait},
                  {.kind = schedule::OpKind::all_gather,
                   .lane = Lane::all_gather,
                   .work = schedule::Collective{.group = schedule::Group::shard, .count = 1000}},
                  {.kind = schedule::OpKind::forward, .module = 0}};
  training.schedules.steps = {schedule, schedule};
  config::Calibration c;
  c.host = {200.4, 30.6, 20.4, 10.6};
  c.host_refits = {{201.4, 32.6, 23.4, 14.6}};
  const auto add = [&](const char* kind, const char* unit, int ranks, double fixed, double per, double spread) {
    c.lines.push_back({.kind = kind,
                       .unit = unit,
                       .ranks = ranks,
                       .fixed_ns = fixed,
                       .ns_per_amount = per,
                       .least = 1e6,
                       .most = 2e6,
                       .samples = 1,
                       .spread_pct = spread,
                       .refits = {{fixed, per}},
                       .off = {1},
                       .residuals = {1, static_cast<double>(ranks)}});
  };
  add("all_gather", "bytes", 4, 7, 7, 7);
  add("all_gather", "wire_bytes", 8, 20, 2, 50);
  add("all_gather", "wire_bytes", 2, 10, 1, 30);
  add("forward", "flops", 0, 100, 1e-3, 10);
  c.lines.back().refits = {{220, 2.2e-3}, {300, 1e-3}};
  const CalibratedTimes told = calibrated_times(c, training);
  ASSERT_EQ(told.times.steps.size(), 2U);
  for (const StepCosts& costs : told.times.steps) {
    const auto expect = [&](std::size_t op, double run, double link, int scatter) {
      EXPECT_EQ(costs[op].run_ns, run) << op;
      EXPECT_EQ(costs[op].link_ns, link) << op;
      EXPECT_EQ(costs[op].scatter, scatter) << op;
    };
    expect(0, 1100, 0, 3);
    expect(1, 0, 0, 0);
    expect(2, 30, 12'000, 2);
    expect(3, 1100, 0, 3);
  }
  EXPECT_EQ(told.times.measured_scatter, (std::vector<std::vector<double>>{{1, 4}, {1, 8}, {1, 2}, {1, 0}}));
  EXPECT_EQ(told.times.host.issue_ns, 200);
  EXPECT_EQ(told.times.host.launch_ns, 31);
  EXPECT_EQ(told.times.host.step_ns + told.times.host.start_ns, 0);
  EXPECT_NEAR(told.uncertainty.host[5].launch_ns, 2, 1e-9);
  EXPECT_NEAR(told.uncertainty.host[5].gap_ns, 3, 1e-9);
  EXPECT_NEAR(told.spread_pct, (2200 * 10 + 12'030 * 30) / (2200 + 12'030.0), 1e-9);
  EXPECT_EQ(told.crowded, 1);
  const Uncertainty& uncertainty = told.uncertainty;
  EXPECT_EQ(uncertainty.source, (std::vector<std::vector<int>>{{0, -1, 1, 0}, {0, -1, 1, 0}}));
  EXPECT_EQ(uncertainty.reach[Reach::measured], 2);
  EXPECT_EQ(uncertainty.reach[Reach::interpolated], 0);
  EXPECT_EQ(uncertainty.reach[Reach::extrapolated], 1);
  EXPECT_FALSE(uncertainty.leaves_ranks_out);
  ASSERT_EQ(uncertainty.ratios.size(), 2U);
  // Refits take turns; eight ranks take twice as long as two, so four may take up to twice or half as long as two.
  Sequence random(20261122 ^ 2ULL << 32);
  for (std::size_t draw = 0; draw < 39; ++draw) {
    EXPECT_NEAR(uncertainty.ratios[0][draw], draw % 2 == 0 ? 2420 / 1100.0 : 1300 / 1100.0, 1e-9) << draw;
    random.below(1);
    EXPECT_NEAR(uncertainty.ratios[1][draw], std::exp2(2 * random.uniform() - 1), 1e-9) << draw;
  }
  // Beside four lies two no farther than six: the first of the two lines counts.
  c.lines[1].ranks = 6;
  EXPECT_EQ(calibrated_times(c, training).times.steps[0][2].run_ns, 60);
  // Sizes between measured ones, and beyond.
  for (const auto& [least, most, reach] : {std::tuple{0.5e6, 2e6, Reach::interpolated},
                                           {1.005e6, 2e6, Reach::measured},
                                           {1.02e6, 2e6, Reach::extrapolated},
                                           {0.5e6, 0.995e6, Reach::measured},
                                           {0.5e6, 0.98e6, Reach::extrapolated}}) {
    c.lines[3].least = least;
    c.lines[3].most = most;
    EXPECT_EQ(calibrated_times(c, training).uncertainty.reach[reach], reach == Reach::extrapolated ? 3 : 2) << least;
  }
  c.lines.pop_back();
  EXPECT_THROW(calibrated_times(c, training), ConfigError) << "no forward";
}

}  // namespace
}  // namespace fsdpbench::clock
