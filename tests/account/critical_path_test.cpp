#include "account/critical_path.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <string>
#include <vector>

#include "account/cause.h"
#include "support/cause_cases.h"
#include "support/hand_run.h"
#include "support/simulated_run.h"

namespace fsdpbench::account {
namespace {

using schedule::OpKind;
using schedule::WaitReason;
using testing::CauseCases;
using ::testing::ElementsAre;
using testing::HandRun;
using testing::SimulatedRun;

CriticalPath path_of(const HandRun& run) {
  const RunView view = run.view();
  return find_critical_path(view.steps().front(), plan::Groups(plan::Mesh{view.ranks(), 1}));
}

/// "rank 1 kernels 40", in order of time.
std::vector<std::string> words(const CriticalPath& path) {
  std::vector<std::string> all;
  for (const PathPart& part : path.parts) {
    all.push_back("rank " + std::to_string(part.place) + " " + std::string(to_string(part.kind)) + " " +
                  std::to_string(part.time.end - part.time.begin));
  }
  return all;
}

void expect_exactly_the_step(const CriticalPath& path, std::int64_t step_ns) {
  std::int64_t at = path.step.begin;
  for (const PathPart& part : path.parts) {
    EXPECT_EQ(part.time.begin, at);
    EXPECT_GT(part.time.end, part.time.begin);
    at = part.time.end;
  }
  EXPECT_EQ(at, path.step.end);
  EXPECT_EQ(path.step.end - path.step.begin, step_ns);
}

/// Both compute, the second rank longer; then they reduce, and update.
TEST(CriticalPath, GoesToTheRankThatArrivesLast) {
  HandRun run(2);
  run.step(0, 200);
  run.op(OpKind::forward, Lane::compute, {{10, 60, 10}, {10, 100, 10}}).record = 0;
  schedule::Op& reduce =
      run.collective(OpKind::reduce_scatter, Lane::reduce_scatter, {{60, 150, 11, 100}, {100, 150, 11, 100}});
  reduce.waits.push_back({0, WaitReason::data});
  reduce.record = 1;
  run.op(OpKind::optimizer, Lane::compute, {{150, 200, 12}, {150, 190, 12}}).waits.push_back({1, WaitReason::data});
  const CriticalPath path = path_of(run);
  expect_exactly_the_step(path, 200);
  EXPECT_THAT(words(path),
              ElementsAre("rank 1 host 10", "rank 1 kernels 90", "rank 0 collectives 50", "rank 0 kernels 50"));
  std::vector<PathOfRank> sums;
  add_path(path, sums);
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_EQ(sums[0].all() + sums[1].all(), 200);
  EXPECT_EQ(sums[0].ns[PathKind::kernels] + sums[1].ns[PathKind::kernels], 140);
}

/// The host waits for the first op, and issues the second one late.
TEST(CriticalPath, GoesThroughTheHostToWhatItWaitedFor) {
  HandRun run;
  run.step(0, 100);
  run.forward({5, 40, 5}).record = 0;
  run.op(OpKind::host_sync, Lane::compute, {0, 45, 6}).waits.push_back({0, WaitReason::data});
  run.forward({60, 100, 60});
  const CriticalPath path = path_of(run);
  expect_exactly_the_step(path, 100);
  EXPECT_THAT(words(path), ElementsAre("rank 0 host 5", "rank 0 kernels 35", "rank 0 host 5", "rank 0 host 15",
                                       "rank 0 kernels 40"));
}

/// Issued at 10, with nothing before it, it begins at 30.
TEST(CriticalPath, DoesNotGuess) {
  HandRun run;
  run.step(0, 50);
  run.forward({30, 50, 10});
  EXPECT_THAT(words(path_of(run)), ElementsAre("rank 0 host 10", "rank 0 unknown 20", "rank 0 kernels 20"));
}

/// A copy waits for a core, and a transfer for a rank that nobody recorded.
TEST(CriticalPath, TellsCopiesHostsAndWaitsApart) {
  HandRun run(2);
  run.step(100, 300);
  run.op(OpKind::copy_in, Lane::copy, testing::Times{130, 150, 100, 0, 20}).record = 0;
  schedule::Op& gather = run.collective(OpKind::all_gather, Lane::all_gather, testing::Times{150, 250, 100, 200});
  gather.waits.push_back({0, WaitReason::data});
  gather.record = 1;
  run.op(OpKind::forward, Lane::compute, testing::Times{250, 280, 100}).waits.push_back({1, WaitReason::data});
  const RunView view = run.view();
  const CriticalPath path = find_critical_path(view.steps().front(), plan::Groups(plan::Mesh{4, 1}));
  expect_exactly_the_step(path, 200);
  // The host saw the end at 300. Ranks 2 and 3 are not in view.
  EXPECT_EQ(path.parts.back().op, -1);
  EXPECT_THAT(words(path), ElementsAre("rank 0 unknown 10", "rank 0 waits 20", "rank 0 copies 20", "rank 0 waits 50",
                                       "rank 0 collectives 50", "rank 0 kernels 30", "rank 0 unknown 20"));
}

TEST(CriticalPath, EndsWithTheHostWhereItIssuesWhatHasNoWork) {
  HandRun run;
  trace::StepWindow window{0, 120, 110};
  run.step({window});
  run.forward({5, 40, 5}).record = 0;
  run.op(OpKind::host_sync, Lane::compute, testing::Times{0, 45, 6}).waits.push_back({0, WaitReason::data});
  const CriticalPath path = path_of(run);
  expect_exactly_the_step(path, 120);
  EXPECT_THAT(words(path), ElementsAre("rank 0 host 5", "rank 0 kernels 35", "rank 0 host 5", "rank 0 host 65",
                                       "rank 0 unknown 10"));
}

TEST(CriticalPath, OfTwoThingsTheLaterHeldAnOpBack) {
  HandRun run;
  run.step(0, 100);
  run.forward({0, 30, 0}).record = 0;
  run.op(OpKind::copy_out, Lane::copy, testing::Times{0, 50, 0}).record = 1;
  schedule::Op& last = run.forward({50, 100, 1});
  last.waits.push_back({0, WaitReason::data});
  last.waits.push_back({1, WaitReason::data});
  EXPECT_THAT(words(path_of(run)), ElementsAre("rank 0 copies 50", "rank 0 kernels 50"));
}

/// Two paths over ranks 4 and 7; segments are of one rank and kind, and named by the longest part that has a name.
TEST(CriticalPath, ReportsMeansByRankAndSegmentsOfTheMedianStep) {
  CriticalPath path;
  path.step = {1000, 21'000};
  path.parts = {{0, {1000, 3000}, PathKind::host, -1},
                {0, {3000, 4000}, PathKind::kernels, 5},
                {0, {4000, 7000}, PathKind::kernels, 6},
                {0, {7000, 9000}, PathKind::kernels, 7},
                {1, {9000, 21'000}, PathKind::kernels, 8}};
  std::vector<PathOfRank> sums;
  add_path(path, sums);
  add_path(path, sums);
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_EQ(sums[0].place, 1) << "the most first";
  EXPECT_EQ(sums[0].all(), 24'000);
  EXPECT_EQ(sums[1].ns[PathKind::kernels], 12'000);
  const PathReport report = report_path(
      sums, 2, path, 9, [](int place) { return place == 0 ? 4 : 7; },
      [](int place, int op) { return std::to_string(place) + "/" + std::to_string(op); });
  EXPECT_EQ(report.step, 9);
  ASSERT_EQ(report.ranks.size(), 2U);
  EXPECT_EQ(report.ranks[0].rank, 7);
  EXPECT_DOUBLE_EQ(report.ranks[0].ms, 0.012);
  EXPECT_DOUBLE_EQ(report.ranks[0].share_pct, 60);
  EXPECT_DOUBLE_EQ(report.ranks[1].kinds_ms[PathKind::host], 0.002);
  std::vector<std::string> segments;
  for (const PathSegment& s : report.segments) {
    segments.push_back(std::to_string(s.rank) + " " + std::string(to_string(s.kind)) + " " +
                       std::to_string(static_cast<int>(s.begin_us)) + "+" + std::to_string(static_cast<int>(s.us)) +
                       " of " + std::to_string(s.parts) + ": " + s.row);
  }
  EXPECT_THAT(segments, ElementsAre("4 host 0+2 of 1: ", "4 kernels 2+6 of 3: 0/6", "7 kernels 8+12 of 1: 1/8"));
}

TEST(CriticalPath, OfSimulatedRunsIsTheStepToTheNanosecond) {
  for (const Cause cause : {Cause::late_prefetch, Cause::all_gather_limit, Cause::host_sync, Cause::host_bound,
                            Cause::communicator_serialisation, Cause::link_bound, Cause::straggler}) {
    SCOPED_TRACE(to_string(cause));
    CauseCases cases(11);
    const testing::CauseCase one = cases.one(cause);
    const SimulatedRun run(one.config);
    for (const StepRecords& step : run.view.steps()) {
      const CriticalPath path = find_critical_path(step, run.setup.plan.groups);
      expect_exactly_the_step(path, step.slowest_ns());
      std::vector<PathOfRank> sums;
      add_path(path, sums);
      std::int64_t unknown = 0;
      for (const PathOfRank& rank : sums) unknown += rank.ns[PathKind::unknown];
      EXPECT_EQ(unknown, 0);
      // A rank that computes slowly is what all others wait for.
      if (cause != Cause::straggler) continue;
      EXPECT_EQ(sums.front().place, one.late_rank);
      EXPECT_GT(sums.front().ns[PathKind::kernels] * 10, path.step.end - path.step.begin);
    }
  }
}

/// Means by rank add up to the mean step, the segments to the step that they are of, and the late rank has most of it.
TEST(CriticalPath, IsReportedByRankAndSegment) {
  config::RunConfig config = testing::tiny_decoder();
  config.device.backend = config::BackendKind::virtual_;
  config.emulate.compute_tflops = 0.001;
  config.emulate.link_gb_per_s = 1;
  config.inject.slow_rank = 2;
  config.inject.slow_rank_factor = 2;
  const SimulatedRun run(config);
  const PathReport report = report_path(run.view, run.setup.plan);
  double ms = 0, share_pct = 0, steps_ms = 0, segments_us = 0;
  for (const PathRank& rank : report.ranks) {
    ms += rank.ms;
    share_pct += rank.share_pct;
  }
  std::vector<std::int64_t> numbers;
  for (const StepRecords& step : run.view.steps()) {
    steps_ms += static_cast<double>(step.slowest_ns()) / 1e6;
    numbers.push_back(step.number());
  }
  EXPECT_THAT(numbers, ::testing::Contains(report.step));
  for (const PathSegment& segment : report.segments) {
    EXPECT_NEAR(segment.begin_us, segments_us, 1e-6);
    segments_us += segment.us;
  }
  EXPECT_NEAR(ms, steps_ms / static_cast<double>(run.view.steps().size()), 1e-9);
  EXPECT_NEAR(share_pct, 100, 1e-9);
  EXPECT_NEAR(segments_us, 1e3 * ms, 1e-6);  // all steps are alike
  EXPECT_EQ(report.ranks.front().rank, 2);
  EXPECT_GT(report.ranks.front().share_pct, 50);
  EXPECT_THAT(report.segments, ::testing::Contains(::testing::Field(&PathSegment::row, "backward blocks.2")));
}

TEST(CriticalPath, SegmentsAreOfTheStepOfMedianLength) {
  HandRun run;
  std::int64_t at = 0;
  for (const std::int64_t length : {100'000, 300'000, 200'000}) {
    run.step(at, at + length);
    run.forward({at, at + length, at}, -1);
    at += 1'000'000;
  }
  const RunView view = run.view();
  const PathReport report = report_path(view, plan::Plan{});
  EXPECT_EQ(report.step, 2);
  ASSERT_EQ(report.segments.size(), 1U);
  EXPECT_EQ(report.segments.front().us, 200);
  EXPECT_DOUBLE_EQ(report.ranks.front().ms, 0.2);
}

/// Another rank began its step before the slowest one's, which is all that is explained.
TEST(CriticalPath, BeginsWithTheStepOfTheSlowestRank) {
  HandRun run(2);
  run.step({{50, 250}, {0, 190}});
  run.op(OpKind::forward, Lane::compute, {{60, 100, 60}, {10, 150, 10}}).record = 0;
  run.collective(OpKind::reduce_scatter, Lane::reduce_scatter, {{100, 240, 61, 150}, {150, 180, 11, 150}})
      .waits.push_back({0, WaitReason::data});
  const CriticalPath path = path_of(run);
  EXPECT_EQ(path.step, (Interval{50, 250}));
  EXPECT_THAT(words(path), ElementsAre("rank 1 kernels 100", "rank 0 collectives 90", "rank 0 unknown 10"));
}

/// Rank 1 takes longer and waits for rank 0; the device says that the last one was there 10 later.
TEST(CriticalPath, OfTheTimeUntilAllAreThereTheLastRankHasWhatFollowsItsArrival) {
  HandRun run(2);
  run.step({{0, 200}, {0, 210}});
  run.op(OpKind::forward, Lane::compute, {{10, 100, 10}, {10, 60, 10}}).record = 0;
  schedule::Op& reduce =
      run.collective(OpKind::reduce_scatter, Lane::reduce_scatter, {{100, 150, 11, 110}, {60, 150, 11, 110}});
  reduce.waits.push_back({0, WaitReason::data});
  reduce.record = 1;
  run.op(OpKind::optimizer, Lane::compute, {{150, 200, 12}, {150, 210, 12}}).waits.push_back({1, WaitReason::data});
  const CriticalPath path = path_of(run);
  EXPECT_EQ(path.place, 1);
  EXPECT_THAT(words(path), ElementsAre("rank 0 host 10", "rank 0 kernels 90", "rank 0 collectives 10",
                                       "rank 1 collectives 40", "rank 1 kernels 60"));
}

TEST(CriticalPath, AnOpThatIsIssuedAsTheOneBeforeEndsWaitedForIt) {
  HandRun run;
  run.step(0, 100);
  run.forward({0, 40, 0});
  run.forward({40, 100, 40});
  EXPECT_THAT(words(path_of(run)), ElementsAre("rank 0 kernels 40", "rank 0 kernels 60"));
}

/// The host was at an op until it issued the next one, at the last until it had issued all.
TEST(CriticalPath, IssuingAnOpIsTheHosts) {
  HandRun run;
  run.step({{0, 80, 45}});
  run.forward({30, 40, 10});
  run.forward({50, 80, 25});
  const CriticalPath path = path_of(run);
  EXPECT_THAT(words(path), ElementsAre("rank 0 host 45", "rank 0 unknown 5", "rank 0 kernels 30"));
  EXPECT_EQ(path.parts.front().op, 1);
  HandRun one;
  one.step(0, 80);
  one.forward({30, 50, 10});
  one.forward({50, 80, 25});
  EXPECT_THAT(words(path_of(one)),
              ElementsAre("rank 0 host 25", "rank 0 unknown 5", "rank 0 kernels 20", "rank 0 kernels 30"));
}

/// The host waited for two ops and went on after the later one; a third one was nothing to it, an event that
/// was never recorded neither.
TEST(CriticalPath, TheHostWaitedForTheLastOfSeveralOps) {
  HandRun run;
  run.step({{0, 120, 110}});
  run.op(OpKind::copy_in, Lane::all_gather, testing::Times{0, 60});
  run.forward({5, 50, 5}).record = 0;
  run.op(OpKind::copy_out, Lane::copy, testing::Times{0, 30}).record = 1;
  run.op(OpKind::host_sync, Lane::compute, testing::Times{0, 55, 6}).waits = {{0}, {1}, {7}};
  run.forward({60, 100, 60});
  const CriticalPath path = path_of(run);
  EXPECT_THAT(words(path), ElementsAre("rank 0 host 5", "rank 0 kernels 45", "rank 0 host 5", "rank 0 host 55",
                                       "rank 0 unknown 10"));
  std::vector<int> ops;
  for (const PathPart& part : path.parts) ops.push_back(part.op);
  EXPECT_THAT(ops, ElementsAre(1, 1, 1, -1, -1)) << "at last it issued what has no work";
}

TEST(CriticalPath, OfAStepWithoutWorkNothingIsKnown) {
  HandRun run;
  run.step(10, 40);
  run.op(OpKind::release, Lane::compute, testing::Times{0, 0, 20});
  EXPECT_THAT(words(path_of(run)), ElementsAre("rank 0 unknown 30"));
}

}  // namespace
}  // namespace fsdpbench::account
