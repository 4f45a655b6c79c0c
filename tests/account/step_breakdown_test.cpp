#include "account/step_breakdown.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "account/statistics.h"
#include "base/error.h"
#include "clock/op_times.h"
#include "support/hand_run.h"

namespace fsdpbench::account {
namespace {

using schedule::Op;
using schedule::OpKind;
using testing::HandRun;
using testing::Times;

StepBreakdown broken_down(const HandRun& run) { return break_down(run.view().steps().front(), 0); }

TEST(StepBreakdown, GoldenTraceOfTwoStreams) {
  // A gemm 100-200 and 260-300, an all-gather 150-250, seen from 100 to 300.
  HandRun run;
  run.step(100, 300);
  run.op(OpKind::forward, Lane::compute, Times{100, 200});
  run.op(OpKind::all_gather, Lane::all_gather, Times{150, 250});
  run.op(OpKind::forward, Lane::compute, Times{260, 300});
  const StepBreakdown b = broken_down(run);
  EXPECT_EQ(b.overlap, 50);
  EXPECT_EQ(b.communication, 100);
  EXPECT_EQ(b.computation, 140);
  EXPECT_EQ(b.exposed_communication, 50);
  EXPECT_EQ(b.idle, 10);
  EXPECT_EQ(b.step, 200);
}

TEST(StepBreakdown, CopiesCountOnlyWhereNothingElseRuns) {
  HandRun run;
  run.step(0, 40);
  run.op(OpKind::forward, Lane::compute, Times{0, 10});
  run.op(OpKind::copy_in, Lane::all_gather, Times{5, 20});
  run.op(OpKind::reduce_scatter, Lane::reduce_scatter, Times{15, 30});
  const StepBreakdown b = broken_down(run);
  EXPECT_EQ(b.exposed_copy, 5);
  EXPECT_EQ(b.exposed_communication, 15);
  EXPECT_EQ(b.idle, 10);
}

TEST(StepBreakdown, ACopyOnTheComputeLaneIsNoComputation) {
  // It hides nothing: beside a collective the communication is exposed all the same, alone it is an exposed copy.
  HandRun run;
  run.step(0, 60);
  run.op(OpKind::forward, Lane::compute, Times{0, 10});
  run.op(OpKind::copy_out, Lane::compute, Times{10, 40});
  run.op(OpKind::all_gather, Lane::all_gather, Times{5, 30});
  run.op(OpKind::forward, Lane::compute, Times{40, 60});
  const StepBreakdown b = broken_down(run);
  EXPECT_EQ(b.computation, 30);
  EXPECT_EQ(b.overlap, 5);
  EXPECT_EQ(b.exposed_communication, 20);
  EXPECT_EQ(b.exposed_copy, 10);
  EXPECT_EQ(b.idle, 0);
}

TEST(StepBreakdown, ARecordOutsideItsStepIsRefused) {
  HandRun run;
  run.step(0, 40);
  run.op(OpKind::forward, Lane::compute, Times{0, 50});
  EXPECT_THROW(broken_down(run), Error);
}

TEST(Statistics, MedianAndInterval) {
  EXPECT_DOUBLE_EQ(median({3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median({4, 1, 2, 3}), 2.5);
  const Summary one = summarize({7});
  EXPECT_EQ(to_string(one.interval), "one value");
  EXPECT_DOUBLE_EQ(one.ci_low, 7);
  const Summary few = summarize({1, 2, 9});
  EXPECT_EQ(to_string(few.interval), "range");
  EXPECT_DOUBLE_EQ(few.ci_low, 1);
  EXPECT_DOUBLE_EQ(few.ci_high, 9);
  std::vector<double> many;
  for (int i = 0; i < 101; ++i) many.push_back(i);
  const Summary s = summarize(many);
  EXPECT_DOUBLE_EQ(s.median, 50);
  EXPECT_NEAR(s.ci_low, 40,
              1);  // a resampled median is below 40 with 1.7 %, and below 42, of a 90 % interval, with 4.4 %
  EXPECT_NEAR(s.ci_high, 60, 1);
  EXPECT_EQ(s.n, 101);
  EXPECT_EQ(to_string(s.interval), "95 % bootstrap");
}

TEST(MaxPlus, LanesRunTogetherAndWaitsOrderThem) {
  schedule::Schedule s;
  const auto add = [&](OpKind kind, Lane lane, std::vector<schedule::Wait> waits, int record,
                       schedule::Group group = schedule::Group::none) {
    Op op;
    op.kind = kind;
    op.lane = lane;
    op.waits = std::move(waits);
    op.record = record;
    if (group != schedule::Group::none) op.work = schedule::Collective{.group = group};
    s.ops.push_back(op);
  };
  add(OpKind::all_gather, Lane::all_gather, {}, 0, schedule::Group::shard);
  add(OpKind::forward, Lane::compute, {{0}}, 1);
  add(OpKind::all_gather, Lane::all_gather, {}, 2, schedule::Group::shard);
  add(OpKind::forward, Lane::compute, {{2}}, 3);
  const plan::Groups two(plan::Mesh{2, 1});
  // Gather 10 | forward 30 beside gather 10 | forward 30.
  EXPECT_EQ(clock::max_plus_bound(s, 4, two, {{10, 30, 10, 30}, {10, 30, 10, 30}}), 70);
  // The second gather waits for the host to see the first forward: 10 + 30 + 10 + 30.
  Op host;
  host.kind = OpKind::host_wait;
  host.waits = {{1}};
  schedule::Schedule blocked = s;
  blocked.ops.insert(blocked.ops.begin() + 2, host);
  EXPECT_EQ(clock::max_plus_bound(blocked, 4, two, {{10, 30, 0, 10, 30}, {10, 30, 0, 10, 30}}), 80);
  // A slow rank holds up the other's second gather only if it comes late to it: its lanes are free, so it does not.
  EXPECT_EQ(clock::max_plus_bound(s, 4, two, {{10, 30, 10, 30}, {10, 90, 10, 30}}), 130);
}

TEST(CheckWireBytes, OfAnyKindAndRankAreTheFormulas) {
  config::RunConfig c;
  c.mesh = {2, 2, 1};
  c.train.accumulate = 3;
  const plan::Plan plan = plan::make_plan(c);  // the root and four blocks
  const double rounding = 4 * 5 * 3 + 1;
  using Volume = plan::CommunicationVolume;
  const Volume formula{.all_gather = 1e6, .reduce_scatter = 2e6, .all_reduce = 3e6, .all_to_all = 4e6};
  int rank = 1;
  const auto holds = [&](double Volume::*kind, double more) {
    std::vector<Volume> counted(2, formula);
    counted[rank].*kind += more;
    try {
      check_wire_bytes(formula, counted, plan, c);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::check_failed);
      EXPECT_EQ(std::string(error.what()).substr(0, 7), "rank " + std::to_string(rank) + ":");
      return false;
    }
  };
  for (double Volume::*kind : {&Volume::all_gather, &Volume::reduce_scatter, &Volume::all_to_all}) {
    for (const double sign : {-1.0, 1.0}) {
      EXPECT_TRUE(holds(kind, sign * 0.49));
      EXPECT_FALSE(holds(kind, sign));
    }
  }
  EXPECT_TRUE(holds(&Volume::all_reduce, rounding)) << "replicated parameters are padded";
  EXPECT_FALSE(holds(&Volume::all_reduce, rounding + 1));
  rank = 0;
  EXPECT_FALSE(holds(&Volume::all_gather, 1));
}

TEST(CheckMemory, NoRankTakesMoreThanThePlan) {
  const PoolStatistics plan{.peak_occupied_total = 1000};
  const auto check = [&](std::int64_t last) {
    check_memory(plan, std::vector<PoolStatistics>{{.peak_occupied_total = 10}, {.peak_occupied_total = last}});
  };
  EXPECT_NO_THROW(check(1000));
  EXPECT_THROW(check(1001), Error);
  EXPECT_THROW(check_memory(plan, std::vector<PoolStatistics>{{.peak_occupied_total = 1001}, {}}), Error);
}

}  // namespace
}  // namespace fsdpbench::account
