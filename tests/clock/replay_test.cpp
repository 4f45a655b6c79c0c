// The walks of a schedule on a computed clock: by hand, against each other, and against the laws that they must keep.
#include "clock/op_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>

#include "clock/forecast.h"
#include "clock/walks.h"
#include "support/random_config.h"

namespace fsdpbench::clock {
namespace {

using schedule::Op;
using schedule::OpKind;

/// A schedule written by hand, and what its ops take.
struct HandSchedule {
  HandSchedule() {
    schedules.steps.resize(1);
    schedules.event_count = 8;
    times.steps.resize(1);
  }
  Op& op(OpKind kind, Lane lane, std::initializer_list<int> waits, int record, OpCost cost = {}) {
    Op& added = schedules.steps.front().ops.emplace_back();
    added.kind = kind;
    added.lane = lane;
    for (const int event : waits) added.waits.push_back({event, schedule::WaitReason::data});
    added.record = record;
    times.steps.front().push_back(cost);
    return added;
  }
  Op& collective(Lane lane, schedule::Group group, std::initializer_list<int> waits, int record, OpCost cost) {
    Op& added = op(OpKind::all_gather, lane, waits, record, cost);
    added.work = schedule::Collective{.group = group, .count = 1};
    return added;
  }
  /// Ends of the last of so many steps, by rank; where both walks apply, both give them.
  std::vector<double> ends(const plan::Groups& groups, int steps = 1) const {
    std::vector<std::unique_ptr<Replay>> walks;
    walks.push_back(make_replay(schedules, groups, times));
    if (!times.are_given() && !links_are_shared(schedules, groups, times)) {
      walks.push_back(walk_in_issue_order(schedules, groups, times));
      walks.push_back(walk_in_time_order(schedules, groups, times));
    }
    for (int step = 0; step < steps; ++step) {
      for (const auto& walk : walks) {
        walk->step({});
        EXPECT_EQ(walk->last_step().begin_ns, walks.front()->last_step().begin_ns);
        EXPECT_EQ(walk->last_step().end_ns, walks.front()->last_step().end_ns);
      }
    }
    return walks.front()->last_step().end_ns;
  }

  schedule::Schedules schedules;
  OpTimes times;
};

using Ends = std::vector<double>;

/// step, op, issued, begin, end, peers arrived, own link.
using Row = std::array<std::int64_t, 7>;
std::vector<Row> rows_of(const trace::RankTrace& trace) {
  std::vector<Row> rows;
  for (const trace::Record& r : trace.records) {
    rows.push_back({r.step, r.op, r.issued_ns, r.begin_ns, r.end_ns, r.peers_arrived_ns, r.link_ns});
  }
  return rows;
}
/// begin, end, issued.
std::vector<std::array<std::int64_t, 3>> windows_of(const trace::RankTrace& trace) {
  std::vector<std::array<std::int64_t, 3>> windows;
  for (const trace::StepWindow& w : trace.steps) windows.push_back({w.begin_ns, w.end_ns, w.issued_ns});
  return windows;
}

TEST(Replay, LanesEventsAndTheHost) {
  HandSchedule s;
  s.collective(Lane::all_gather, schedule::Group::shard, {}, 0, {4, 6});
  s.op(OpKind::forward, Lane::compute, {0}, 1, {30});
  s.collective(Lane::all_gather, schedule::Group::shard, {}, 2, {4, 6});
  s.op(OpKind::forward, Lane::compute, {2}, 3, {30});
  const plan::Groups two(plan::Mesh{2, 1});
  EXPECT_EQ(s.ends(two), Ends{70});
  // The host waits for the first forward before it issues the second gather.
  schedule::Op wait;
  wait.kind = OpKind::host_wait;
  wait.waits = {{1}};
  s.schedules.steps.front().ops.insert(s.schedules.steps.front().ops.begin() + 2, wait);
  s.times.steps.front().insert(s.times.steps.front().begin() + 2, OpCost{});
  EXPECT_EQ(s.ends(two), Ends{80});
  // 2 to issue each of four ops, 5 for an idle lane to start, 7 to wake up. The gather starts at 2 + 5 and ends at 17;
  // the forward wakes at 24 and ends at 54; the host wakes at 61, issues by 63; the lane starts at 68; the gather ends
  // at 78, and the last forward goes from 85 to 115.
  s.times.host = {2, 5, 0, 7};
  EXPECT_EQ(s.ends(two), Ends{115});
  // Nothing was there when a lane came free, so a gap between ops costs nothing.
  s.times.host.gap_ns = 9;
  EXPECT_EQ(s.ends(two), Ends{115});
  s.schedules.steps.front().ops[4].waits.clear();  // the last forward is issued at 65, and waits for nobody: 70 to 100
  EXPECT_EQ(s.ends(two), Ends{100});
}

/// The host takes 10 to issue an op. What ends just when somebody looks for it wakes nobody.
TEST(Replay, NobodyIsWokenForWhatIsThere) {
  const plan::Groups two(plan::Mesh{2, 1});
  for (const OpKind kind : {OpKind::host_sync, OpKind::host_wait}) {
    for (const auto& [first, end] : {std::pair{0, 25}, {1, 11 + 7 + 10 + 5}}) {
      HandSchedule s;
      s.op(OpKind::forward, Lane::compute, {}, 0, {static_cast<double>(first)});
      s.op(kind, Lane::compute, {0}, schedule::kNoEvent);
      s.op(OpKind::forward, Lane::compute, {}, schedule::kNoEvent, {5});
      s.times.host.issue_ns = 10;
      s.times.host.wake_ns = 7;
      EXPECT_EQ(s.ends(two), Ends{static_cast<double>(end)});
    }
  }
  // Another lane's op is issued at 20, when the first ends; the third one at 30, when its lane comes free.
  HandSchedule s;
  s.op(OpKind::forward, Lane::compute, {}, 0, {10});
  s.op(OpKind::copy_in, Lane::copy, {0}, schedule::kNoEvent, {10});
  s.op(OpKind::copy_in, Lane::copy, {}, schedule::kNoEvent, {5});
  s.times.host = {10, 0, 1, 7};
  EXPECT_EQ(s.ends(two), Ends{20 + 10 + 1 + 5});
  // A communicator is free again at 20, when the second gather could begin on its lane.
  for (const auto& [ns, end] : {std::pair{10, 25}, {11, 21 + 7 + 5}}) {
    HandSchedule c;
    c.collective(Lane::all_gather, schedule::Group::shard, {}, schedule::kNoEvent, {0, static_cast<double>(ns)});
    c.collective(Lane::reduce_scatter, schedule::Group::shard, {}, schedule::kNoEvent, {0, 5});
    c.times.host = {10, 0, 0, 7};
    EXPECT_EQ(c.ends(two), Ends{static_cast<double>(end)});
  }
}

TEST(Replay, ASlowRankHoldsUpItsGroupAndNoOther) {
  HandSchedule s;
  s.op(OpKind::backward, Lane::compute, {}, 0, {100});
  s.collective(Lane::reduce_scatter, schedule::Group::shard, {0}, 1, {0, 10});
  s.op(OpKind::optimizer, Lane::compute, {1}, 2, {5});
  s.times.compute_factor = {1, 1, 1, 3};
  EXPECT_EQ(s.ends(plan::Groups(plan::Mesh{2, 2})), (Ends{115, 115, 315, 325}));
  // Across the groups, ranks 0 and 2, and 1 and 3.
  std::get<schedule::Collective>(s.schedules.steps.front().ops[1].work).group = schedule::Group::replicate;
  EXPECT_EQ(s.ends(plan::Groups(plan::Mesh{2, 2})), (Ends{115, 315, 115, 325}));
}

TEST(Replay, AStepOfARankBeginsWhenItsOwnIsOver) {
  HandSchedule s;
  s.op(OpKind::forward, Lane::compute, {}, schedule::kNoEvent, {10});
  s.times.compute_factor = {1, 4};
  s.times.host.step_ns = 3;
  const plan::Groups two(plan::Mesh{2, 1});
  const auto replay = make_replay(s.schedules, two, s.times);
  replay->step({});
  replay->step({});
  EXPECT_EQ(replay->last_step().begin_ns, (Ends{13, 43}));
  EXPECT_EQ(replay->last_step().end_ns, (Ends{23, 83}));
}

/// Two gathers on communicators of their own, the second issued while the first is under way.
HandSchedule shared_link() {
  HandSchedule s;
  s.collective(Lane::all_gather, schedule::Group::shard, {}, 0, {10, 100});
  s.op(OpKind::forward, Lane::compute, {}, 1, {40});
  s.collective(Lane::reduce_scatter, schedule::Group::shard_separate, {1}, 2, {10, 100});
  return s;
}

TEST(Replay, TransfersShareALinkFairly) {
  const plan::Groups groups(plan::Mesh{2, 1}, 1, true);
  HandSchedule s = shared_link();
  // Alone from 10 to 50, 40 of 100 done; the other 60 take 120 beside the second, until 170, when that has 60 of its
  // 100; the other 40 take until 210.
  ASSERT_TRUE(links_are_shared(s.schedules, groups, s.times));
  EXPECT_EQ(s.ends(groups), Ends{210});
  // Over another fabric they do not meet.
  s.times.steps.front()[2].fabric = 1;
  ASSERT_FALSE(links_are_shared(s.schedules, groups, s.times));
  EXPECT_EQ(s.ends(groups), Ends{150});
}

TEST(Replay, ATransferEndsWithItsSlowestLink) {
  const plan::Groups groups(plan::Mesh{2, 1}, 1, true);
  HandSchedule s = shared_link();
  s.times.link_factor = {1, 2};
  // On rank 1's link: 200 and 200, from 10 and from 50: the first has 160 left at 50, and ends at 370; the second then
  // has 40 left, and ends at 410. Rank 0's link is done before, and waits.
  EXPECT_EQ(s.ends(groups), (Ends{410, 410}));
}

/// Given times are of transfers that were alone: what they share from here on takes longer.
TEST(Replay, GivenTransfersMayShareALinkToo) {
  const plan::Groups groups(plan::Mesh{2, 1}, 1, true);
  HandSchedule s = shared_link();
  s.times.ops = OpTimes::Ops::given_alone;
  for (StepCosts& costs : s.times.steps) costs[1].run_ns = 0;
  s.times.given = {{{110, 40, 110}}};
  EXPECT_EQ(s.ends(groups), Ends{210}) << "as by cost";
  s.times.given = {{{60, 40, 110}, {110, 40, 5}}};
  // Rank 0: 50 and 100 from 10 and from 50; 10 are left at 50, so 70, and then 90 until 160. Rank 1: 100 and nothing.
  EXPECT_EQ(s.ends(groups), (Ends{160, 160}));
  std::vector<trace::RankTrace> traces(1);
  make_replay(s.schedules, groups, s.times)->step(traces);
  EXPECT_EQ(rows_of(traces[0]),
            (std::vector<Row>{{0, 0, 0, 0, 110, 0, 0}, {0, 1, 0, 0, 40, 0, 0}, {0, 2, 0, 40, 160, 40, 0}}));
}

/// A gather that another transfer comes to, but only when it is over, ends when it said; the next one of its
/// communicator goes over other links at that moment, and is not taken for it.
TEST(Replay, ATransferIsNotTakenForTheOneBeforeIt) {
  const plan::Groups groups(plan::Mesh{2, 1}, 1, true);
  HandSchedule s;
  s.collective(Lane::all_gather, schedule::Group::shard, {}, schedule::kNoEvent, {0, 100});
  s.op(OpKind::forward, Lane::compute, {}, 1, {50});
  s.collective(Lane::reduce_scatter, schedule::Group::shard_separate, {1}, schedule::kNoEvent, {60, 100});
  s.collective(Lane::all_gather, schedule::Group::shard, {}, 2, {0, 10, 1});
  s.op(OpKind::forward, Lane::compute, {2}, schedule::kNoEvent, {1000});
  ASSERT_TRUE(links_are_shared(s.schedules, groups, s.times));
  EXPECT_EQ(s.ends(groups), Ends{1110});
}

TEST(Replay, LinksAreSharedWhereTwoGroupsMayMeetInAStep) {
  using schedule::Group;
  const plan::Groups groups(plan::Mesh{2, 2}, 1, true);
  const auto shared = [&](std::initializer_list<std::pair<Group, int>> first,
                          std::initializer_list<std::pair<Group, int>> second) {
    std::vector<HandSchedule> steps(2);
    for (const auto& [group, fabric] : first) steps[0].collective(Lane::all_gather, group, {}, -1, {1, 1, fabric});
    for (const auto& [group, fabric] : second) steps[1].collective(Lane::all_gather, group, {}, -1, {1, 1, fabric});
    steps[0].schedules.steps.push_back(steps[1].schedules.steps.front());
    steps[0].times.steps.push_back(steps[1].times.steps.front());
    const bool by_cost = links_are_shared(steps[0].schedules, groups, steps[0].times);
    steps[0].times.ops = OpTimes::Ops::given_alone;
    EXPECT_EQ(links_are_shared(steps[0].schedules, groups, steps[0].times), by_cost);
    steps[0].times.ops = OpTimes::Ops::given;
    EXPECT_FALSE(links_are_shared(steps[0].schedules, groups, steps[0].times));
    return by_cost;
  };
  EXPECT_TRUE(shared({{Group::shard, 0}, {Group::replicate, 0}}, {}));
  EXPECT_TRUE(shared({}, {{Group::shard, 7}, {Group::replicate, 7}}));
  EXPECT_TRUE(shared({{Group::shard, 0}, {Group::shard, 0}, {Group::replicate, 0}}, {}));
  EXPECT_FALSE(shared({}, {}));
  EXPECT_FALSE(shared({{Group::shard, 0}, {Group::shard, 0}}, {{Group::shard, 0}}));
  EXPECT_FALSE(shared({{Group::shard, 0}, {Group::replicate, 1}}, {})) << "other links";
  EXPECT_FALSE(shared({{Group::shard, 0}}, {{Group::replicate, 0}})) << "other steps";
  EXPECT_FALSE(shared({{Group::shard, 0}, {Group::tensor, 0}}, {})) << "a group of one";
  EXPECT_FALSE(shared({{Group::tensor, 0}, {Group::shard, 0}}, {}));
}

/// Kind of each op, op@slot of its waits that count, and the slot of its end.
std::vector<std::string> compiled(const HandSchedule& s, int* slots = nullptr) {
  const Program program = compile(s.schedules.steps.front(), s.schedules.event_count);
  constexpr std::array kKinds{"nothing", "run", "collective", "host_wait", "host_sync"};
  std::vector<std::string> rows;
  for (const Instruction& i : program.instructions) {
    std::string& row = rows.emplace_back(kKinds.at(static_cast<std::size_t>(i.kind)));
    row += " " + std::string(to_string(i.lane)) + " " + std::string(to_string(i.group)) + (i.has_work ? " works" : "");
    for (int w = i.first_wait; w < i.first_wait + i.wait_count; ++w) {
      const Awaited& awaited = program.waits.at(static_cast<std::size_t>(w));
      row += " " + std::to_string(awaited.op) + "@" + std::to_string(awaited.slot);
    }
    if (i.record >= 0) row += " to " + std::to_string(i.record);
  }
  if (slots != nullptr) *slots = program.slots;
  return rows;
}

TEST(Walks, OnlyWaitsThatSayMoreThanEarlierOnesCount) {
  HandSchedule s;
  constexpr int kNone = schedule::kNoEvent;
  s.collective(Lane::all_gather, schedule::Group::shard, {}, 0, {});
  s.op(OpKind::copy_in, Lane::copy, {}, 1);
  s.op(OpKind::forward, Lane::compute, {0, 1}, 2);
  s.op(OpKind::forward, Lane::compute, {0}, kNone);             // 3: its lane has waited for that
  s.op(OpKind::copy_out, Lane::reduce_scatter, {2, 0}, kNone);  // and what 2 waited for
  s.op(OpKind::host_wait, Lane::compute, {0}, kNone);
  s.op(OpKind::host_wait, Lane::compute, {0}, kNone);
  s.op(OpKind::copy_out, Lane::all_reduce, {0}, kNone);  // 7: the host had waited before it issued this
  s.op(OpKind::post_backward, Lane::compute, {}, 3);     // no work, but somebody waits until its lane comes here
  s.op(OpKind::reshard, Lane::reduce_scatter, {3}, kNone);
  s.op(OpKind::reshard, Lane::compute, {}, kNone);
  s.op(OpKind::host_sync, Lane::compute, {}, kNone);
  s.op(OpKind::copy_out, Lane::copy, {2}, kNone);    // 12: all is over
  s.op(OpKind::forward, Lane::compute, {7}, kNone);  // of an earlier step
  s.op(OpKind::forward, Lane::compute, {}, 4);       // nobody waits for it
  int slots = 0;
  EXPECT_EQ(compiled(s, &slots), (std::vector<std::string>{
                                     "collective all_gather shard works to 0",
                                     "run copy none works to 1",
                                     "run compute none works 0@0 1@1 to 1",
                                     "run compute none works",
                                     "run reduce_scatter none works 2@1",
                                     "host_wait compute none 0@0",
                                     "nothing compute none",
                                     "run all_reduce none works",
                                     "run compute none to 0",
                                     "run reduce_scatter none 8@0",
                                     "nothing compute none",
                                     "host_sync compute none",
                                     "run copy none works",
                                     "run compute none works",
                                     "run compute none works",
                                 }));
  EXPECT_EQ(slots, 2);
  HandSchedule two;
  two.op(OpKind::forward, Lane::compute, {}, 0);
  two.op(OpKind::copy_in, Lane::copy, {0}, kNone);
  EXPECT_EQ(compiled(two), (std::vector<std::string>{"run compute none works to 0", "run copy none works 0@0"}));
}

/// A training of two ranks with such a schedule.
schedule::Training training_of(const HandSchedule& s) {
  schedule::Training training;
  training.plan.groups = plan::Groups(plan::Mesh{2, 1});
  training.schedules = s.schedules;
  return training;
}

/// Ranks gather and then compute for 10 ns, rank 1 for 20: their first step takes 15 and 25, all others 25.
TEST(Forecast, TheSteadyStepIsTheFirstThatIsAsLongAsAllOthers) {
  HandSchedule s;
  s.collective(Lane::all_gather, schedule::Group::shard, {}, 0, {0, 5});
  s.op(OpKind::forward, Lane::compute, {0}, schedule::kNoEvent, {10});
  const auto of = [](const HandSchedule& hand, SteadyStep which, int recorded = 0) {
    const schedule::Training training = training_of(hand);
    return forecast(training, hand.times, which, recorded);
  };
  EXPECT_EQ(of(s, SteadyStep::first).lengths_ns, Ends{15});
  s.times.compute_factor = {1, 2};
  EXPECT_EQ(of(s, SteadyStep::first).lengths_ns, (Ends{25, 25}));
  const Forecast repeated = of(s, SteadyStep::repeated, 2);
  EXPECT_EQ(repeated.lengths_ns, (Ends{25, 25}));
  EXPECT_EQ(repeated.slowest_ns(), 25);
  ASSERT_EQ(repeated.traces.size(), 2U);
  EXPECT_EQ(repeated.traces[1].rank, 1);
  EXPECT_EQ(rows_of(repeated.traces[0]), (std::vector<Row>{{2, 0, 40, 40, 55, 50, 5}, {2, 1, 40, 55, 65, 0, 0}}));
  EXPECT_EQ(windows_of(repeated.traces[1]), (std::vector<std::array<std::int64_t, 3>>{{50, 75, 50}}));
  s.times.compute_factor.clear();
  EXPECT_EQ(rows_of(of(s, SteadyStep::first, 1).traces.at(0)),
            (std::vector<Row>{{0, 0, 0, 0, 5, 0, 5}, {0, 1, 0, 5, 15, 0, 0}}));
  EXPECT_EQ(of(s, SteadyStep::repeated, 1).traces.at(0).records.front().step, 1);
  // A second schedule as long as the first is not steady for being so.
  s.schedules.steps.push_back(s.schedules.steps.front());
  s.times.steps.push_back(s.times.steps.front());
  EXPECT_EQ(of(s, SteadyStep::first, 1).traces.at(0).records.front().step, 1);
  EXPECT_EQ(of(s, SteadyStep::repeated, 1).traces.at(0).records.front().step, 2);
  s.times.steps.back()[1].run_ns = 30;
  EXPECT_EQ(of(s, SteadyStep::first).lengths_ns, Ends{35});
  s.times.own_issue = {{0, 0}, {0, 0}, {0, 0}, {0, 6}};  // the host is steady from the fourth step on
  EXPECT_EQ(of(s, SteadyStep::first).lengths_ns, Ends{36});
  // Steps of which none is as long as the one before it end with the eighth.
  s.times.jitter = Jitter(1, {Jitter::lognormal(0.5)});
  s.times.steps.back() = {{0, 1e6}, {1e6}};
  s.times.own_issue.clear();
  EXPECT_EQ(of(s, SteadyStep::repeated, 1).traces.at(0).records.front().step, 1 + 7);
}

TEST(Forecast, ARunTellsEachStepAndRecordsTheLast) {
  HandSchedule s;
  s.op(OpKind::forward, Lane::compute, {}, schedule::kNoEvent, {10});
  s.times.compute_factor = {1, 2};
  const schedule::Training training = training_of(s);
  std::vector<trace::RankTrace> traces(1);
  std::vector<Ends> told;
  forecast_run(training, s.times, 4, 2, traces, [&](std::size_t step, const std::vector<double>& lengths_ns) {
    EXPECT_EQ(step, told.size());
    told.push_back(lengths_ns);
    return true;
  });
  EXPECT_EQ(told, std::vector<Ends>(4, Ends{10, 20}));
  EXPECT_EQ(rows_of(traces[0]), (std::vector<Row>{{2, 0, 20, 20, 30, 0, 0}, {3, 0, 30, 30, 40, 0, 0}}));
  told.clear();
  forecast_run(training, s.times, 4, 2, traces, [&](std::size_t, const std::vector<double>& lengths_ns) {
    told.push_back(lengths_ns);
    return told.size() < 3;
  });
  EXPECT_EQ(told.size(), 3U);
}

/// The host takes 1 ns an op. Rank 1 computes half as fast, and its link is half as fast: a gather takes 4 + 12, of
/// which rank 0's link is busy for 4 + 6.
TEST(Replay, RecordsAreAnExecutors) {
  HandSchedule s;
  s.op(OpKind::forward, Lane::compute, {}, 0, {100});
  s.collective(Lane::all_gather, schedule::Group::shard, {0}, 1, {4, 6});
  s.op(OpKind::reshard, Lane::compute, {1}, schedule::kNoEvent);
  s.op(OpKind::host_wait, Lane::compute, {1}, schedule::kNoEvent);
  s.op(OpKind::forward, Lane::compute, {}, schedule::kNoEvent, {5});
  HandSchedule steady;
  steady.op(OpKind::reshard, Lane::compute, {}, schedule::kNoEvent);
  steady.collective(Lane::all_gather, schedule::Group::shard, {}, schedule::kNoEvent, {4, 6});
  s.schedules.steps.push_back(steady.schedules.steps.front());
  s.times.steps.push_back(steady.times.steps.front());
  s.times.compute_factor = s.times.link_factor = {1, 2};
  s.times.host = {.issue_ns = 1, .step_ns = 7, .start_ns = 1000};
  const plan::Groups two(plan::Mesh{2, 1});
  for (const auto& replay :
       {walk_in_issue_order(s.schedules, two, s.times), walk_in_time_order(s.schedules, two, s.times)}) {
    std::vector<trace::RankTrace> traces(2);
    traces[1].rank = 1;
    replay->step(traces);
    replay->step(traces);
    replay->step({});
    replay->step({&traces[1], 1});
    EXPECT_EQ(rows_of(traces[0]), (std::vector<Row>{{0, 0, 1000, 1001, 1101, 0, 0},
                                                    {0, 1, 1001, 1101, 1217, 1201, 10},
                                                    {0, 2, 1002, 0, 0, 0, 0},  // nothing to do
                                                    {0, 3, 1003, 0, 1217, 0, 0},
                                                    {0, 4, 1217, 1218, 1223, 0, 0},
                                                    {1, 0, 1230, 0, 0, 0, 0},
                                                    {1, 1, 1231, 1232, 1253, 1237, 10}}));
    EXPECT_EQ(rows_of(traces[1]), (std::vector<Row>{{0, 0, 1000, 1001, 1201, 0, 0},
                                                    {0, 1, 1001, 1201, 1217, 1201, 16},
                                                    {0, 2, 1002, 0, 0, 0, 0},
                                                    {0, 3, 1003, 0, 1217, 0, 0},
                                                    {0, 4, 1217, 1218, 1228, 0, 0},
                                                    {1, 0, 1235, 0, 0, 0, 0},
                                                    {1, 1, 1236, 1237, 1253, 1237, 16},
                                                    {3, 0, 1285, 0, 0, 0, 0},
                                                    {3, 1, 1286, 1287, 1303, 1287, 16}}));
    EXPECT_EQ(windows_of(traces[0]),
              (std::vector<std::array<std::int64_t, 3>>{{1000, 1223, 1218}, {1230, 1253, 1232}}));
    EXPECT_EQ(windows_of(traces[1]),
              (std::vector<std::array<std::int64_t, 3>>{{1000, 1228, 1218}, {1235, 1253, 1237}, {1285, 1303, 1287}}));
  }
}

TEST(Replay, AGroupArrivesWithItsLastRankWhicheverThatIs) {
  for (int ranks = 2; ranks < 12; ++ranks) {
    for (int slow = 0; slow < ranks; ++slow) {
      HandSchedule s;
      s.op(OpKind::backward, Lane::compute, {}, 0, {100});
      s.collective(Lane::reduce_scatter, schedule::Group::shard, {0}, schedule::kNoEvent, {0, 10});
      s.times.compute_factor.assign(static_cast<std::size_t>(ranks), 1.0);
      s.times.compute_factor[static_cast<std::size_t>(slow)] = 2;
      EXPECT_EQ(s.ends(plan::Groups(plan::Mesh{ranks, 1})), Ends(static_cast<std::size_t>(ranks), 210)) << slow;
    }
  }
}

TEST(Replay, ATransferTakesAsLongAsTheSlowestLinkOfItsOwnGroup) {
  HandSchedule s;
  s.collective(Lane::all_gather, schedule::Group::shard, {}, schedule::kNoEvent, {3, 10});
  const plan::Groups groups(plan::Mesh{2, 2});
  s.times.link_factor = {1, 2, 4, 1};
  EXPECT_EQ(s.ends(groups), (Ends{23, 23, 43, 43}));
  s.times.link_factor = {0.5, 0.25, 0.75, 0.75};  // some are faster
  s.times.steps.front()[0].link_ns = 100;
  EXPECT_EQ(s.ends(groups), (Ends{53, 53, 78, 78}));
}

/// Times of issuing: the host's for each op, some ops' own on top, or given by rank; ops without work take no lane's
/// time, and the next step begins when the host, too, is done.
TEST(Replay, TheHostTakesItsTimeToIssue) {
  HandSchedule s;
  s.op(OpKind::forward, Lane::compute, {}, schedule::kNoEvent, {10});
  s.op(OpKind::reshard, Lane::compute, {}, schedule::kNoEvent);
  const plan::Groups groups(plan::Mesh{2, 2});
  s.times.compute_factor = {1, 2, 3, 4};
  s.times.host = {.issue_ns = 100, .step_ns = 3};
  EXPECT_EQ(s.ends(groups), (Ends{110, 120, 130, 140}));
  EXPECT_EQ(s.ends(groups, 2), (Ends{313, 323, 333, 343})) << "from 203 on";
  s.times.own_issue = {{7, 5}, {20, 0}};
  EXPECT_EQ(s.ends(groups), (Ends{117, 127, 137, 147}));
  EXPECT_EQ(s.ends(groups, 2), (Ends{345, 355, 365, 375})) << "from 107 + 105 + 3 on, after 120";
  s.times.issue = OpTimes::Issue::given;
  s.times.given_issue = {{{1, 50}, {2, 60}, {3, 70}, {4, 80}}};
  EXPECT_EQ(s.ends(groups), (Ends{11, 22, 33, 44}));
  EXPECT_EQ(s.ends(groups, 2), (Ends{65, 87, 109, 131})) << "from 54, 65, 76, 87 on";
  // A step in which no lane does anything is over when it begins.
  HandSchedule nothing;
  nothing.op(OpKind::host_wait, Lane::compute, {}, schedule::kNoEvent);
  nothing.times.host = {.step_ns = 3, .start_ns = 50};
  EXPECT_EQ(nothing.ends(groups), Ends{50});
  EXPECT_EQ(nothing.ends(groups, 2), Ends{53});
}

/// Every op takes twice as long, and whatever computes for some time is held up by 1000.
TEST(Replay, JitterHoldsUpComputationAlone) {
  HandSchedule s;
  s.op(OpKind::forward, Lane::compute, {}, 0, {10});
  s.op(OpKind::copy_in, Lane::copy, {0}, 1, {10});
  s.collective(Lane::all_gather, schedule::Group::shard, {1}, 2, {4, 6});
  s.op(OpKind::optimizer, Lane::compute, {2}, 3, {0});
  s.op(OpKind::optimizer, Lane::compute, {}, 4, {1});
  s.times.jitter = Jitter(1, {{2}}, 1 - 0x1p-32, 1000);
  const plan::Groups two(plan::Mesh{2, 1});
  EXPECT_EQ(s.ends(two), (Ends{1020 + 20 + 20 + 0 + 1002, 1020 + 20 + 20 + 0 + 1002}));
  // Ops of the second kind of scatter take three times as long.
  s.times.jitter = Jitter(1, {{2}, {3}});
  for (const std::size_t op : {0, 2}) s.times.steps.front()[op].scatter = 1;
  EXPECT_EQ(s.ends(two), (Ends{30 + 20 + 30 + 0 + 2, 30 + 20 + 30 + 0 + 2}));
  // A transfer of 100 + 200 that takes a quarter of that is over before its latency should be.
  s = {};
  s.collective(Lane::all_gather, schedule::Group::shard, {}, schedule::kNoEvent, {100, 100});
  s.times.jitter = Jitter(1, {{0.25}});
  s.times.link_factor = {1, 2};
  for (const auto& replay :
       {walk_in_issue_order(s.schedules, two, s.times), walk_in_time_order(s.schedules, two, s.times)}) {
    std::vector<trace::RankTrace> traces(1);
    replay->step(traces);
    EXPECT_EQ(rows_of(traces[0]), (std::vector<Row>{{0, 0, 0, 0, 75, 0, 75}}));
  }
}

/// Ops take what each rank is given. A gather is over for each in its own time; the communicator is free with the last.
TEST(Replay, GivenTimesAreTakenAsTheyAre) {
  HandSchedule s;
  s.op(OpKind::forward, Lane::compute, {}, 0, {1000});
  s.collective(Lane::all_gather, schedule::Group::shard, {0}, schedule::kNoEvent, {1000, 1000});
  s.collective(Lane::reduce_scatter, schedule::Group::shard, {}, schedule::kNoEvent, {1000, 1000});
  s.op(OpKind::reshard, Lane::compute, {}, schedule::kNoEvent, {1000});
  s.times.ops = OpTimes::Ops::given;
  s.times.given = {{{10, 5, 1, 9}, {30, 9, 1, 9}}, {{0, 1, 0, 0}, {0, 1, 0, 0}}};
  s.times.host.wake_ns = 2;
  const plan::Groups two(plan::Mesh{2, 1});
  const auto replay = make_replay(s.schedules, two, s.times);
  std::vector<trace::RankTrace> traces(2);
  traces[1].rank = 1;
  replay->step(traces);
  // The gather is asked for at 12 and 32, and takes 5 and 9; the reduction then wakes at 43.
  EXPECT_EQ(rows_of(traces[0]),
            (std::vector<Row>{
                {0, 0, 0, 0, 10, 0, 0}, {0, 1, 0, 12, 37, 32, 0}, {0, 2, 0, 43, 44, 43, 0}, {0, 3, 0, 0, 0, 0, 0}}));
  EXPECT_EQ(rows_of(traces[1]),
            (std::vector<Row>{
                {0, 0, 0, 0, 30, 0, 0}, {0, 1, 0, 32, 41, 32, 0}, {0, 2, 0, 43, 44, 43, 0}, {0, 3, 0, 0, 0, 0, 0}}));
  EXPECT_EQ(replay->last_step().end_ns, (Ends{44, 44}));
  replay->step({});
  EXPECT_EQ(replay->last_step().end_ns, (Ends{47, 47})) << "44, 1 for the gather, 2 to wake, 0";
}

/// Costs that are different for every op.
OpTimes made_up_times(const schedule::Schedules& schedules, std::mt19937& random) {
  std::uniform_int_distribution<int> ns(0, 900);
  OpTimes times;
  for (const schedule::Schedule& schedule : schedules.steps) {
    StepCosts& costs = times.steps.emplace_back();
    for (const Op& op : schedule.ops) {
      OpCost& cost = costs.emplace_back();
      if (!op.has_work()) continue;
      cost.run_ns = ns(random);
      if (op.is_collective()) cost.link_ns = 1 + ns(random);
      cost.fabric = static_cast<int>(op.group());  // a link for each communicator
    }
  }
  const auto some = [&](int part) { return static_cast<double>(ns(random) / part); };
  times.host = {some(30), some(20), some(40), some(20), 500};
  return times;
}

struct Walked {
  std::vector<trace::RankTrace> traces;
  Ends ends;
};

Walked walked(Replay& replay, int ranks, int steps) {
  Walked w;
  w.traces.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) w.traces[static_cast<std::size_t>(rank)].rank = rank;
  for (int step = 0; step < steps; ++step) replay.step(w.traces);
  w.ends = replay.last_step().end_ns;
  return w;
}

void expect_equal(const Walked& a, const Walked& b) {
  EXPECT_EQ(a.ends, b.ends);
  for (std::size_t rank = 0; rank < a.traces.size(); ++rank) {
    ASSERT_EQ(a.traces[rank].records.size(), b.traces[rank].records.size());
    for (std::size_t i = 0; i < a.traces[rank].records.size(); ++i) {
      const trace::Record &x = a.traces[rank].records[i], &y = b.traces[rank].records[i];
      ASSERT_EQ(x.issued_ns, y.issued_ns) << "rank " << rank << ", record " << i;
      ASSERT_EQ(x.begin_ns, y.begin_ns) << "rank " << rank << ", record " << i;
      ASSERT_EQ(x.end_ns, y.end_ns) << "rank " << rank << ", record " << i;
      ASSERT_EQ(x.peers_arrived_ns, y.peers_arrived_ns) << "rank " << rank << ", record " << i;
      ASSERT_NEAR(static_cast<double>(x.link_ns), static_cast<double>(y.link_ns), 1) << "halves are rounded";
    }
    EXPECT_EQ(windows_of(a.traces[rank]), windows_of(b.traces[rank]));
  }
}

TEST(Replay, BothWalksAgreeToTheNanosecondOnAnyPolicy) {
  std::mt19937 random(20261122);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const testing::ScheduleCase c = testing::make_case(testing::random_config_of_round(random, round));
    const plan::Groups& groups = c.plan.groups;
    OpTimes times = made_up_times(c.schedules, random);
    const int ranks = groups.ranks();
    if (round % 3 > 0) {
      for (int rank = 0; rank < ranks; ++rank) {
        times.compute_factor.push_back(1 + 0.25 * static_cast<double>(random() % 8));
        if (round % 2 == 0) times.link_factor.push_back(1 + static_cast<double>(random() % 3));
      }
    }
    if (round % 3 == 2) times.jitter = Jitter(7, {Jitter::lognormal(0.2)}, 0.05, 2000);
    if (round % 5 == 4) times.delays = {{0, 50, 0, 0, 0}, 0, 300, 3, {}};
    ASSERT_FALSE(links_are_shared(c.schedules, groups, times));
    const int steps = static_cast<int>(c.schedules.steps.size()) + 1;
    expect_equal(walked(*walk_in_issue_order(c.schedules, groups, times), ranks, steps),
                 walked(*walk_in_time_order(c.schedules, groups, times), ranks, steps));
  }
}

/// A transfer is kept whole where links are alike; a factor of 1 for each takes every link for itself.
TEST(Replay, TransfersThatMeetOnSomeLinksEndAsIfEveryLinkWereWalked) {
  std::mt19937 random(20261123);
  int shared = 0;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    const testing::ScheduleCase c = testing::make_case(testing::random_config_of_round(random, round));
    OpTimes times = made_up_times(c.schedules, random);
    for (StepCosts& costs : times.steps) {
      for (OpCost& cost : costs) cost.fabric = 0;
    }
    times.jitter = Jitter(7, {Jitter::lognormal(0.2)}, 0.05, 2000);
    shared += links_are_shared(c.schedules, c.plan.groups, times) ? 1 : 0;
    const int ranks = c.plan.groups.ranks();
    const Walked whole = walked(*walk_in_time_order(c.schedules, c.plan.groups, times), ranks, 3);
    times.link_factor.assign(static_cast<std::size_t>(ranks), 1.0);
    expect_equal(whole, walked(*walk_in_time_order(c.schedules, c.plan.groups, times), ranks, 3));
  }
  EXPECT_GT(shared, 20);  // else it says little
}

TEST(Replay, RanksThatCannotDifferAreFoldedToTheSameNanosecond) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    const testing::ScheduleCase c = testing::make_case(testing::random_config_of_round(random, round));
    OpTimes times = made_up_times(c.schedules, random);
    if (round % 2 == 1) {  // one link for all communicators
      for (StepCosts& costs : times.steps) {
        for (OpCost& cost : costs) cost.fabric = 0;
      }
    }
    const int ranks = c.plan.groups.ranks();
    const Walked folded = walked(*make_replay(c.schedules, c.plan.groups, times), ranks, 3);
    EXPECT_EQ(folded.ends.size(), 1U);
    times.compute_factor.assign(static_cast<std::size_t>(ranks), 1.0);
    Walked all = walked(*make_replay(c.schedules, c.plan.groups, times), ranks, 3);
    all.ends.resize(1);
    expect_equal(folded, all);
  }
}

/// The (max, +) walk as one would write it down, with every wait and every event of the schedule.
std::int64_t plain_bound(const schedule::Schedule& schedule, int event_count, const plan::Groups& groups,
                         const std::vector<OpDurations>& by_rank) {
  struct State {
    std::int64_t host = 0;
    std::vector<std::int64_t> lanes = std::vector<std::int64_t>(kLaneCount), events;
  };
  std::vector<State> states(by_rank.size());
  for (State& s : states) s.events.resize(static_cast<std::size_t>(event_count));
  std::vector<std::vector<std::int64_t>> communicators(plan::kGroupCount, std::vector<std::int64_t>(by_rank.size()));
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const Op& op = schedule.ops[i];
    std::vector<std::int64_t> start, arrived(by_rank.size());
    for (std::size_t r = 0; r < states.size(); ++r) {
      State& s = states[r];
      std::int64_t time = s.host;
      for (const schedule::Wait& wait : op.waits) time = std::max(time, s.events[static_cast<std::size_t>(wait.event)]);
      if (op.kind == OpKind::host_sync) time = std::max(time, *std::ranges::max_element(s.lanes));
      if (op.is_host()) s.host = time;
      time = std::max(time, s.lanes[index_of(op.lane)]);
      if (op.is_collective()) {
        const auto number = static_cast<std::size_t>(groups.number(op.group(), static_cast<int>(r)));
        arrived[number] =
            std::max({arrived[number], time, communicators[static_cast<std::size_t>(op.group())][number]});
      }
      start.push_back(time);
    }
    if (op.is_host()) continue;
    for (std::size_t r = 0; r < states.size(); ++r) {
      const auto number = static_cast<std::size_t>(groups.number(op.group(), static_cast<int>(r)));
      if (op.is_collective()) start[r] = arrived[number];
      const std::int64_t end = start[r] + (op.has_work() ? by_rank[r][i] : 0);
      states[r].lanes[index_of(op.lane)] = end;
      if (op.record != schedule::kNoEvent) states[r].events[static_cast<std::size_t>(op.record)] = end;
      std::int64_t& free = communicators[static_cast<std::size_t>(op.group())][number];
      if (op.is_collective()) free = std::max(free, end);
    }
  }
  std::int64_t makespan = 0;
  for (const State& s : states) makespan = std::max(makespan, *std::ranges::max_element(s.lanes));
  return makespan;
}

TEST(MaxPlusBound, LeavingWaitsOutChangesNothing) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const testing::ScheduleCase c = testing::make_case(testing::random_config_of_round(random, round));
    const schedule::Schedule& schedule = c.schedules.steady();
    std::vector<OpDurations> by_rank(static_cast<std::size_t>(c.plan.groups.ranks()));
    for (OpDurations& durations : by_rank) {
      for (std::size_t i = 0; i < schedule.ops.size(); ++i)
        durations.push_back(static_cast<std::int64_t>(random() % 1000));
    }
    EXPECT_EQ(max_plus_bound(schedule, c.schedules.event_count, c.plan.groups, by_rank),
              plain_bound(schedule, c.schedules.event_count, c.plan.groups, by_rank));
  }
}

}  // namespace
}  // namespace fsdpbench::clock
