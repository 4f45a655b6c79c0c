// Times that a replay recorded are measured back, alone on their link and without waiting; and the host with them.
#include "clock/measured_times.h"

#include <gtest/gtest.h>

#include "clock/forecast.h"
#include "clock/measured_host.h"
#include "clock/op_times.h"
#include "clock/what_if_times.h"

namespace fsdpbench::clock {
namespace {

using schedule::Group;
using schedule::Op;
using schedule::OpKind;

/// Two lanes of collectives beside one of computation, on four ranks; what all of it takes is given.
class HandRun {
 public:
  HandRun() {
    training.plan.groups = plan::Groups{plan::Mesh{4, 1}, 1, true};
    training.sizes.resize(1);
    training.sizes.front().forward_flops = 1e6;
    training.sizes.front().backward_flops = 2e6;
    training.schedules.steps.resize(1);
    training.schedules.event_count = 8;
    times.steps.resize(1);
    add(OpKind::all_gather, Lane::all_gather, {}, 0, {1000, 8000}, Group::shard);
    add(OpKind::forward, Lane::compute, {0}, 1, {30'000});
    add(OpKind::all_gather, Lane::all_gather, {}, 2, {1000, 16'000}, Group::shard);
    add(OpKind::reduce_scatter, Lane::reduce_scatter, {0}, 3, {1000, 16'000}, Group::shard_separate);
    add(OpKind::backward, Lane::compute, {2, 3}, 4, {60'000});
  }

  std::vector<trace::RankTrace> record(int steps) {
    std::vector<trace::RankTrace> traces(4);
    for (int rank = 0; rank < 4; ++rank) traces[static_cast<std::size_t>(rank)].rank = rank;
    forecast_run(training, times, 1 + static_cast<std::size_t>(steps), 1, traces);
    return traces;
  }

  schedule::Training training;
  OpTimes times;

 private:
  void add(OpKind kind, Lane lane, std::initializer_list<int> waits, int record, OpCost cost,
           Group group = Group::none) {
    Op& op = training.schedules.steps.front().ops.emplace_back();
    op.kind = kind;
    op.lane = lane;
    op.record = record;
    op.module = group == Group::none ? 0 : -1;
    for (const int event : waits) op.waits.push_back({event, schedule::WaitReason::data});
    // A byte takes a nanosecond: 3/4 of the message goes over the wire.
    if (group != Group::none) {
      op.work = schedule::Collective{.group = group, .count = static_cast<std::int64_t>(cost.link_ns) / 12};
    }
    times.steps.front().push_back(cost);
  }
};

TEST(MeasuredTimes, TransfersThatMetAreMeasuredAlone) {
  HandRun run;
  const std::vector<trace::RankTrace> traces = run.record(2);
  // The gather of 16 us and the reduction met: each took longer than alone.
  EXPECT_GT(traces[0].records[2].end_ns - traces[0].records[2].peers_arrived_ns, 17'000 + 5000);
  const MeasuredTimes shared(run.training, traces, 1000.0 / 3, true);
  EXPECT_EQ(shared.first_step(), 1U);
  EXPECT_EQ(shared.steps(), 2U);
  for (const std::size_t rank : {0U, 3U}) {
    EXPECT_EQ(shared.ns(0, rank)[0], 9000);
    EXPECT_EQ(shared.ns(0, rank)[1], 30'000);
    EXPECT_NEAR(static_cast<double>(shared.ns(0, rank)[2]), 17'000, 2);
    EXPECT_NEAR(static_cast<double>(shared.ns(0, rank)[3]), 17'000, 2);
  }
  // And replayed they meet again.
  WhatIfTimes again = what_if_times(shared, run.training);
  EXPECT_TRUE(links_are_shared(run.training.schedules, run.training.plan.groups, again.times));
  std::vector<trace::RankTrace> replayed(1);
  forecast_run(run.training, again.times, 2, 1, replayed);
  for (std::size_t i = 0; i < 5; ++i) {
    const trace::Record &is = replayed[0].records[i], &was = traces[0].records[i];
    EXPECT_NEAR(static_cast<double>(is.end_ns - is.begin_ns), static_cast<double>(was.end_ns - was.begin_ns), 4) << i;
  }
  const MeasuredTimes own(run.training, traces, std::nullopt, false);
  EXPECT_EQ(own.ns(0, 0)[2], traces[0].records[2].end_ns - traces[0].records[2].peers_arrived_ns);
}

TEST(MeasuredTimes, WaitingForAStragglerIsNobodysTime) {
  HandRun run;
  run.times.compute_factor = {1, 1, 2, 1};
  const MeasuredTimes measured(run.training, run.record(1), std::nullopt, true);
  EXPECT_EQ(measured.ns(0, 0)[1], 30'000);
  EXPECT_EQ(measured.ns(0, 2)[1], 60'000);
  EXPECT_EQ(measured.ns(0, 0)[0], 9000);
  EXPECT_EQ(measured.straggler().rank, 2);
  EXPECT_DOUBLE_EQ(measured.straggler().ratio, 2);
  Changes changes;
  changes.straggler = 2;
  const WhatIfTimes even = what_if_times(measured, run.training, changes);
  EXPECT_EQ(even.times.given[1][2], even.times.given[1][0]);
}

TEST(MeasuredTimes, ARecordThatWasLostIsFilledInFromOtherSteps) {
  HandRun run;
  std::vector<trace::RankTrace> traces = run.record(3);
  traces[1].records[5 + 4].begin_ns = traces[1].records[5 + 4].end_ns = 0;
  EXPECT_EQ(MeasuredTimes(run.training, traces, std::nullopt, true).ns(1, 1)[4], 60'000);
  traces = run.record(1);
  traces[1].records[4].begin_ns = traces[1].records[4].end_ns = 0;
  const MeasuredTimes none(run.training, traces, std::nullopt, true);
  EXPECT_EQ(none.ns(0, 1)[4], MeasuredTimes::kNone);
  EXPECT_ANY_THROW(what_if_times(none, run.training));
}

TEST(MeasuredHost, IssueStartAndWakeAreFoundOut) {
  HandRun run;
  run.times.host = {200, 700, 100, 300};
  run.times.delays.fixed_ns[index_of(Lane::compute)] = 5000;
  const HostCosts host = measured_host(run.training.schedules, run.record(2), run.times.delays);
  EXPECT_EQ(host.issue_ns, 200);
  EXPECT_EQ(host.gap_ns, 100);
  EXPECT_EQ(host.wake_ns, 300);
}

// Computation begins twice in a step: woken by a gather, and after a gap on its own lane. Waits for a core come on top.
class CoreWaitsTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kWoken = 1, kAfterGap = 4;
  static constexpr std::size_t kStarts = 8;  // of each: four ranks, two steps

  CoreWaitsTest() {
    run_.times.host = {200, 700, 100, 300};
    run_.times.steps.front()[kWoken] = {50'000};  // the second gather ends before the lane is free
    traces_ = run_.record(2);
  }
  /// Op `op` had no core for `ns` before it began, in the first `starts` of all ranks and steps.
  void delay(std::size_t op, std::int64_t ns, std::size_t starts) {
    for (std::size_t i = 0; i < starts; ++i) {
      trace::Record& record = traces_[i % 4].records[5 * (i / 4) + op];
      record.begin_ns += ns;
      record.core_wait_ns = ns;
    }
  }
  HostCosts host(CoreWaits core_waits) const { return measured_host(run_.training.schedules, traces_, {}, core_waits); }

  HandRun run_;
  std::vector<trace::RankTrace> traces_;
};

TEST_F(CoreWaitsTest, AFewLongOnesAreInNoMedianAndInTheirMean) {
  delay(kAfterGap, 16'000, 1);
  delay(kWoken, 4000, 2);
  for (const CoreWaits median_only : {CoreWaits::counted, CoreWaits::left_out}) {
    EXPECT_EQ(host(median_only).gap_ns, 100);
    EXPECT_EQ(host(median_only).wake_ns, 300);
  }
  EXPECT_DOUBLE_EQ(host(CoreWaits::averaged).gap_ns, 100 + 16'000.0 / kStarts);
  EXPECT_DOUBLE_EQ(host(CoreWaits::averaged).wake_ns, 300 + 2 * 4000.0 / kStarts);
  EXPECT_EQ(host(CoreWaits::averaged).issue_ns, 200) << "only lanes wait for a core";
}

TEST_F(CoreWaitsTest, OfManyTheMedianHasAllAndTheMeanItsShare) {
  delay(kAfterGap, 800, 5);
  delay(kWoken, 1600, 6);
  EXPECT_EQ(host(CoreWaits::counted).gap_ns, 900);
  EXPECT_EQ(host(CoreWaits::counted).wake_ns, 1900);
  EXPECT_EQ(host(CoreWaits::left_out).gap_ns, 100);
  EXPECT_EQ(host(CoreWaits::left_out).wake_ns, 300);
  EXPECT_DOUBLE_EQ(host(CoreWaits::averaged).gap_ns, 100 + 5 * 800.0 / kStarts);
  EXPECT_DOUBLE_EQ(host(CoreWaits::averaged).wake_ns, 300 + 6 * 1600.0 / kStarts);
}

TEST_F(CoreWaitsTest, OneThatTheOpDidNotWaitForIsNotPartOfItsStart) {
  // No core long before the op had all that it needs: only since then, which is its gap of 100, did the op wait.
  for (trace::RankTrace& trace : traces_) trace.records[kAfterGap].core_wait_ns = 50'000;  // half of the starts
  EXPECT_DOUBLE_EQ(host(CoreWaits::averaged).gap_ns, 0 + 4 * 100.0 / kStarts);
}

/// A gather of 1 us and a byte a nanosecond: 8 us; passes of a module of 30 and 60 us.
TEST(WhatIfTimes, ScalePassesLinksAndHops) {
  HandRun run;
  std::vector<Op>& ops = run.training.schedules.steps.front().ops;
  ops[4].kind = OpKind::recompute;
  const MeasuredTimes measured(run.training, run.record(1), 1000.0 / 3, true);
  const auto times = [&](const Changes& changes) {
    const auto given = what_if_times(measured, run.training, changes).times.given.back();
    return std::vector<std::int64_t>{given[1][0], given[1][1], given[1][4]};
  };
  EXPECT_EQ(times({}), (std::vector<std::int64_t>{9000, 30'000, 60'000}));
  Changes changes;
  changes.compute_scale = 2;
  EXPECT_EQ(times(changes), (std::vector<std::int64_t>{9000, 15'000, 30'000}));
  changes = {};
  changes.compute_factor = {1, 3, 1, 1};
  EXPECT_EQ(times(changes), (std::vector<std::int64_t>{9000, 90'000, 180'000}));
  changes = {};
  changes.link_scale = 4;
  EXPECT_EQ(times(changes), (std::vector<std::int64_t>{3000, 30'000, 60'000}));
  changes = {};
  changes.hop_ns = 500;
  EXPECT_EQ(times(changes), (std::vector<std::int64_t>{10'500, 30'000, 60'000})) << "three hops";
  changes.hop_ns = -1e12;
  EXPECT_EQ(times(changes), (std::vector<std::int64_t>{8000, 30'000, 60'000})) << "bytes take what they take";
  ops[4].kind = OpKind::optimizer;
  const MeasuredTimes other(run.training, run.record(1), 1000.0 / 3, true);
  changes = {};
  changes.compute_scale = 2;
  EXPECT_EQ(what_if_times(other, run.training, changes).times.given.back()[1][4], 60'000) << "no pass of a module";
}

}  // namespace
}  // namespace fsdpbench::clock
