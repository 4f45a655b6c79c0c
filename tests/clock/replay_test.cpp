// The walks of a schedule on a computed clock: by hand, against each other, and against the laws that they must keep.
#include "clock/op_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <random>

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
  /// Ends of one step, by rank.
  std::vector<double> ends(const plan::Groups& groups) const {
    const auto replay = make_replay(schedules, groups, times);
    replay->step({});
    return replay->last_step().end_ns;
  }

  schedule::Schedules schedules;
  OpTimes times;
};

using Ends = std::vector<double>;

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

/// Groups of 1,250 ranks, of which one is slow, end as groups of two do.
TEST(Replay, ThousandsOfRanksEndAsFewDo) {
  const auto ends = [](int shard, int slow) {
    HandSchedule s;
    s.collective(Lane::all_gather, schedule::Group::shard, {}, 0, {4, 6});
    s.op(OpKind::forward, Lane::compute, {0}, 1, {30});
    s.collective(Lane::all_gather, schedule::Group::shard, {1}, 2, {4, 6});
    s.op(OpKind::forward, Lane::compute, {2}, 3, {30});
    s.times.compute_factor.assign(static_cast<std::size_t>(2 * shard), 1.0);
    s.times.compute_factor[static_cast<std::size_t>(slow)] = 2;
    return s.ends(plan::Groups(plan::Mesh{shard, 2}));
  };
  const Ends few = ends(2, 3), many = ends(1250, 2400);
  EXPECT_EQ(few, (Ends{80, 80, 110, 140}));
  ASSERT_EQ(many.size(), 2500U);
  for (std::size_t rank = 0; rank < many.size(); ++rank) {
    ASSERT_EQ(many[rank], rank == 2400 ? 140 : rank < 1250 ? 80 : 110) << rank;
  }
}

TEST(Replay, RecordsAreAnExecutors) {
  HandSchedule s;
  s.op(OpKind::forward, Lane::compute, {}, 0, {100});
  s.collective(Lane::all_gather, schedule::Group::shard, {0}, 1, {4, 6});
  s.op(OpKind::reshard, Lane::compute, {1}, schedule::kNoEvent);
  s.times.compute_factor = {1, 2};
  s.times.host.issue_ns = 1;
  std::vector<trace::RankTrace> traces(1);
  traces[0].rank = 0;
  const plan::Groups two(plan::Mesh{2, 1});
  const auto replay = make_replay(s.schedules, two, s.times);
  replay->step(traces);
  ASSERT_EQ(traces[0].records.size(), 3U);
  const trace::Record& gather = traces[0].records[1];
  EXPECT_EQ(gather.issued_ns, 1);
  EXPECT_EQ(gather.begin_ns, 101);
  EXPECT_EQ(gather.peers_arrived_ns, 201);
  EXPECT_EQ(gather.end_ns, 211);
  EXPECT_EQ(traces[0].records[2].begin_ns, 0);  // nothing to do
  ASSERT_EQ(traces[0].steps.size(), 1U);
  EXPECT_EQ(traces[0].steps[0].end_ns, 211);
  EXPECT_EQ(traces[0].steps[0].issued_ns, 3);
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
    }
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

TEST(Jitter, DrawsTheSameForTheSameRankWhoeverAsks) {
  const Jitter jitter(3, {Jitter::lognormal(0.1)});
  std::vector<double> all(100, 1e6), half(50, 1e6);
  jitter.apply(2, 5, 0, false, all);
  jitter.apply(2, 5, 50, false, half);
  EXPECT_TRUE(std::equal(half.begin(), half.end(), all.begin() + 50));
  std::vector<double> other(100, 1e6);
  jitter.apply(3, 5, 0, false, other);
  EXPECT_NE(all, other);
}

TEST(Jitter, HasTheDistributionThatItWasGiven) {
  const Jitter jitter(1, {{0.9, 1.0, 1.0, 1.5}}, 0.01, 1e6);
  std::vector<double> ns(200'000, 1000.0);
  jitter.apply(0, 0, 0, true, ns);
  const auto share = [&](double value) {
    return static_cast<double>(std::ranges::count_if(ns, [&](double x) { return x == value || x == value + 1e6; })) /
           200'000;
  };
  EXPECT_NEAR(share(900), 0.25, 0.005);
  EXPECT_NEAR(share(1000), 0.5, 0.005);
  EXPECT_NEAR(share(1500), 0.25, 0.005);
  EXPECT_NEAR(static_cast<double>(std::ranges::count_if(ns, [](double x) { return x > 1e6; })) / 200'000, 0.01, 0.002);
}

}  // namespace
}  // namespace fsdpbench::clock
