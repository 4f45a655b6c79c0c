#include "account/find_stalls.h"

#include <gmock/gmock.h>

#include <map>
#include <tuple>

#include "account/step_breakdown.h"
#include "base/error.h"
#include "support/hand_run.h"

namespace fsdpbench::account {
namespace {

using schedule::Group;
using schedule::Op;
using schedule::OpKind;
using schedule::Phase;
using schedule::WaitReason;
using ::testing::ElementsAre;
using testing::HandRun;
using ::testing::Pair;
using testing::Times;

const LinkModel kLink{.bytes_per_second = 1e9, .latency_seconds = 0};         // a byte a nanosecond
const LinkModel kLatency{.bytes_per_second = 1e15, .latency_seconds = 1e-3};  // nothing but latency

struct Found {
  std::map<Cause, std::int64_t> ns;
  std::vector<Stall> stalls;
};

/// The stalls of one rank of the first step, which must cover exactly what is not computation.
Found find(const HandRun& run, const std::optional<LinkModel>& link = {}, bool prefetches = true, int rank = 0) {
  const RunView view = run.view();
  const StepRecords& step = view.steps().front();
  Found found;
  found.stalls = find_stalls(step, plan::Groups(plan::Mesh{view.ranks(), 1}), link, prefetches, rank);
  std::int64_t sum = 0;
  for (const Stall& s : found.stalls) {
    found.ns[s.cause] += s.time.end - s.time.begin;
    sum += s.time.end - s.time.begin;
    if (s.cause != Cause::straggler && s.cause != Cause::slow_link) {
      EXPECT_EQ(s.late_rank, -1);
    }
  }
  EXPECT_EQ(sum, break_down(step, rank).stalled());
  return found;
}

Op& collective(HandRun& run, OpKind kind, Lane lane, const std::vector<Times>& times, int unit, int records,
               Group group = Group::shard, std::int64_t count = 0) {
  Op& op = run.collective(kind, lane, times, group, count);
  op.unit = unit;
  op.record = records;
  return op;
}
Op& gather(HandRun& run, Times times, int unit, int records, std::int64_t count = 0) {
  return collective(run, OpKind::all_gather, Lane::all_gather, std::vector<Times>(run.traces.size(), times), unit,
                    records, Group::shard, count);
}
void waits(Op& op, int event, WaitReason reason = WaitReason::data) { op.waits.push_back({event, reason}); }

/// The host was blocked by its first op until 90, and issued the computation at 91.
TEST(FindStalls, TheFirstOpMayBeTheOneThatBlocksTheHost) {
  for (const auto& [kind, cause] :
       {std::pair{OpKind::host_sync, Cause::host_sync}, {OpKind::host_wait, Cause::all_gather_limit}}) {
    HandRun run;
    run.step(0, 200);
    run.op(kind, Lane::compute, Times{0, 90, 0}).waits = {{0, WaitReason::limit}};
    run.forward({91, 200, 91});
    EXPECT_THAT(find(run).ns, ElementsAre(Pair(cause, 91)));
  }
}

TEST(FindStalls, TheHostMayWaitForTheFirstOp) {
  struct Case {
    OpKind kind;
    Lane lane;
    Cause cause;
  };
  for (const Case& c : {Case{OpKind::device_to_host, Lane::device_to_host, Cause::pcie},
                        {OpKind::optimizer, Lane::host_compute, Cause::host_update}}) {
    HandRun run;
    run.step(0, 200);
    Op& first = run.op(c.kind, c.lane, Times{0, 80, 0});
    first.record = 0;
    if (c.kind == OpKind::device_to_host) first.work = schedule::Transfer{};
    waits(run.op(OpKind::host_wait, Lane::compute, Times{0, 80, 1}), 0);
    run.forward({85, 200, 85});
    // The host took 5 to go on.
    EXPECT_EQ(find(run).ns, (std::map<Cause, std::int64_t>{{Cause::host_bound, 5}, {c.cause, 80}}));
  }
}

/// Two of four ranks are recorded. The others may have come last.
TEST(FindStalls, NobodyIsNamedForARankThatWasNotRecorded) {
  for (const auto& [arrived, late] : {std::pair{130, 1}, {131, -1}}) {
    HandRun run(2);
    run.step(0, 200);
    run.forward({0, 100}).record = 1;
    waits(collective(run, OpKind::all_gather, Lane::all_gather, {{100, 150, 0, arrived}, {130, 150, 0, arrived}}, 3, 0),
          1);
    waits(run.forward({150, 200}, 3), 0);
    const RunView view = run.view();
    const std::vector<Stall> stalls = find_stalls(view.steps().front(), plan::Groups(plan::Mesh{4, 1}), {}, true, 0);
    ASSERT_FALSE(stalls.empty());
    EXPECT_EQ(stalls.front().cause, Cause::straggler);
    EXPECT_EQ(stalls.front().time.end, arrived);
    EXPECT_EQ(stalls.front().late_rank, late);
  }
}

/// Two streams compute; what began first need not have been issued first.
TEST(FindStalls, AStallEndsWithTheComputationThatBeginsFirst) {
  HandRun run;
  run.step(0, 300);
  run.forward({0, 50});
  run.op(OpKind::backward, Lane::tensor, Times{150, 300, 1}).phase = Phase::backward;
  run.forward({100, 300, 100});
  const Found found = find(run);
  ASSERT_EQ(found.stalls.size(), 1U);
  EXPECT_EQ(found.stalls[0].op, 2);
  EXPECT_THAT(found.ns, ElementsAre(Pair(Cause::host_bound, 50)));
}

TEST(FindStalls, FirstGatherIsTheStepsBoundary) {
  HandRun run(2);
  run.step(0, 200);
  gather(run, {0, 100}, 0, 0);
  waits(run.forward({100, 200}, 0), 0);
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::step_boundary, 100)));
}

/// Computation until 100, then it waits until 150 for the gather of unit 3.
HandRun late_gather(Times times) {
  HandRun run(2);
  run.step(0, 200);
  run.forward({0, 100}).record = 1;
  gather(run, times, 3, 0);
  waits(run.forward({150, 200}, 3), 0);
  return run;
}

TEST(FindStalls, ATransferThatStartedAtOnceIsTheLinks) {
  EXPECT_THAT(find(late_gather({0, 150})).ns, ElementsAre(Pair(Cause::link_bound, 50)));
}

TEST(FindStalls, ATransferThatIsMostlyLatencyIsInefficient) {
  EXPECT_THAT(find(late_gather({0, 150}), kLatency).ns, ElementsAre(Pair(Cause::inefficient_collective, 50)));
}

TEST(FindStalls, WhatALayersNextPartNeedsOfOtherRanksIsTheTensorGroups) {
  // Also at the ends of a step.
  for (const int unit : {0, 3}) {
    HandRun run(2);
    run.step(0, 200);
    run.forward({0, 100}, unit).record = 1;
    Op& sum = collective(run, OpKind::tensor_all_reduce, Lane::tensor, std::vector<Times>(2, {100, 150, 0, 100}), unit,
                         0, Group::tensor);
    waits(sum, 1);
    waits(run.forward({150, 200}, unit), 0);
    EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::tensor_group, 50))) << unit;
  }
}

TEST(FindStalls, RowsOnTheirWayToExpertsAreAnExpertExchange) {
  for (const OpKind kind : {OpKind::expert_dispatch, OpKind::expert_combine}) {
    HandRun run(2);
    run.step(0, 200);
    run.forward({0, 100}, 3).record = 1;
    Op& rows = collective(run, kind, Lane::tensor, std::vector<Times>(2, {100, 150, 0, 100}), 3, 0, Group::expert);
    waits(rows, 1);
    waits(run.forward({150, 200}, 3), 0);
    EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::expert_exchange, 50))) << static_cast<int>(kind);
  }
}

TEST(FindStalls, AGatherHeldBackUntilAForwardIsALatePrefetch) {
  // It begins the very nanosecond in which the forward ends: what is known to have held it is to blame.
  HandRun run = late_gather({100, 150});
  waits(run.schedules.steps[0].ops[1], 1, WaitReason::limit);
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::late_prefetch, 50)));
}

TEST(FindStalls, AGatherHeldBackUntilMemoryIsFreeIsTheLimits) {
  for (const WaitReason reason : {WaitReason::limit, WaitReason::reuse}) {
    HandRun run = late_gather({100, 150});
    run.schedules.steps[0].ops[0].kind = OpKind::backward;
    waits(run.schedules.steps[0].ops[1], 1, reason);
    EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::all_gather_limit, 50)));
  }
}

TEST(FindStalls, AHostBlockedByTheLimitIsTheLimits) {
  HandRun run(2);
  run.step(0, 200);
  run.forward({0, 100}).record = 1;
  Op& wait = run.op(OpKind::host_wait, Lane::compute, Times{0, 100, 10});
  waits(wait, 1, WaitReason::limit);
  gather(run, {100, 150, 100}, 3, 0);
  waits(run.forward({150, 200, 100}, 3), 0);
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::all_gather_limit, 50)));
}

TEST(FindStalls, ComputationThatWaitsForAnInputBufferLacksBuffers) {
  HandRun run(2);
  run.step(0, 250);
  Op& first = run.op(OpKind::backward, Lane::compute, Times{0, 100});
  first.unit = 4;
  first.phase = Phase::backward;
  first.record = 1;
  Op& reduce =
      collective(run, OpKind::reduce_scatter, Lane::reduce_scatter, std::vector<Times>(2, Times{100, 180}), 4, 0);
  reduce.phase = Phase::backward;
  waits(reduce, 1);
  Op& release = run.op(OpKind::release, Lane::compute, Times{});
  release.phase = Phase::backward;
  waits(release, 0, WaitReason::reuse);
  Op& second = run.op(OpKind::backward, Lane::compute, Times{180, 250});
  second.unit = 3;
  second.phase = Phase::backward;
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::reduce_scatter_buffers, 80)));
}

/// A gather in backward that stood behind a reduction on their communicator.
HandRun behind_a_reduction(bool prefetched) {
  HandRun run(2);
  run.step(0, 200);
  Op& before = run.op(OpKind::backward, Lane::compute, Times{0, 100});
  before.phase = Phase::backward;
  before.unit = 4;
  collective(run, OpKind::reduce_scatter, Lane::reduce_scatter, std::vector<Times>(2, Times{0, 100}), 5, 1).phase =
      Phase::backward;
  Op& next = gather(run, {100, 150}, 3, 0);
  next.phase = Phase::backward;
  next.prefetch = prefetched;
  Op& after = run.op(OpKind::backward, Lane::compute, Times{150, 200});
  after.phase = Phase::backward;
  after.unit = 3;
  waits(after, 0);
  return run;
}

TEST(FindStalls, BehindAnotherKindOnTheCommunicator) {
  EXPECT_THAT(find(behind_a_reduction(true), kLatency).ns, ElementsAre(Pair(Cause::communicator_serialisation, 50)));
  // One that was busy sending would only have shared the link.
  EXPECT_THAT(find(behind_a_reduction(true)).ns, ElementsAre(Pair(Cause::link_bound, 50)));
}

TEST(FindStalls, AGatherThatWasNotPrefetchedCameLateOrWasRefused) {
  EXPECT_THAT(find(behind_a_reduction(false), {}, false).ns, ElementsAre(Pair(Cause::late_prefetch, 50)));
  EXPECT_THAT(find(behind_a_reduction(false), {}, true).ns, ElementsAre(Pair(Cause::all_gather_limit, 50)));
}

TEST(FindStalls, ATransferThatSharedItsLinkSufferedContention) {
  HandRun run(2);
  run.step(0, 200);
  run.forward({0, 100});
  gather(run, {0, 150}, 3, 0, 25);  // 100 bytes: alone it would have been over at 100
  collective(run, OpKind::reduce_scatter, Lane::reduce_scatter, std::vector<Times>(2, Times{0, 150}), 4, 1,
             Group::shard_separate, 25);
  waits(run.forward({150, 200}, 3), 0);
  EXPECT_THAT(find(run, kLink).ns, ElementsAre(Pair(Cause::contention, 50)));
}

TEST(FindStalls, WaitingForALateRankIsItsFault) {
  HandRun run(3);
  run.step(0, 200);
  run.forward({0, 100});
  collective(run, OpKind::all_gather, Lane::all_gather, {{0, 150, 0, 130}, {20, 150, 0, 130}, {130, 150, 130, 130}}, 3,
             0);
  waits(run.forward({150, 200}, 3), 0);
  const Found found = find(run);
  EXPECT_THAT(found.ns, ElementsAre(Pair(Cause::straggler, 50)));
  for (const Stall& stall : found.stalls) EXPECT_EQ(stall.late_rank, 2);
  HandRun first = run;
  std::swap(first.traces[0].records[1], first.traces[2].records[1]);
  for (const Stall& stall : find(first, {}, true, 1).stalls) EXPECT_EQ(stall.late_rank, 0);
  // The late rank itself waited for its host.
  EXPECT_THAT(find(run, {}, true, 2).ns, ElementsAre(Pair(Cause::host_bound, 50)));
}

TEST(FindStalls, OfRanksThatAreEquallyLateTheFirstIsNamed) {
  HandRun run(3);
  run.step(0, 200);
  run.forward({0, 100});
  collective(run, OpKind::all_gather, Lane::all_gather, {{0, 150, 0, 130}, {130, 150, 0, 130}, {130, 150, 0, 130}}, 3,
             0);
  waits(run.forward({150, 200}, 3), 0);
  for (const Stall& stall : find(run).stalls) EXPECT_EQ(stall.late_rank, 1);
}

TEST(FindStalls, AHostThatWaitedForTheDevice) {
  HandRun run;
  run.step(0, 200);
  run.forward({0, 100});
  run.op(OpKind::host_sync, Lane::compute, Times{0, 120, 50});
  run.forward({120, 200, 120});
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::host_sync, 20)));
}

/// Op 0, which the host waited for, ends at 105; what the host issued before it waited ended at 100.
TEST(FindStalls, AHostThatWaitedForTheFirstOpOfAStep) {
  for (const auto& [kind, lane, cause] : {std::tuple{OpKind::device_to_host, Lane::device_to_host, Cause::pcie},
                                          {OpKind::expert_counts, Lane::tensor, Cause::host_sync},
                                          {OpKind::optimizer, Lane::host_compute, Cause::host_update},
                                          {OpKind::forward, Lane::all_gather, Cause::all_gather_limit}}) {
    HandRun run;
    run.step(0, 200);
    Op& first = run.op(kind, lane, Times{0, 105});
    if (kind == OpKind::device_to_host) first.work = schedule::Transfer{};
    first.record = 1;
    run.forward({0, 100});
    waits(run.op(OpKind::host_wait, Lane::compute, Times{0, 105, 10}), 1, WaitReason::limit);
    run.forward({110, 200, 110});
    const auto& found = find(run).ns;
    EXPECT_TRUE(found.contains(cause)) << static_cast<int>(cause) << ": " << ::testing::PrintToString(found);
  }
}

TEST(FindStalls, AHostThatBeganAStepByWaiting) {
  HandRun run;
  run.step(0, 100);
  waits(run.op(OpKind::host_wait, Lane::compute, Times{0, 50, 0}), 1);
  run.forward({50, 100, 50});
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::all_gather_limit, 50)));
}

TEST(FindStalls, AHostThatIssuedLateWithoutHavingBeenBlocked) {
  HandRun run;
  run.step(0, 200);
  run.forward({0, 100});
  run.forward({130, 200, 130});
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::host_bound, 30)));
}

TEST(FindStalls, AHostThatTookLongToIssueAnOp) {
  HandRun run;
  run.step(0, 300);
  run.forward({0, 100});
  run.forward({130, 200, 110});
  run.forward({200, 300, 125});  // until then the host was at the one before; the rest is the lane's
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::host_bound, 25), Pair(Cause::unknown, 5)));
}

TEST(FindStalls, ACopyInTheWay) {
  HandRun run;
  run.step(0, 200);
  run.forward({0, 100}).record = 1;
  Op& copy = run.op(OpKind::copy_out, Lane::all_gather, Times{100, 140});
  copy.record = 0;
  waits(copy, 1);
  waits(run.forward({140, 200}), 0);
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::copy, 40)));
}

TEST(FindStalls, ALaneThatStartedLateForNoReasonIsUnknown) {
  HandRun run;
  run.step(0, 200);
  run.forward({0, 100});
  run.forward({130, 200});
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::unknown, 30)));
}

TEST(FindStalls, ALaneThatHadNoCore) {
  HandRun run;
  run.step(0, 200);
  run.forward({0, 100});
  run.forward({130, 200, 0, 0, 20});  // ready to run for 20 of the 30; what woke it up so late nobody knows
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::cores_busy, 20), Pair(Cause::unknown, 10)));
  run.traces[0].records[1].core_wait_ns = 80;  // longer than all else was there
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::cores_busy, 30)));
}

TEST(FindStalls, ATransferThatBeganLateForLackOfACore) {
  EXPECT_THAT(find(late_gather({40, 150, 0, 0, 30})).ns,
              ElementsAre(Pair(Cause::link_bound, 10), Pair(Cause::cores_busy, 30), Pair(Cause::unknown, 10)));
}

/// As late_gather(), on three ranks whose own links were done after so long.
HandRun gather_over(const std::vector<std::int64_t>& links) {
  HandRun run(3);
  run.step(0, 200);
  run.forward({0, 100});
  std::vector<Times> times;
  for (const std::int64_t link : links) times.push_back({0, 150, 0, 0, 0, link});
  collective(run, OpKind::all_gather, Lane::all_gather, times, 3, 0).work =
      schedule::Collective{.group = Group::shard, .count = 25};
  waits(run.forward({150, 200}, 3), 0);
  return run;
}

TEST(FindStalls, ATransferThatWentOnOverOneLinkIsThatLinks) {
  const Found found = find(gather_over({90, 120, 150}));
  EXPECT_THAT(found.ns, ElementsAre(Pair(Cause::link_bound, 20), Pair(Cause::slow_link, 30)));
  for (const Stall& stall : found.stalls) EXPECT_EQ(stall.late_rank, stall.cause == Cause::slow_link ? 2 : -1);
  EXPECT_THAT(find(gather_over({150, 90, 90}), {}, true, 1).ns, ElementsAre(Pair(Cause::slow_link, 50)));
}

TEST(FindStalls, NoLinkIsSlowWhereTwoAreOrNobodyKnows) {
  EXPECT_THAT(find(gather_over({90, 150, 150})).ns, ElementsAre(Pair(Cause::link_bound, 50)));
  EXPECT_THAT(find(gather_over({0, 120, 150})).ns, ElementsAre(Pair(Cause::link_bound, 50)));
  EXPECT_THAT(find(gather_over({0, 0, 0})).ns, ElementsAre(Pair(Cause::link_bound, 50)));
}

TEST(FindStalls, OfASlowLinkThatIsSharedEachHasItsPart) {
  HandRun run(2);
  run.step(0, 200);
  run.forward({0, 60});
  collective(run, OpKind::all_gather, Lane::all_gather, {{0, 150, 0, 0, 0, 130}, {0, 150, 0, 0, 0, 150}}, 3, 0).work =
      schedule::Collective{.group = Group::shard, .count = 25};  // 100 bytes
  collective(run, OpKind::reduce_scatter, Lane::reduce_scatter, std::vector<Times>(2, Times{0, 150}), 4, 1,
             Group::shard_separate, 25);
  waits(run.forward({150, 200}, 3), 0);
  EXPECT_THAT(find(run, kLink).ns,
              ElementsAre(Pair(Cause::link_bound, 40), Pair(Cause::contention, 30), Pair(Cause::slow_link, 20)));
}

/// Backward until 100, then what `between` adds to the compute lane, then backward from 160.
template <typename Between>
HandRun on_the_compute_lane(Between&& between) {
  HandRun run(2);
  run.step(0, 200);
  Op& before = run.op(OpKind::backward, Lane::compute, Times{0, 100});
  before.phase = Phase::backward;
  before.unit = 4;
  between(run);
  Op& after = run.op(OpKind::backward, Lane::compute, Times{160, 200});
  after.phase = Phase::backward;
  after.unit = 3;
  return run;
}

TEST(FindStalls, AReductionOnTheComputeLaneIsSerialised) {
  const HandRun run = on_the_compute_lane([](HandRun& r) {
    r.op(OpKind::reduce_copy_in, Lane::compute, Times{100, 110});
    collective(r, OpKind::reduce_scatter, Lane::compute, std::vector<Times>(2, Times{110, 160}), 4, 0).phase =
        Phase::backward;
  });
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::copy, 10), Pair(Cause::serialised, 50)));
}

TEST(FindStalls, AGatherBehindComputationThatItDoesNotNeedCameLate) {
  const auto gather_from = [](schedule::BufferId shard) {
    return on_the_compute_lane([&](HandRun& r) {
      r.op(OpKind::optimizer, Lane::compute, Times{100, 110}).work = schedule::Update{.gradient = 1, .parameters = 0};
      Op& op = collective(r, OpKind::all_gather, Lane::compute, std::vector<Times>(2, Times{110, 160}), 3, 0);
      op.phase = Phase::backward;
      op.work = schedule::Collective{.group = Group::shard, .input = shard, .output = 3, .count = 0};
    });
  };
  EXPECT_THAT(find(gather_from(2)).ns, ElementsAre(Pair(Cause::late_prefetch, 50)));
  EXPECT_THAT(find(gather_from(0)).ns, ElementsAre(Pair(Cause::link_bound, 50)));
}

TEST(FindStalls, ATransferBehindOneThatWaitedForALateRank) {
  HandRun run(2);
  run.step(0, 300);
  run.forward({0, 100});
  collective(run, OpKind::all_gather, Lane::all_gather, {{0, 150, 0, 120}, {120, 150, 0, 120}}, 3, 1);
  gather(run, {150, 200, 0, 150}, 4, 0);
  waits(run.forward({200, 300}, 4), 0);
  // Without the late rank both would have been over by 80: the whole stall is its doing, in both.
  const Found found = find(run);
  EXPECT_THAT(found.ns, ElementsAre(Pair(Cause::straggler, 100)));
  for (const Stall& stall : found.stalls) EXPECT_EQ(stall.late_rank, 1);
}

TEST(FindStalls, AnInputBufferThatALateRankKeptIsTheLateRanks) {
  HandRun run(2);
  run.step(0, 250);
  Op& first = run.op(OpKind::backward, Lane::compute, Times{0, 100});
  first.unit = 4;
  first.phase = Phase::backward;
  first.record = 1;
  Op& reduce =
      collective(run, OpKind::reduce_scatter, Lane::reduce_scatter, {{100, 180, 0, 150}, {150, 180, 0, 150}}, 4, 0);
  reduce.phase = Phase::backward;
  waits(reduce, 1);
  Op& release = run.op(OpKind::release, Lane::compute, Times{});
  release.phase = Phase::backward;
  waits(release, 0, WaitReason::reuse);
  Op& second = run.op(OpKind::backward, Lane::compute, Times{180, 250});
  second.unit = 3;
  second.phase = Phase::backward;
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::reduce_scatter_buffers, 30), Pair(Cause::straggler, 50)));
}

TEST(FindStalls, ALimitedHostThatWasSlowAfterwardsWasSlow) {
  HandRun run(2);
  run.step(0, 200);
  run.forward({0, 40}).record = 1;
  Op& wait = run.op(OpKind::host_wait, Lane::compute, Times{0, 40, 10});
  waits(wait, 1, WaitReason::limit);
  run.forward({120, 200, 120});  // blocked for 30, then busy elsewhere for 80
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::host_bound, 80)));
}

TEST(FindStalls, AHostThatStillIssuedAfterAllWasDone) {
  HandRun run(1);
  run.step({{0, 160, 140}});
  run.forward({0, 100});
  run.op(OpKind::release, Lane::compute, Times{0, 0, 100});
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::host_bound, 40), Pair(Cause::unknown, 20)));
}

TEST(FindStalls, TheNormOfAllGradientsIsTheStepsEnd) {
  HandRun run(2);
  run.step(0, 200);
  Op& norm = run.op(OpKind::gradient_norm, Lane::compute, Times{0, 100});
  norm.phase = Phase::optimizer;
  norm.record = 1;
  Op& all = collective(run, OpKind::gather_norm, Lane::all_reduce, std::vector<Times>(2, Times{100, 130}), -1, 0);
  all.phase = Phase::optimizer;
  waits(all, 1);
  Op& clip = run.op(OpKind::clip, Lane::compute, Times{130, 200});
  clip.phase = Phase::optimizer;
  waits(clip, 0);
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::step_boundary, 30)));
}

TEST(FindStalls, OfOneRankACollectiveWaitsForNobody) {
  HandRun run;
  run.step(0, 200);
  run.forward({0, 100});
  gather(run, {0, 150, 0, 0, 0, 150}, 3, 0);
  waits(run.forward({150, 200}, 3), 0);
  const Found found = find(run);
  EXPECT_THAT(found.ns, ElementsAre(Pair(Cause::link_bound, 50)));
  EXPECT_EQ(found.stalls.front().late_rank, -1);
}

TEST(FindStalls, AnEmptyStepHasNone) {
  HandRun run;
  run.step(50, 50);
  run.op(OpKind::release, Lane::compute, Times{0, 0, 50});
  EXPECT_TRUE(find(run).stalls.empty());
}

TEST(FindStalls, AStepThatComputesNothingHasOneStall) {
  HandRun run;
  run.step(50, 90);
  run.op(OpKind::release, Lane::compute, Times{});
  const Found found = find(run);
  ASSERT_EQ(found.stalls.size(), 1U);
  EXPECT_EQ(found.stalls[0].time, (Interval{50, 90}));
  EXPECT_EQ(found.stalls[0].op, -1);
}

TEST(FindStalls, AStepOfComputationAloneHasNone) {
  HandRun run;
  run.step(0, 100);
  run.forward({0, 60});
  run.forward({60, 100});
  EXPECT_TRUE(find(run).stalls.empty());
}

TEST(FindStalls, AfterTheLastComputationTheLastToEndIsExplained) {
  HandRun run(2);
  run.step(0, 160);
  run.forward({0, 100}).record = 1;
  waits(collective(run, OpKind::reduce_scatter, Lane::reduce_scatter, std::vector<Times>(2, Times{100, 150}), 1, 0), 1);
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::step_boundary, 50), Pair(Cause::unknown, 10)));
  run.schedules.steps[0].ops[1].unit = 3;
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::link_bound, 50), Pair(Cause::unknown, 10))) << "of a layer inside";
  run.schedules.steps[0].ops[1].unit = 1;
  waits(run.op(OpKind::backward, Lane::compute, Times{150, 160}), 0);
  EXPECT_THAT(find(run).ns, ElementsAre(Pair(Cause::link_bound, 50))) << "in the midst of a step";
}

TEST(FindStalls, StallsThatOverlapOrLeaveSomethingOutAreRefused) {
  const auto holds = [](const std::vector<Stall>& stalls, std::int64_t stalled_ns) {
    try {
      check_partition(stalls, stalled_ns, "rank 3, step 7");
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::check_failed);
      EXPECT_THAT(error.what(), ::testing::StartsWith("rank 3, step 7: the causes do not partition"));
      return false;
    }
  };
  EXPECT_TRUE(holds({}, 0));
  EXPECT_TRUE(holds({{{0, 10}}, {{10, 15}}}, 15)) << "one may begin where another ends";
  EXPECT_FALSE(holds({{{0, 10}}, {{10, 15}}}, 16));
  EXPECT_FALSE(holds({{{0, 10}}, {{9, 14}}}, 15));
  EXPECT_FALSE(holds({{{10, 15}}, {{0, 10}}}, 15));
}

TEST(FindStalls, ALinkThatWasDoneAtOnceIsKnownToo) {
  EXPECT_THAT(find(gather_over({1, 2, 50})).ns, ElementsAre(Pair(Cause::link_bound, 2), Pair(Cause::slow_link, 48)));
}

TEST(FindStalls, WhatRanBeforeOrAfterSharedNoLink) {
  HandRun run(2);
  run.step(0, 400);
  run.forward({0, 100});
  collective(run, OpKind::reduce_scatter, Lane::reduce_scatter, std::vector<Times>(2, Times{0, 50}), 4, 1,
             Group::shard_separate, 10);
  gather(run, {50, 250, 50}, 3, 0, 25);  // 100 bytes, twice as long as they take alone
  collective(run, OpKind::reduce_scatter, Lane::reduce_scatter, std::vector<Times>(2, Times{250, 300}), 4, 2,
             Group::shard_separate, 10);
  waits(run.forward({250, 400}, 3), 0);
  EXPECT_FALSE(find(run, kLink).ns.contains(Cause::contention));
}

using Causes = std::map<Cause, std::int64_t>;

/// Times that ranks' own hosts, copies and marks take on the way to what computation waits for at 100, each reckoned by
/// hand: which part of the wait each of them has.
TEST(FindStalls, WhatIsBehindAWaitIsFollowedBackwards) {
  const auto copy = [](HandRun& run, Times times, int waits_for, int records, Lane lane = Lane::copy) {
    Op& op = run.op(OpKind::copy_out, lane, times);
    op.record = records;
    if (waits_for >= 0) waits(op, waits_for);
  };
  {
    HandRun run;  // after the last computation one copy waits for another
    run.step(0, 200);
    run.forward({0, 100}).record = 1;
    copy(run, {110, 160}, 1, 2);
    copy(run, {170, 200}, 2, 3, Lane::all_gather);
    EXPECT_EQ(find(run).ns, (Causes{{Cause::copy, 80}, {Cause::unknown, 20}}));
  }
  {
    HandRun run;  // the host waits for data, which waited for a copy, which waited for computation
    run.step(0, 200);
    run.forward({0, 100}).record = 1;
    copy(run, {110, 130}, 1, 2);
    Op& data = run.op(OpKind::device_to_host, Lane::device_to_host, Times{130, 150});
    data.work = schedule::Transfer{};
    data.record = 3;
    waits(data, 2);
    waits(run.op(OpKind::host_wait, Lane::compute, Times{0, 155, 20}), 3);
    run.forward({160, 200, 160});
    EXPECT_EQ(find(run).ns,
              (Causes{{Cause::host_bound, 10}, {Cause::pcie, 20}, {Cause::copy, 20}, {Cause::unknown, 10}}));
  }
  for (const bool last_first :
       {false, true}) {  // of two waits in a row for data that came later counts, whichever it was
    HandRun run;
    run.step(0, 200);
    Op& transfer = run.op(OpKind::device_to_host, Lane::device_to_host, Times{0, 80});
    transfer.work = schedule::Transfer{};
    transfer.record = 0;
    run.op(OpKind::optimizer, Lane::host_compute, Times{0, 50}).record = 1;
    waits(run.op(OpKind::host_wait, Lane::compute, Times{0, 81, 1}), last_first ? 0 : 1);
    waits(run.op(OpKind::host_wait, Lane::compute, Times{0, 82, 2}), last_first ? 1 : 0);
    run.forward({85, 200, 85});
    EXPECT_EQ(find(run).ns, (Causes{{Cause::host_bound, 5}, {Cause::pcie, 80}}));
  }
  {
    HandRun run;  // a blocked host then took 10 to issue the op, and its lane 5 to begin
    run.step(0, 300);
    run.forward({0, 100});
    run.op(OpKind::host_sync, Lane::compute, Times{0, 120, 50});
    run.forward({135, 200, 120});
    run.forward({200, 300, 130});
    EXPECT_EQ(find(run).ns, (Causes{{Cause::host_sync, 20}, {Cause::host_bound, 10}, {Cause::unknown, 5}}));
  }
  {
    HandRun run;  // issued as the copy ends that it waits for: without the copy it would have begun no sooner
    run.step(0, 200);
    run.forward({0, 100}).record = 1;
    copy(run, {100, 120}, 1, 2);
    waits(run.forward({120, 200, 120}), 2);
    EXPECT_EQ(find(run).ns, (Causes{{Cause::host_bound, 20}}));
  }
  {
    HandRun run(2);  // all of a reduction that a gather stood behind, from where computation ended
    run.step(0, 200);
    collective(run, OpKind::reduce_scatter, Lane::reduce_scatter, std::vector<Times>(2, Times{0, 100}), 5, 1).phase =
        Phase::backward;
    run.op(OpKind::backward, Lane::compute, Times{0, 60}).phase = Phase::backward;
    Op& next = gather(run, {100, 150}, 3, 0);
    next.phase = Phase::backward;
    next.prefetch = true;
    waits(run.op(OpKind::backward, Lane::compute, Times{150, 200}), 0);
    EXPECT_EQ(find(run, kLatency).ns, (Causes{{Cause::communicator_serialisation, 90}}));
  }
}

/// Computation until 100, then the gather of unit 3 until 150, for which computation waits; event 1 is recorded at 70.
template <typename Before>
Causes gather_after(Before&& before) {
  HandRun run(2);
  run.step(0, 200);
  run.forward({0, 70}).record = 1;
  run.forward({70, 100});
  before(run);
  Op& late = gather(run, {100, 150}, 3, 0);
  for (const Op& op : run.schedules.steps[0].ops) {
    if (op.record == 2) waits(late, 2, op.kind == OpKind::device_to_host ? WaitReason::limit : WaitReason::data);
  }
  waits(run.forward({150, 200}, 3), 0);
  return find(run).ns;
}

TEST(FindStalls, WhatATransferWaitedForIsChargedThroughCopiesAndMarks) {
  const auto copied = [](std::int64_t begin, std::int64_t end) {
    return gather_after([&](HandRun& run) {
      Op& copy = run.op(OpKind::copy_in, Lane::copy, Times{begin, end});
      copy.record = 2;
      waits(copy, 1, WaitReason::limit);
    });
  };
  EXPECT_EQ(copied(70, 100), (Causes{{Cause::copy, 30}, {Cause::late_prefetch, 20}}));
  EXPECT_EQ(copied(80, 100), (Causes{{Cause::copy, 20}, {Cause::unknown, 10}, {Cause::late_prefetch, 20}}));
  // Through as many marks on its lane as there are in a chain of casts, and no more.
  const auto marked = [](int marks) {
    return gather_after([&](HandRun& run) {
      for (int i = 0; i < marks; ++i) {
        Op& mark = run.op(OpKind::release, Lane::all_gather, Times{});
        if (i == 0) waits(mark, 1, WaitReason::limit);
      }
    });
  };
  EXPECT_EQ(marked(1), (Causes{{Cause::unknown, 30}, {Cause::late_prefetch, 20}}));
  EXPECT_EQ(marked(4), marked(1));
  EXPECT_EQ(marked(5), (Causes{{Cause::unknown, 50}}));
  // A copy from the host that waited for room behind another copy; and one to the host that room was waited for.
  const auto over_pcie = [](bool to_host) {
    return gather_after([&](HandRun& run) {
      Op& copy = run.op(OpKind::copy_in, Lane::copy, Times{40, 70});
      copy.record = 3;
      Op& moved = run.op(to_host ? OpKind::device_to_host : OpKind::host_to_device, Lane::host_to_device,
                         Times{to_host ? 0 : 70, 100});
      moved.work = schedule::Transfer{};
      moved.record = 2;
      if (!to_host) waits(moved, 3, WaitReason::limit);
    });
  };
  EXPECT_EQ(over_pcie(false), (Causes{{Cause::pcie, 30}, {Cause::copy, 20}}));
  EXPECT_EQ(over_pcie(true), (Causes{{Cause::pcie, 50}}));
}

/// As ComputationThatWaitsForAnInputBufferLacksBuffers, but for one thing each.
TEST(FindStalls, OnlyAReleaseInBackwardThatWaitsForACollectiveLacksBuffers) {
  const auto cause_of = [](auto change) {
    HandRun run(2);
    run.step(0, 250);
    Op& first = run.op(OpKind::backward, Lane::compute, Times{0, 100});
    first.phase = Phase::backward;
    first.record = 1;
    Op& reduce =
        collective(run, OpKind::reduce_scatter, Lane::reduce_scatter, std::vector<Times>(2, Times{100, 180}), 4, 0);
    waits(reduce, 1);
    Op& release = run.op(OpKind::release, Lane::compute, Times{});
    release.phase = Phase::backward;
    waits(release, 0, WaitReason::reuse);
    change(run.schedules.steps[0].ops);
    run.op(OpKind::backward, Lane::compute, Times{180, 250}).phase = Phase::backward;
    return find(run).ns.begin()->first;
  };
  using Ops = std::vector<Op>;
  EXPECT_EQ(cause_of([](Ops&) {}), Cause::reduce_scatter_buffers);
  EXPECT_EQ(cause_of([](Ops& ops) { ops[2].waits[0].reason = WaitReason::data; }), Cause::link_bound);
  EXPECT_EQ(cause_of([](Ops& ops) { ops[2].kind = OpKind::reshard; }), Cause::link_bound);
  EXPECT_EQ(cause_of([](Ops& ops) { ops[2].phase = Phase::forward; }), Cause::link_bound);
  EXPECT_EQ(cause_of([](Ops& ops) { ops[1] = Op{.kind = OpKind::copy_out, .lane = Lane::copy, .record = 0}; }),
            Cause::copy);
}

TEST(FindStalls, ALinkWhoseGroupIsNotInViewIsNotKnownToBeSlow) {
  HandRun run(1);
  run.step(0, 200);
  run.forward({0, 100});
  gather(run, {0, 150, 0, 0, 0, 150}, 3, 0);
  waits(run.forward({150, 200}, 3), 0);
  const RunView view = run.view();
  for (const Stall& stall : find_stalls(view.steps().front(), plan::Groups(plan::Mesh{2, 1}), {}, true, 0)) {
    EXPECT_EQ(stall.cause, Cause::link_bound);
  }
}

/// 100 bytes and a hop of 20 ns: alone the transfer would have been over at 120.
TEST(FindStalls, WhatATransferTakesAloneHasItsLatencyToo) {
  HandRun run(2);
  run.step(0, 200);
  run.forward({0, 100});
  gather(run, {0, 150}, 3, 0, 25);
  collective(run, OpKind::reduce_scatter, Lane::reduce_scatter, std::vector<Times>(2, Times{0, 150}), 4, 1,
             Group::shard_separate, 25);
  waits(run.forward({150, 200}, 3), 0);
  EXPECT_EQ(find(run, LinkModel{.bytes_per_second = 1e9, .latency_seconds = 20e-9}).ns,
            (Causes{{Cause::link_bound, 20}, {Cause::contention, 30}}));
}

/// Rows travel for 80 of 90 ns, a quarter of it for want of even rows, unless all of it was for want of the link.
TEST(FindStalls, RowsThatAreUnevenTakeLonger) {
  const auto rows = [](const EvenRows& even, bool shares_its_link) {
    HandRun run(2);
    run.step(0, 200);
    run.forward({0, 100}, 3).record = 1;
    Op& sent = collective(run, OpKind::expert_dispatch, Lane::tensor, std::vector<Times>(2, {100, 190, 0, 110}), 3, 0,
                          Group::expert);
    waits(sent, 1);
    if (shares_its_link) {
      collective(run, OpKind::reduce_scatter, Lane::reduce_scatter, std::vector<Times>(2, Times{120, 130}), 4, 2);
    }
    waits(run.forward({190, 200}, 3), 0);
    const RunView view = run.view();
    Causes found;
    for (const Stall& stall : find_stalls(view.steps().front(), plan::Groups(plan::Mesh{2, 1}),
                                          shares_its_link ? std::optional(kLink) : std::nullopt, true, 0, even)) {
      found[stall.cause] += stall.time.end - stall.time.begin;
    }
    return found;
  };
  const Causes even{{Cause::straggler, 20}, {Cause::expert_exchange, 70}};
  EXPECT_EQ(rows({1, 0.75, 1}, false),
            (Causes{{Cause::straggler, 20}, {Cause::expert_imbalance, 20}, {Cause::expert_exchange, 50}}));
  EXPECT_EQ(rows({1, 1, 1}, false), even);
  EXPECT_EQ(rows({1, 0.75}, false), even) << "of another step";
  EXPECT_EQ(rows({1, 0.75, 1, 1}, true), (Causes{{Cause::straggler, 20}, {Cause::contention, 70}}));
}

}  // namespace
}  // namespace fsdpbench::account
