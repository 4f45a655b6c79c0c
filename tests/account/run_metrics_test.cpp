#include "account/run_metrics.h"

#include <gmock/gmock.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "account/run_details.h"
#include "base/error.h"
#include "support/hand_run.h"

namespace fsdpbench::account {
namespace {

using schedule::Op;
using schedule::OpKind;
using ::testing::ElementsAre;
using testing::HandRun;
using testing::Times;

/// A step in which rank r computes for computes[r], then communicates until `until`, copies for 7 ns and idles for 3.
void add_step(HandRun& run, std::int64_t at, const std::vector<std::int64_t>& computes, std::int64_t until) {
  std::vector<trace::StepWindow> windows;
  std::vector<Times> computing, sending, copying;
  for (const std::int64_t compute : computes) {
    computing.push_back({at, at + compute, at});
    sending.push_back({at + compute / 2, at + until, at});
    copying.push_back({at + until, at + until + 7, at});
    windows.push_back({at, at + until + 10});
  }
  run.step(windows);
  run.op(OpKind::forward, Lane::compute, computing);
  run.collective(OpKind::all_gather, Lane::all_gather, sending);
  run.op(OpKind::copy_out, Lane::all_gather, copying);
}

RunMetrics metrics_of(const HandRun& run) {
  return run_metrics(run.view(), plan::Groups(plan::Mesh{static_cast<int>(run.traces.size()), 1}), 1000);
}

double sum_of_parts(const auto& m) { return m.compute_ms + m.exposed_comm_ms + m.exposed_copy_ms + m.idle_ms; }

/// Steps of which no two have the same parts, so that the medians of the parts belong to different steps.
HandRun uneven(int steps) {
  HandRun run(2);
  for (int s = 0; s < steps; ++s) {
    const std::int64_t compute = 50 + 37 * ((s * 5) % 7), other = 30 + 41 * ((s * 3) % 5);
    add_step(run, 10'000 * s, {compute, compute + 9}, compute + other);
  }
  return run;
}

TEST(RunMetrics, PartsAddUpToTheStepTheyAreShownWith) {
  for (const int steps : {1, 2, 3, 4, 8, 20}) {
    const RunMetrics m = metrics_of(uneven(steps));
    EXPECT_NEAR(sum_of_parts(m), m.step_ms.median, 1e-12) << steps;
    EXPECT_NEAR(*m.overlap_pct, 100 * (1 - m.exposed_comm_ms / m.comm_ms), 1e-9) << steps;
    for (const RankMetrics& rank : m.ranks) EXPECT_NEAR(sum_of_parts(rank), rank.step_ms.median, 1e-12) << steps;
  }
}

TEST(RunMetrics, PhasesAddUpToThePartsOfTheRun) {
  HandRun run = uneven(8);
  for (schedule::Schedule& schedule : run.schedules.steps) schedule.ops[0].phase = schedule::Phase::backward;
  const RunMetrics m = metrics_of(run);
  PhaseTimes sum;
  for (const PhaseTimes& phase : run_details(run.view(), plan::Plan{}, {}).phases) {
    sum.step_ms += phase.step_ms;
    sum.compute_ms += phase.compute_ms;
    sum.exposed_comm_ms += phase.exposed_comm_ms;
    sum.idle_ms += phase.idle_ms;
  }
  EXPECT_NEAR(sum.step_ms, m.step_ms.median, 1e-12);
  EXPECT_NEAR(sum.compute_ms, m.compute_ms, 1e-12);
  EXPECT_NEAR(sum.exposed_comm_ms, m.exposed_comm_ms, 1e-12);
  EXPECT_NEAR(sum.idle_ms, m.idle_ms, 1e-12);
}

TEST(RunMetrics, TimeThatOthersWaitForALateRankShows) {
  // Rank 1 computes all the time and is the slowest by a nanosecond; the others wait for it.
  HandRun run(4);
  run.step({{0, 100}, {0, 101}, {0, 100}, {0, 100}});
  run.op(OpKind::forward, Lane::compute, {{0, 20}, {0, 101}, {0, 20}, {0, 20}});
  const RunMetrics m = metrics_of(run);
  EXPECT_NEAR(m.step_ms.median * 1e6, 101, 1e-9);
  EXPECT_NEAR(m.compute_ms / m.step_ms.median, 161.0 / 401, 1e-9);
  EXPECT_NEAR(m.ranks[1].compute_ms * 1e6, 101, 1e-9);
  EXPECT_NEAR(m.ranks[0].compute_ms * 1e6, 20, 1e-9);
}

TEST(MiddleSteps, AreTheMiddleThirdWithTheMedianAmongThem) {
  const auto of = [](const std::vector<std::int64_t>& lengths) {
    HandRun run;
    std::int64_t at = 0;
    for (const std::int64_t length : lengths) {
      run.step(at, at + length);
      run.op(OpKind::release, Lane::compute, Times{});
      at += 1000;
    }
    return middle_steps(run.view());
  };
  EXPECT_THAT(of({5}).indices, ElementsAre(0));
  EXPECT_THAT(of({5, 9}).indices, ElementsAre(0, 1));
  EXPECT_THAT(of({30, 10, 20}).indices, ElementsAre(2));
  EXPECT_EQ(of({30, 10, 20}).median, 2U);
  EXPECT_THAT(of({40, 10, 30, 20}).indices, ElementsAre(2, 3));
  EXPECT_EQ(of({40, 10, 30, 20}).median, 3U);
  EXPECT_DOUBLE_EQ(of({40, 10, 30, 20}).median_ms, 25e-6);
  EXPECT_THAT(of({90, 10, 80, 20, 50, 60, 40}).indices, ElementsAre(4, 5, 6));
}

TEST(RunView, RefusesRanksThatDidNotRecordTheSame) {
  const auto refused = [](auto change) {
    HandRun run = uneven(3);
    change(run.traces[1]);
    EXPECT_THROW(run.view(), Error);
  };
  refused([](trace::RankTrace& t) { t.steps.pop_back(); });
  refused([](trace::RankTrace& t) { t.records.pop_back(); });
  refused([](trace::RankTrace& t) { std::swap(t.records[3], t.records[4]); });
  refused([](trace::RankTrace& t) { t.records[3].step = 0; });
}

TEST(RunMetrics, APhaseBeginsWithItsFirstComputation) {
  HandRun run;
  run.step(0, 100);
  run.op(OpKind::forward, Lane::compute, Times{10, 30});
  run.op(OpKind::copy_in, Lane::all_gather, Times{35, 45}).phase = schedule::Phase::backward;
  run.op(OpKind::backward, Lane::compute, Times{50, 90}).phase = schedule::Phase::backward;
  std::vector<std::tuple<schedule::Phase, double, double>> told;
  for (const PhaseTimes& phase : run_details(run.view(), plan::Plan{}, {}).phases) {
    if (phase.step_ms > 0)
      told.emplace_back(phase.phase, std::round(1e6 * phase.step_ms), std::round(1e6 * phase.compute_ms));
  }
  EXPECT_THAT(told,
              ElementsAre(std::tuple(schedule::Phase::forward, 50, 20), std::tuple(schedule::Phase::backward, 50, 40)));
}

/// Of seven steps one took a tenth of the time of the others, and one ten times as long.
TEST(RunMetrics, TokensASecondAreThoseOfTheMedianStep) {
  HandRun run;
  std::int64_t at = 0;
  for (const std::int64_t length : {100'000, 1'000'000, 1'000'000, 1'000'000, 1'000'000, 1'000'000, 10'000'000}) {
    run.step(at, at + length);
    run.op(OpKind::forward, Lane::compute, Times{at, at + length});
    at += length;
  }
  EXPECT_DOUBLE_EQ(metrics_of(run).tokens_per_s, 1000 / 1e-3);
}

}  // namespace
}  // namespace fsdpbench::account
