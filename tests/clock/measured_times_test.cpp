// Times that a replay recorded are measured back, alone on their link and without waiting; and the host with them.
#include "clock/measured_times.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
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
  traces = run.record(2);
  traces[1].records[4].begin_ns = traces[1].records[4].end_ns = 0;
  EXPECT_EQ(MeasuredTimes(run.training, traces, std::nullopt, true).ns(0, 1)[4], 60'000) << "in the first one, too";
  traces = run.record(1);
  traces[1].records[4].begin_ns = traces[1].records[4].end_ns = 0;
  const MeasuredTimes none(run.training, traces, std::nullopt, true);
  EXPECT_EQ(none.ns(0, 1)[4], MeasuredTimes::kNone);
  EXPECT_ANY_THROW(what_if_times(none, run.training));
}

/// One op on a rank: begin, end, when its last peer had arrived, when its issue began.
struct Times {
  std::int64_t begin = 0, end = 0, arrived = 0, issued = 1;
};

/// A run of four ranks, two and two of which share, whose records are given.
class Recorded {
 public:
  Recorded() {
    training.plan.groups = plan::Groups{plan::Mesh{2, 2}, 1, false};
    training.schedules.steps.resize(1);
    training.schedules.event_count = 2;
  }
  Op& add(OpKind kind, Lane lane, Group group = Group::none, std::int64_t count = 0) {
    Op& op = training.schedules.steps.back().ops.emplace_back();
    op.kind = kind;
    op.lane = lane;
    if (group != Group::none) op.work = schedule::Collective{.group = group, .count = count};
    return op;
  }
  /// By op and rank. `issued`: when the host had issued the step.
  void record(const std::vector<std::vector<Times>>& by_op, std::int64_t issued = 100) {
    for (std::size_t rank = 0; rank < by_op.front().size(); ++rank) {
      if (traces.size() <= rank) traces.emplace_back().rank = static_cast<int>(rank);
      const auto step = static_cast<std::int32_t>(traces[rank].steps.size());
      for (std::size_t op = 0; op < by_op.size(); ++op) {
        const Times& t = by_op[op][rank];
        traces[rank].records.push_back({step, static_cast<std::int32_t>(op), t.issued, t.begin, t.end, t.arrived});
      }
      traces[rank].steps.push_back({1, 1'000'000, issued});
    }
  }
  MeasuredTimes measured(std::optional<double> hop_ns = std::nullopt, bool shared_link = false) const {
    return {training, traces, hop_ns, shared_link};
  }
  /// By op, of one step.
  static std::vector<std::int64_t> of(std::span<const std::int64_t> values) { return {values.begin(), values.end()}; }

  schedule::Training training;
  std::vector<trace::RankTrace> traces;
};

using Nanoseconds = std::vector<std::int64_t>;

TEST(MeasuredTimes, ARecordSaysWhatItsOpTook) {
  Recorded run;
  for (int i = 0; i < 3; ++i) run.add(OpKind::all_gather, Lane::all_gather, Group::shard, 1000);
  run.add(OpKind::forward, Lane::compute).module = -1;
  run.add(OpKind::host_wait, Lane::compute);
  run.add(OpKind::reshard, Lane::compute);
  run.add(OpKind::optimizer, Lane::compute);
  run.record({{{1000, 1500, 1200, 10}},
              {{1000, 1500, 0, 30}},
              {{1000, 1500, 1600, 20}},
              {{1000, 1500, 0, 25}},
              {{0, 400, 0, 0}},
              {{0, 0, 0, 40}},
              {{0, 0, 0, 60}}},
             70);
  constexpr auto kNone = MeasuredTimes::kNone;
  const MeasuredTimes times = run.measured();
  EXPECT_EQ(Recorded::of(times.ns(0, 0)), (Nanoseconds{300, 500, 0, 500, 0, 0, kNone}));
  EXPECT_EQ(Recorded::of(times.issue_ns(0, 0)), (Nanoseconds{20, 0, 5, kNone, kNone, 20, 10}));
  run.traces[0].steps[0].issued_ns = 0;
  EXPECT_EQ(run.measured().issue_ns(0, 0)[6], kNone) << "nobody knows when the host was done";
  EXPECT_EQ(times.straggler().rank, -1) << "one rank";
}

/// A gather among two ranks and a sum among two others, each beside the other for a part of its time; the member with
/// most company says what its transfer took.
TEST(MeasuredTimes, ATransferTakesWhatItsLeastMemberNeeded) {
  Recorded run;
  run.add(OpKind::all_gather, Lane::all_gather, Group::shard, 1000);
  run.add(OpKind::all_reduce, Lane::reduce_scatter, Group::replicate, 1000);
  run.record({{{1000, 2000}, {1000, 2000}, {1000, 1600}, {1000, 1600}},
              {{1500, 2500}, {2000, 2500}, {3000, 3400}, {1300, 1900}}});
  const auto all = [&](std::optional<double> hop_ns) {
    const MeasuredTimes times = run.measured(hop_ns, true);
    std::vector<Nanoseconds> ns;
    for (std::size_t rank = 0; rank < 4; ++rank) ns.push_back(Recorded::of(times.ns(0, rank)));
    return ns;
  };
  // Half of the time together counts: 750 and 1000 of the first gather, 600 and 450 of the other.
  EXPECT_EQ(all(std::nullopt), (std::vector<Nanoseconds>{{750, 400}, {750, 450}, {450, 400}, {450, 450}}));
  // A hop of 100 ns: the gather flows from 1100 on, the sum, of two hops, from 1700; 300 ns together.
  EXPECT_EQ(all(100)[0], (Nanoseconds{850, 400}));
  EXPECT_EQ(all(100)[3], (Nanoseconds{550, 500}));
  run.traces[2].records[0].peers_arrived_ns = 1600;  // nothing was left for it
  EXPECT_EQ(all(std::nullopt), (std::vector<Nanoseconds>{{750, 400}, {750, 450}, {0, 400}, {450, 450}}));
  EXPECT_EQ(all(5000)[0], (Nanoseconds{1000, 400})) << "hops of more than all of it";
  // Among themselves: three at once for 300 ns, two for 300, one for 300; and one before all of them.
  Recorded three;
  for (const std::int64_t end : {1900, 1300, 1600, 600}) {
    three.add(OpKind::all_gather, Lane::all_gather, Group::shard, 1000);
    three.traces.resize(2);
    for (trace::RankTrace& trace : three.traces) {
      trace.records.push_back({0, static_cast<std::int32_t>(trace.records.size()), 1, end < 1000 ? 500 : 1000, end});
    }
  }
  for (trace::RankTrace& trace : three.traces) trace.steps.push_back({1, 1'000'000, 100});
  three.traces[1].rank = 1;
  EXPECT_EQ(Recorded::of(three.measured(std::nullopt, true).ns(0, 0)), (Nanoseconds{550, 100, 250, 100}));
}

TEST(MeasuredTimes, AGapHasTheLowerMedianOfTheOtherStepsOfItsSchedule) {
  Recorded run;
  run.add(OpKind::optimizer, Lane::compute);
  run.add(OpKind::optimizer, Lane::compute);
  run.training.schedules.steps.push_back(run.training.schedules.steps.front());
  for (const std::int64_t ns : {9000, 0, 400, 100, 300, 200}) {
    const Times first{ns > 0 ? 1000 : 0, ns > 0 ? 1000 + ns : 0}, second{1000, 1000 + ns};
    run.record({{first, {1000, 1007}}, {second, second}});
  }
  const MeasuredTimes times = run.measured();
  EXPECT_EQ(Recorded::of(times.ns(1, 0)), (Nanoseconds{200, 0}));
  EXPECT_EQ(Recorded::of(times.ns(1, 1)), (Nanoseconds{7, 0}));
  run.traces[0].records[0].begin_ns = 0;
  EXPECT_EQ(run.measured().ns(0, 0)[0], MeasuredTimes::kNone) << "the only step of its schedule";
}

/// Gathers of 4 and 8 kB on the wire: 1.1 and 2.1 us in the median, of which a tenth of a microsecond is no size's.
TEST(MeasuredTimes, LinksAreFittedThroughMediansAsFarAsTheirQuartilesLetThem) {
  Recorded run;
  run.add(OpKind::all_gather, Lane::all_gather, Group::shard, 1000);
  run.add(OpKind::all_reduce, Lane::reduce_scatter, Group::replicate, 1000);
  run.add(OpKind::all_gather, Lane::all_gather, Group::shard, 2000);
  run.add(OpKind::all_gather, Lane::all_gather, Group::tensor, 2000);  // of one rank
  const auto links = [&](std::int64_t off, std::optional<double> hop_ns) {
    run.traces.clear();
    const auto took = [&](std::int64_t ns) {  // quartiles are the least and the third
      return std::vector<Times>{
          {1000, 1000 + ns + 2 * off}, {1000, 1000 + ns}, {1000, 1000 + ns - off}, {1000, 1000 + ns + off}};
    };
    run.record({took(1100), took(4000), took(2100), took(50)});
    return run.measured(hop_ns).links();
  };
  const std::vector<MeasuredTimes::Link> exact = links(13, std::nullopt);  // of the 38 ns that it shows 26 are hidden
  ASSERT_EQ(exact.size(), 2U);
  EXPECT_EQ(exact[0].kind, OpKind::all_gather);
  EXPECT_EQ(exact[0].group, Group::shard);
  EXPECT_NEAR(exact[0].fit.fixed_ns, 100, 1e-6) << "a hop";
  EXPECT_NEAR(exact[0].fit.ns_per_amount, 0.25, 1e-9);
  EXPECT_EQ(exact[0].fit.samples, 2);
  EXPECT_EQ(exact[1].kind, OpKind::all_reduce);
  EXPECT_EQ(exact[1].group, Group::replicate);
  EXPECT_NEAR(exact[1].fit.ns_per_amount, 1, 1e-9);
  EXPECT_EQ(links(30, std::nullopt)[0].fit.fixed_ns, 0) << "60 ns between the quartiles hide it";
  EXPECT_EQ(links(10, 60)[0].fit.fixed_ns, 60);
  EXPECT_NEAR(links(10, 0)[1].fit.ns_per_amount, 1, 1e-9);
  // The first step's schedule was measured, though another one repeats.
  run.training.schedules.steps.resize(2);
  ASSERT_EQ(links(10, std::nullopt).size(), 2U);
  EXPECT_NEAR(links(10, std::nullopt)[0].fit.ns_per_amount, 0.25, 1e-9);
}

TEST(MeasuredTimes, TheStragglerComputesLongestInTheMedianStep) {
  Recorded run;
  run.add(OpKind::optimizer, Lane::compute);
  run.add(OpKind::optimizer, Lane::compute);
  run.add(OpKind::optimizer, Lane::all_gather);                        // not on that lane
  run.add(OpKind::all_gather, Lane::compute, Group::replicate, 1000);  // not computation
  const auto straggler = [&](std::initializer_list<std::array<std::int64_t, 3>> steps) {
    run.traces.clear();
    for (const std::array<std::int64_t, 3>& ns : steps) {
      const auto took = [&](std::int64_t a, std::int64_t b, std::int64_t c) {
        return std::vector<Times>{{1000, 1000 + a}, {1000, 1000 + b}, {1000, 1000 + c}};
      };
      run.record({took(ns[0], ns[1], ns[2]), took(0, 0, 0), took(9000, 0, 5000), took(0, 9000, 0)});
    }
    return run.measured().straggler();
  };
  EXPECT_EQ(straggler({{100, 200, 300}}).rank, 2);
  EXPECT_EQ(straggler({{100, 200, 300}}).ratio, 3);
  EXPECT_EQ(straggler({{100, 200, 300}, {100, 800, 300}, {400, 900, 300}}).rank, 1);
  EXPECT_EQ(straggler({{100, 200, 300}, {100, 800, 300}, {400, 900, 300}}).ratio, 8);
  EXPECT_EQ(straggler({{100, 200, 300}}).rank, 2);
  run.traces.pop_back();
  EXPECT_EQ(run.measured().straggler().rank, 1);
  EXPECT_EQ(run.measured().straggler().ratio, 2) << "of two";
  EXPECT_EQ(straggler({{0, 0, 0}}).ratio, 1);
  run.traces[0].records[1].begin_ns = 0;  // lost: counts for nothing
  EXPECT_EQ(run.measured().straggler().ratio, 1);
}

/// One op on the compute lane behind another and an event; only what is behind the latest of what held it is its start.
TEST(MeasuredHost, AStartIsBehindTheLastOfWhatHeldIt) {
  struct Row {
    std::int64_t issued, lane, event, begin;
    double launch, gap, wake;
  };
  for (const Row& row : std::initializer_list<Row>{{100, 50, 60, 107, 7, 0, 0},
                                                   {100, 60, 50, 107, 7, 0, 0},
                                                   {100, 50, 100, 107, 7, 0, 0},
                                                   {100, 50, 60, 90, 0, 0, 0},  // before: clocks are not so exact
                                                   {100, 100, 60, 107, 0, 0, 0},
                                                   {100, 100, 100, 107, 0, 0, 0},
                                                   {50, 100, 60, 107, 0, 7, 0},
                                                   {60, 100, 50, 107, 0, 7, 0},
                                                   {50, 100, 100, 107, 0, 0, 0},
                                                   {50, 60, 100, 107, 0, 0, 7},
                                                   {60, 50, 100, 107, 0, 0, 7},
                                                   {1, 0, 0, 8, 7, 0, 0}}) {
    for (const bool event_first : {true, false}) {
      Recorded run;
      // Ops without times of their own, but for their ends.
      const auto before = [&] { run.add(OpKind::optimizer, Lane::compute); };
      const auto recorder = [&] { run.add(OpKind::optimizer, Lane::all_gather).record = 1; };
      event_first ? recorder() : before();
      event_first ? before() : recorder();
      run.add(OpKind::optimizer, Lane::compute).waits = {{1, schedule::WaitReason::data}};
      const Times event{0, row.event, 0, 0}, lane{0, row.lane, 0, 0};
      const auto costs = [&](std::int64_t issued) {
        run.traces.clear();
        run.record({{event_first ? event : lane}, {event_first ? lane : event}, {{row.begin, 200, 0, 0}}}, issued);
        return measured_host(run.training.schedules, run.traces, {});
      };
      const HostCosts host = costs(row.issued);
      EXPECT_EQ(host.launch_ns, row.launch) << row.issued << " " << row.lane << " " << row.event;
      EXPECT_EQ(host.gap_ns, row.gap) << row.issued << " " << row.lane << " " << row.event;
      EXPECT_EQ(host.wake_ns, row.wake) << row.issued << " " << row.lane << " " << row.event;
      EXPECT_EQ(host.issue_ns, 0);
      const HostCosts unknown = costs(0);  // when the host went on
      EXPECT_EQ(unknown.launch_ns + unknown.gap_ns + unknown.wake_ns, 0);
      // Starts behind an op without work, or one of an earlier step, tell nothing.
      std::vector<Op>& ops = run.training.schedules.steps[0].ops;
      for (const std::size_t idle : {0U, 1U}) {
        ops[idle].kind = OpKind::release;
        const HostCosts none = costs(row.issued);
        EXPECT_EQ(none.launch_ns + none.gap_ns + none.wake_ns, 0);
        ops[idle].kind = OpKind::optimizer;
      }
      ops[2].waits[0].event = 0;
      EXPECT_EQ(costs(row.issued).wake_ns, 0);
      EXPECT_EQ(costs(row.issued).gap_ns, row.lane > row.issued ? static_cast<double>(row.begin - row.lane) : 0);
      ops[2].work = schedule::Collective{.group = Group::shard, .count = 1};
      ops[2].waits.clear();
      EXPECT_EQ(costs(row.issued).launch_ns + costs(row.issued).gap_ns, 0) << "collectives wait for their peers";
    }
  }
}

/// A launch takes 30 ns: what an event held no longer than that says nothing of waking up.
TEST(MeasuredHost, AWakeIsBehindALaunch) {
  for (const std::int64_t event : {130, 131}) {
    Recorded run;
    run.add(OpKind::optimizer, Lane::compute);
    run.add(OpKind::optimizer, Lane::all_gather).record = 1;
    run.add(OpKind::optimizer, Lane::reduce_scatter).waits = {{1, schedule::WaitReason::data}};
    run.record({{{40, 90, 0, 2}}, {{0, event, 0, 10}}, {{200, 300, 0, 40}}}, 100);
    const HostCosts host = measured_host(run.training.schedules, run.traces, {});
    EXPECT_EQ(host.issue_ns, 30) << "8, 30 and 60";
    EXPECT_EQ(host.launch_ns, 30);
    EXPECT_EQ(host.wake_ns, event == 131 ? 69 : 0);
  }
}

/// A launch takes 10 ns, a gap 20 and a wake 30; what begins seven later is late by so much.
TEST(MeasuredHost, ALagIsBehindWhatTheCostsSay) {
  struct Row {
    std::int64_t issued, lane, event, begin;
  };
  for (const Row& row : std::initializer_list<Row>{{100, 50, 0, 117},
                                                   {50, 100, 0, 127},
                                                   {100, 100, 0, 127},
                                                   {100, 50, 110, 117},
                                                   {100, 50, 111, 148},
                                                   {50, 100, 120, 127},
                                                   {50, 100, 121, 158}}) {
    for (const bool collective_first : {true, false}) {
      Recorded run;
      const auto gather = [&](Lane lane) -> Op& { return run.add(OpKind::all_gather, lane, Group::shard, 1); };
      if (collective_first) gather(Lane::reduce_scatter);
      run.add(OpKind::optimizer, Lane::all_gather);
      run.add(OpKind::optimizer, Lane::compute).record = 1;
      if (!collective_first) gather(Lane::reduce_scatter);
      gather(Lane::all_gather).waits = {{1, schedule::WaitReason::data}};
      const auto lags = [&](std::int64_t communicator) {
        run.traces.clear();
        std::vector<std::vector<Times>> times{{{0, row.lane, 0, 0}}, {{0, row.event, 0, 0}}};
        times.insert(collective_first ? times.begin() : times.end(), {{0, communicator, 0, 0}});
        times.push_back({{row.begin, 500, 0, 0}});
        run.record(times, row.issued);
        return measured_starts(run.training.schedules, run.traces, {.launch_ns = 10, .gap_ns = 20, .wake_ns = 30})
            .front()
            .lag_ns[index_of(Lane::all_gather)];
      };
      EXPECT_EQ(lags(row.begin - 8), std::vector<double>{7});
      EXPECT_EQ(lags(row.begin - 7), std::vector<double>{7}) << "free as soon as all else was there";
      EXPECT_EQ(lags(row.begin - 6), std::vector<double>{}) << "its communicator held it up";
      run.training.schedules.steps[0].ops[3].work = schedule::Collective{.group = Group::replicate, .count = 1};
      EXPECT_EQ(lags(row.begin - 6), std::vector<double>{7}) << "another one";
    }
  }
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

TEST(MeasuredHost, WhatBeginsWhenItsCostsSayIsNotLate) {
  HandRun run;
  run.times.host = {200, 700, 100, 300};
  run.times.steps.front()[1] = {50'000};  // all transfers end before the lane is free
  std::vector<trace::RankTrace> traces = run.record(2);
  trace::Record& waited = traces[1].records[4];
  waited.begin_ns += 5000;
  waited.core_wait_ns = 2000;
  const std::vector<LaneStarts> starts = measured_starts(run.training.schedules, traces, run.times.host);
  using Values = std::vector<double>;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(starts[rank].lag_ns[index_of(Lane::all_gather)], Values(4, 0.0)) << "two gathers in each of two steps";
    EXPECT_EQ(starts[rank].lag_ns[index_of(Lane::reduce_scatter)], Values(2, 0.0));
    const bool late = rank == 1;
    EXPECT_EQ(starts[rank].lag_ns[index_of(Lane::compute)], (Values{0, late ? 3000.0 : 0, 0, 0})) << rank;
    EXPECT_EQ(starts[rank].core_wait_ns[index_of(Lane::compute)], (Values{0, late ? 2000.0 : 0, 0, 0})) << rank;
  }
}

/// The steps of a forecast: the steady one; one more where ranks differ; as many as it takes until two are as long.
TEST(Forecast, GoesOnUntilAStepIsAsLongAsTheOneBefore) {
  HandRun run;
  const auto last_step = [&](SteadyStep which) {
    return forecast(run.training, run.times, which, 1).traces[0].records.front().step;
  };
  EXPECT_EQ(last_step(SteadyStep::first), 0);
  EXPECT_EQ(last_step(SteadyStep::repeated), 1);
  run.times.jitter = Jitter(1, {Jitter::lognormal(0.1)});
  EXPECT_EQ(last_step(SteadyStep::first), 1);
  EXPECT_EQ(last_step(SteadyStep::repeated), 7) << "none is, of eight";
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
  changes.link_is = {1, 1, 3, 1};
  EXPECT_EQ(times(changes), (std::vector<std::int64_t>{25'000, 30'000, 60'000})) << "of its group's links the slowest";
  changes.link_was = {1, 1, 1, 2};
  EXPECT_EQ(times(changes), (std::vector<std::int64_t>{13'000, 30'000, 60'000}));
  changes.link_is = {};
  EXPECT_EQ(times(changes), (std::vector<std::int64_t>{5000, 30'000, 60'000}));
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

/// Four ranks: gathers of 8 and 16 kB on the wire and a reduction of 16 kB, none beside another, each 1 us and a
/// nanosecond a byte; passes of a module of 30 and 60 us. Op 0 or 1 of the other run is the one that is asked for.
TEST(WhatIfTimes, WhatWasNotMeasuredIsToldByWhatIsNearest) {
  HandRun run;
  run.training.sizes.front().recompute_flops = 2.5e6;
  run.training.schedules.steps.front().ops[3].waits = {{2, schedule::WaitReason::data}};
  for (const std::size_t i : {0U, 2U, 3U}) run.times.steps.front()[i].link_ns = i == 0 ? 7992 : 15'996;
  const MeasuredTimes measured(run.training, run.record(1), 1000.0 / 3, true);
  struct Case {
    OpKind kind;
    Group group;
    std::int64_t count, ns;  // 12 bytes on the wire, but of all-reduces, which go round twice: 6
    TimeOrigin origin;
    Reach reach;
    double doubt;
  };
  const double far = 0.05 * std::log(2);
  for (const Case& c : {
           Case{OpKind::all_gather, Group::shard, 1000, 13'000, TimeOrigin::fitted, Reach::interpolated, 0},
           {OpKind::all_gather, Group::shard_separate, 2666, 32'992, TimeOrigin::fitted, Reach::extrapolated, far},
           {OpKind::all_gather, Group::shard, 333, 4996, TimeOrigin::fitted, Reach::extrapolated, far},
           {OpKind::reduce_scatter, Group::shard, 2666, 32'992, TimeOrigin::fitted, Reach::extrapolated, far},
           {OpKind::all_reduce, Group::shard, 1000, 8000, TimeOrigin::borrowed, Reach::extrapolated, 0.2},
           {OpKind::all_reduce, Group::tensor, 1000, 0, TimeOrigin::measured, Reach::measured, 0},
           {OpKind::forward, Group::none, 0, 30'000, TimeOrigin::measured, Reach::measured, 0},
           {OpKind::recompute, Group::none, 0, 75'000, TimeOrigin::scaled, Reach::extrapolated,
            0.05 + 0.05 * std::log(2.5)},
       }) {
    schedule::Training other = run.training;
    const std::size_t at = c.group == Group::none ? 1 : 0;
    Op& op = other.schedules.steps.front().ops[at];
    op.kind = c.kind;
    if (at == 0) op.work = schedule::Collective{.group = c.group, .count = c.count};
    const WhatIfTimes told = what_if_times(measured, other);
    const std::string what = fmt::format("{} of {}", schedule::to_string(c.kind), c.count);
    EXPECT_NEAR(static_cast<double>(told.times.given.back()[1][at]), static_cast<double>(c.ns), 1) << what;
    EXPECT_EQ(told.origins[c.origin], c.origin == TimeOrigin::measured ? 5 : 1) << what;
    EXPECT_EQ(told.reach[c.reach], c.reach == Reach::measured ? 5 : 1) << what;
    EXPECT_NEAR(told.doubt_ns, c.doubt * static_cast<double>(c.ns), 1) << what;
  }
  for (const int count : {666, 1333}) {  // of another module, and as large as the smallest and the largest measured
    schedule::Training other = run.training;
    Op& op = other.schedules.steps.front().ops.front();
    op.work = schedule::Collective{.group = Group::shard, .count = count};
    op.module = 7;
    const WhatIfTimes told = what_if_times(measured, other);
    EXPECT_EQ(told.reach[Reach::interpolated], 1) << count;
    EXPECT_NEAR(told.doubt_ns, 0, 1) << count;
  }
  // Doubts of a lane err together, those of two lanes by chance.
  schedule::Training other = run.training;
  std::vector<Op>& ops = other.schedules.steps.front().ops;
  for (const std::size_t i : {0U, 2U}) ops[i].work = schedule::Collective{.group = Group::shard, .count = 2666};
  ops[1].kind = OpKind::recompute;
  EXPECT_NEAR(what_if_times(measured, other).doubt_ns,
              std::hypot(2 * far * 32'992, (0.05 + 0.05 * std::log(2.5)) * 75'000), 1);
  ops[1].kind = OpKind::optimizer;  // of bytes, of which nothing tells
  EXPECT_THROW(what_if_times(measured, other), ConfigError);
}

TEST(WhatIfTimes, AnOpIsIssuedAsTheSameOneOrItsKindOrAnyWas) {
  HandRun run;
  std::vector<trace::RankTrace> traces = run.record(1);
  // 100, 200, 300, 400 and 500 ns.
  std::int64_t at = 1000;
  for (std::size_t i = 0; i < 5; at += 100 * static_cast<std::int64_t>(++i)) traces[1].records[i].issued_ns = at;
  traces[1].steps[0].issued_ns = at;
  const MeasuredTimes measured(run.training, traces, std::nullopt, true);
  schedule::Training other = run.training;
  std::vector<Op>& ops = other.schedules.steps.front().ops;
  for (const OpKind kind : {OpKind::all_gather, OpKind::all_reduce, OpKind::host_wait, OpKind::backward}) {
    Op& op = ops.emplace_back();
    op.kind = kind;
    op.micro = 1;
    op.module = 0;
    if (kind == OpKind::host_wait || kind == OpKind::backward) continue;
    op.lane = Lane::all_gather;
    op.work = schedule::Collective{.group = Group::tensor, .count = 1};
  }
  Changes changes;
  changes.issue_ns = 50;
  EXPECT_EQ(what_if_times(measured, other, changes).times.given_issue.back()[1],
            (std::vector<std::int64_t>{150, 250, 350, 450, 550, 250, 350, 0, 550}));
}

/// Updates of equal size: those of unit 1 took 100 and 200 ns, that of unit 2 400; a forward of unit 3 7 ns.
TEST(WhatIfTimes, AnOpTakesWhatItsLikeTook) {
  Recorded run;
  run.training.sizes.resize(1);
  run.training.sizes[0].forward_flops = 5;
  const auto update = [&](int unit) { run.add(OpKind::optimizer, Lane::compute).unit = unit; };
  for (const int unit : {1, 1, 2}) update(unit);
  Op& forward = run.add(OpKind::forward, Lane::compute);
  forward.unit = 3;
  forward.module = 0;
  run.record({{{1000, 1100}}, {{1000, 1200}}, {{1000, 1400}}, {{1000, 1007}}});
  const MeasuredTimes measured = run.measured();
  schedule::Training other = run.training;
  std::vector<Op>& ops = other.schedules.steps[0].ops;
  std::swap(ops[0], ops[2]);
  ops.push_back(ops[2]);  // a third one of unit 1
  ops.push_back(ops[2]);  // in another phase, and of another microbatch
  ops.back().phase = schedule::Phase::backward;
  ops.push_back(ops[2]);
  ops.back().micro = 5;
  ops.push_back(ops[2]);
  ops.back().unit = 4;
  ops.push_back({.kind = OpKind::release});
  const WhatIfTimes told = what_if_times(measured, other);
  EXPECT_EQ(told.times.given.back()[0], (Nanoseconds{400, 100, 200, 7, 150, 150, 150, 233, 0}));
  EXPECT_EQ(told.origins[TimeOrigin::measured], 8);
  EXPECT_EQ(told.reach[Reach::measured], 8);
  EXPECT_EQ(told.doubt_ns, 0);
  EXPECT_EQ(told.times.ops, OpTimes::Ops::given);
  EXPECT_EQ(told.times.issue, OpTimes::Issue::given);
  EXPECT_EQ(to_string(TimeOrigin::measured), "measured");
  EXPECT_EQ(to_string(TimeOrigin::borrowed), "borrowed");
}

/// Gathers of two ranks took a nanosecond a byte, sums of two others four.
TEST(WhatIfTimes, AKindThatWasNotMeasuredTakesWhatItsLinkDoes) {
  const auto time = [](bool sums, bool gathers, OpKind kind, Group group) {
    Recorded run;
    if (gathers) run.add(OpKind::all_gather, Lane::all_gather, Group::shard, 1000);
    if (sums) run.add(OpKind::all_reduce, Lane::reduce_scatter, Group::replicate, 1000);
    run.add(OpKind::all_gather, Lane::all_gather, Group::tensor, 1000);  // of one rank
    std::vector<std::vector<Times>> times;
    if (gathers) times.emplace_back(4, Times{1000, 5000});
    if (sums) times.emplace_back(4, Times{1000, 17'000});
    times.emplace_back(4, Times{1000, 1000});
    run.record(times);
    schedule::Training other = run.training;
    Op& op = other.schedules.steps[0].ops.front();
    op.kind = kind;
    op.work = schedule::Collective{.group = group, .count = 1000};
    const WhatIfTimes told = what_if_times(run.measured(), other);
    EXPECT_EQ(told.origins[TimeOrigin::borrowed], 1);
    EXPECT_NEAR(told.doubt_ns, 0.2 * static_cast<double>(told.times.given[0][0][0]), 1) << "a kind's, no fit's";
    return told.times.given[0][0][0];
  };
  EXPECT_EQ(time(true, true, OpKind::reduce_scatter, Group::shard), 4000);
  EXPECT_EQ(time(true, true, OpKind::all_gather, Group::replicate), 16'000);
  EXPECT_EQ(time(true, false, OpKind::all_gather, Group::shard), 16'000) << "another link, for want of its own";
  EXPECT_EQ(time(false, true, OpKind::all_reduce, Group::replicate), 4000);
  EXPECT_THROW(time(false, false, OpKind::all_reduce, Group::replicate), ConfigError) << "one rank tells nothing";
}

TEST(WhatIfTimes, WhereLinksDifferOnlyRanksAsManyAndAsFarApartTell) {
  Recorded run;
  run.add(OpKind::all_gather, Lane::all_gather, Group::shard, 1000);          // ranks 0, 1
  run.add(OpKind::all_reduce, Lane::reduce_scatter, Group::replicate, 1000);  // ranks 0, 2
  run.record({std::vector<Times>(4, {1000, 5000}), std::vector<Times>(4, {1000, 17'000})});
  const MeasuredTimes measured(run.training, run.traces, std::nullopt, false, {}, false);
  schedule::Training other = run.training;
  std::vector<Op>& ops = other.schedules.steps[0].ops;
  EXPECT_EQ(what_if_times(measured, other).times.given[0][0], (Nanoseconds{4000, 16'000}));
  ops[0].work = schedule::Collective{.group = Group::replicate, .count = 1000};
  EXPECT_EQ(what_if_times(measured, other).times.given[0][0][0], 16'000) << "the other kind's on these links";
  ops[0].work = schedule::Collective{.group = Group::shard, .count = 1000};
  other.plan.groups = plan::Groups{plan::Mesh{4, 1}, 1, true};
  EXPECT_THROW(what_if_times(measured, other), ConfigError) << "of four ranks nobody knows";
  EXPECT_NO_THROW(what_if_times(run.measured(), other)) << "one fabric";
}

/// Two gathers of one size took 3 and 5 us: a quarter off their mean, of which Student's 97.5 % of two are 4.303.
TEST(WhatIfTimes, AFitIsInDoubtByWhatItsOpsAreOff) {
  Recorded run;
  for (int i = 0; i < 2; ++i) run.add(OpKind::all_gather, Lane::all_gather, Group::shard, 1000);
  run.record({std::vector<Times>(4, {1000, 4000}), std::vector<Times>(4, {1000, 6000})});
  const MeasuredTimes measured = run.measured();
  struct Row {
    OpKind kind;
    std::int64_t count;
    double doubt;
  };
  const double within = 0.25 * 4.303;
  for (const Row& row : {Row{OpKind::reduce_scatter, 1000, within + 0.2},
                         {OpKind::all_gather, 2000, within + 0.05 * std::log(2)},
                         {OpKind::all_gather, 500, within + 0.05 * std::log(2)},
                         {OpKind::all_gather, 4'000'000, within + 0.05 * std::log(1e3)}}) {
    schedule::Training other = run.training;
    std::vector<Op>& ops = other.schedules.steps[0].ops;
    ops.resize(1);
    ops[0].kind = row.kind;
    ops[0].work = schedule::Collective{.group = Group::shard, .count = row.count};
    const WhatIfTimes told = what_if_times(measured, other);
    const auto ns = static_cast<double>(told.times.given[0][0][0]);
    EXPECT_EQ(ns, 4 * static_cast<double>(row.count));
    EXPECT_NEAR(told.doubt_ns, row.doubt * ns, 1e-4 * ns) << row.count;
  }
}

TEST(WhatIfTimes, RanksTakeWhatChangesMakeOfThem) {
  Recorded run;
  run.training.sizes.resize(1);
  run.training.sizes[0].forward_flops = 5;
  run.add(OpKind::forward, Lane::compute).module = 0;
  run.add(OpKind::all_gather, Lane::all_gather, Group::shard, 1000);
  const std::vector<Times> gather(4, Times{1000, 5000});
  run.record({{{1000, 9000}, {1000, 1200}, {1000, 1300}, {1000, 1400}}, gather}, 0);
  for (trace::RankTrace& trace : run.traces) trace.records[1].issued_ns = 0;
  const MeasuredTimes measured = run.measured();
  const auto times = [&](const Changes& changes) { return what_if_times(measured, run.training, changes).times; };
  Changes changes;
  EXPECT_EQ(times(changes).given[0][0], (Nanoseconds{8000, 4000}));
  for (int Changes::*const slow : {&Changes::straggler, &Changes::late_rank}) {
    changes = {};
    changes.*slow = 0;
    EXPECT_EQ(times(changes).given[0][0], (Nanoseconds{300, 4000})) << "the median of the others";
    EXPECT_EQ(times(changes).given[0][1][0], 200);
  }
  changes = {};
  changes.straggler = 1;
  EXPECT_EQ(times(changes).given[0][1][0], 400);
  changes = {};
  changes.link_is = {0.5, 0.25, 1, 1};
  EXPECT_EQ(times(changes).given[0][1][1], 2000) << "both links are quicker, the slower one by half";
  changes = {};
  changes.hop_ns = 300;
  EXPECT_EQ(times(changes).given[0][1][1], 4300);
  EXPECT_EQ(times(changes).steps[0][1].run_ns, 300) << "before its bytes flow";
  EXPECT_EQ(times(changes).steps[0][0].run_ns, 0);
  changes.hop_ns = -300;
  EXPECT_EQ(times(changes).steps[0][1].run_ns, 0);
  changes = {};
  changes.issue_ns = 50;  // nobody knows how long the host took for any op
  EXPECT_EQ(times(changes).given_issue[0][0], (Nanoseconds{50, 50}));
}

}  // namespace
}  // namespace fsdpbench::clock
