#include "schedule/all_gather_limiter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "support/step_parts.h"

namespace fsdpbench::schedule {
namespace {

using Mode = config::AllGatherLimit::Mode;
constexpr std::int64_t kBytes = 1000;  // of every unit here

config::RunConfig limited(config::AllGatherLimit limit, config::Layout layout = config::Layout::per_param) {
  config::RunConfig c = testing::decoder_config(6, 4);
  c.fsdp.all_gather_limit = limit;
  c.fsdp.layout = layout;
  return c;
}

/// A limiter, and the gathers and frees of a host that asks it.
struct Host : testing::StepParts {
  explicit Host(const config::RunConfig& config) : StepParts(config), limiter(builder) {}

  void begin_step() {
    builder.begin_step();
    limiter.begin_step();
  }
  void gather(int unit) {
    limiter.before_unshard(unit, kBytes, true);
    builder.append(OpKind::all_gather, {.lane = Lane::all_gather, .unit = unit});
    limiter.gathered(unit, kBytes);
  }
  /// Returns the event of the free.
  EventId free(int unit) {
    builder.append(OpKind::reshard, {.unit = unit});
    const EventId event = builder.record(EventRole::freed, unit);
    limiter.released(unit, event, true);
    return event;
  }
  /// Events that the host has waited for in this step.
  std::vector<EventId> host_waits() const {
    std::vector<EventId> events;
    for (const Op& op : builder.step().ops) {
      if (op.kind == OpKind::host_wait) events.push_back(op.waits.front().event);
    }
    return events;
  }

  AllGatherLimiter limiter;
};

using Events = std::vector<EventId>;

TEST(AllGatherLimiter, StrictWaitsForTheOldestFreeOfTheGathersInFlight) {
  Host host(limited({Mode::strict, 2, 0}));
  host.gather(1);
  host.gather(2);
  const EventId freed = host.free(1);
  EXPECT_EQ(host.host_waits(), Events{});
  host.gather(3);
  EXPECT_EQ(host.host_waits(), Events{freed});
  EXPECT_EQ(host.builder.step().ops.at(3).waits.front().reason, WaitReason::limit);
  // Unit 1 has left: 2 and 3 are in flight, and nothing can be waited for; a gather that is needed now goes ahead.
  host.gather(4);
  EXPECT_EQ(host.host_waits(), Events{freed});
}

TEST(AllGatherLimiter, StrictRefusesPrefetchesThatNothingInFlightMakesRoomFor) {
  Host host(limited({Mode::strict, 2, 0}));
  EXPECT_TRUE(host.limiter.allows_prefetch(kBytes));
  host.gather(1);
  EXPECT_TRUE(host.limiter.allows_prefetch(kBytes));
  host.gather(2);
  EXPECT_FALSE(host.limiter.allows_prefetch(kBytes));
  host.free(1);
  EXPECT_TRUE(host.limiter.allows_prefetch(kBytes));
}

TEST(AllGatherLimiter, BytesCountWhatIsInFlightWithTheNewOne) {
  Host host(limited({Mode::bytes, 0, 2 * kBytes}));
  host.gather(1);
  EXPECT_TRUE(host.limiter.allows_prefetch(kBytes));
  EXPECT_FALSE(host.limiter.allows_prefetch(kBytes + 1));
  const EventId freed = host.free(1);
  host.gather(2);
  EXPECT_EQ(host.host_waits(), Events{});
  host.gather(3);
  EXPECT_EQ(host.host_waits(), Events{freed});
}

TEST(AllGatherLimiter, AnyUnitMayLiveAlone) {
  Host host(limited({Mode::bytes, 0, 1}));
  EXPECT_TRUE(host.limiter.allows_prefetch(kBytes));
  host.gather(1);
  EXPECT_EQ(host.host_waits(), Events{});
}

TEST(AllGatherLimiter, TheRootIsNotInFlight) {
  Host host(limited({Mode::strict, 1, 0}));
  host.gather(plan::Plan::kRoot);
  EXPECT_TRUE(host.limiter.allows_prefetch(kBytes));
}

TEST(AllGatherLimiter, UnlimitedAndPerParamEventsWaitForNothing) {
  for (Mode mode : {Mode::unlimited, Mode::fsdp2_event}) {
    Host host(limited({mode, 2, 0}));
    for (int unit = 1; unit <= 5; ++unit) {
      EXPECT_TRUE(host.limiter.allows_prefetch(kBytes));
      host.gather(unit);
      host.free(unit);
    }
    for (const Op& op : host.builder.step().ops) EXPECT_TRUE(op.waits.empty());
    EXPECT_TRUE(host.limiter.queue().empty());
  }
}

TEST(AllGatherLimiter, FlatEventsWaitOnTheDeviceForTheFreeBeforeLast) {
  Host host(limited({Mode::fsdp2_event, 2, 0}, config::Layout::flat));
  host.gather(1);
  const EventId freed = host.free(1);
  host.gather(2);
  EXPECT_TRUE(host.last_op().waits.empty());
  host.gather(3);
  EXPECT_EQ(host.last_op().waits, (std::vector<Wait>{{freed, WaitReason::limit}}));
  EXPECT_EQ(host.host_waits(), Events{});
}

/// The gather waits where it begins: a copy-in comes first unless views are gathered.
TEST(AllGatherLimiter, BuffersWaitOnTheDeviceForTheFreeThatMakesRoom) {
  for (const auto& [layout, lane] :
       {std::pair{config::Layout::flat, Lane::all_gather}, {config::Layout::per_param, Lane::copy}}) {
    Host host(limited({Mode::buffers, 1, 0}, layout));
    host.gather(1);
    EXPECT_FALSE(host.limiter.allows_prefetch(kBytes));
    const EventId freed = host.free(1);
    host.limiter.before_unshard(2, kBytes, true);
    for (const Lane any : kLanes) {
      const std::vector<Wait> none, one{{freed, WaitReason::limit}};
      EXPECT_EQ(host.builder.pending_waits()[index_of(any)], any == lane ? one : none);
    }
    EXPECT_EQ(host.host_waits(), Events{});
  }
}

TEST(AllGatherLimiter, TheRootAndWhatGathersNothingWaitForNothing) {
  for (const Mode mode : {Mode::strict, Mode::bytes, Mode::buffers, Mode::fsdp2_event}) {
    Host host(limited({mode, 1, 1}, config::Layout::flat));
    host.gather(1);
    host.free(1);
    host.limiter.before_unshard(plan::Plan::kRoot, kBytes, true);
    host.limiter.before_unshard(2, kBytes, false);
    EXPECT_EQ(host.host_waits(), Events{});
    EXPECT_TRUE(std::ranges::all_of(host.builder.pending_waits(), [](const auto& waits) { return waits.empty(); }));
    host.begin_step();  // nothing is in flight any more
    host.limiter.before_unshard(3, kBytes, true);
    EXPECT_TRUE(host.limiter.allows_prefetch(kBytes));
    EXPECT_EQ(host.host_waits(), Events{});
  }
}

TEST(AllGatherLimiter, WhatIsDecidedOnCountsBesideWhatIsInFlight) {
  Host host(limited({Mode::bytes, 0, 3 * kBytes}));
  EXPECT_TRUE(host.limiter.allows_prefetch(kBytes, {kBytes, kBytes}));
  EXPECT_FALSE(host.limiter.allows_prefetch(kBytes, {kBytes, kBytes + 1}));
  host.gather(1);
  EXPECT_TRUE(host.limiter.allows_prefetch(kBytes, {kBytes}));
  EXPECT_FALSE(host.limiter.allows_prefetch(kBytes, {kBytes, kBytes}));
}

TEST(AllGatherLimiter, AUnitThatIsGatheredAgainIsInFlightAgain) {
  Host host(limited({Mode::strict, 2, 0}));
  host.gather(1);
  const EventId first = host.free(1);
  host.gather(1);
  host.builder.phase = Phase::backward;
  const EventId second = host.free(1);
  host.gather(2);  // the first is over
  host.gather(3);
  EXPECT_EQ(host.host_waits(), (Events{first, second}));
}

/// DeepSpeed: it bounds how far the host runs ahead of gathers that were waited for.
TEST(AllGatherLimiter, FetchedWaitsForTheOldestOfMoreThanSoMany) {
  Host host(limited({Mode::fetched, 2, 0}));
  for (const EventId ready : {11, 11, 12, 13}) host.limiter.before_wait(ready, 1);  // one bucket's units wait alike
  EXPECT_EQ(host.host_waits(), Events{});
  for (const EventId ready : {14, 15}) host.limiter.before_wait(ready, 1);
  EXPECT_EQ(host.host_waits(), (Events{11, 12}));
  host.begin_step();
  for (const EventId ready : {16, 17, 18}) host.limiter.before_wait(ready, 1);
  EXPECT_EQ(host.host_waits(), Events{});
  Host other(limited({Mode::strict, 2, 0}));
  for (const EventId ready : {11, 12, 13, 14, 15}) other.limiter.before_wait(ready, 1);
  EXPECT_EQ(other.host_waits(), Events{});
}

TEST(AllGatherLimiter, OnlyAFreeIsQueued) {
  Host host(limited({Mode::fsdp1_queue, 1, 0}));
  host.limiter.released(1, 7, false);
  EXPECT_TRUE(host.limiter.queue().empty());
}

TEST(AllGatherLimiter, Fsdp1QueuePopsBeforeEveryCallEvenOneThatGathersNothing) {
  Host host(limited({Mode::fsdp1_queue, 2, 0}));
  const EventId first = host.free(1);
  host.limiter.before_unshard(2, kBytes, false);
  EXPECT_EQ(host.host_waits(), Events{});  // one in the queue, two make it full
  const EventId second = host.free(2);
  host.limiter.before_unshard(2, kBytes, false);
  EXPECT_EQ(host.host_waits(), Events{first});
  host.free(3);
  host.gather(4);
  EXPECT_EQ(host.host_waits(), (Events{first, second}));
  EXPECT_EQ(host.limiter.queue().size(), 1U);
}

TEST(AllGatherLimiter, Fsdp1QueueLivesOnFromStepToStep) {
  Host host(limited({Mode::fsdp1_queue, 3, 0}));
  const EventId first = host.free(1), second = host.free(2);
  host.begin_step();
  EXPECT_EQ(host.limiter.queue(), (std::deque<AllGatherLimiter::Free>{{first, 1}, {second, 1}}));
  EXPECT_EQ(host.free(1), first);  // the same unit's: its recording replaces the one in the queue
  host.gather(3);
  EXPECT_EQ(host.host_waits(), Events{host.builder.step_done()});
  host.free(4);
  host.gather(5);
  EXPECT_EQ(host.host_waits(), (Events{host.builder.step_done(), second}));
  host.begin_step();
  host.begin_step();  // two steps ago: over, whoever was freed since
  host.free(6);
  host.gather(5);
  EXPECT_EQ(host.host_waits(), Events{host.builder.step_done()});
}

}  // namespace
}  // namespace fsdpbench::schedule
