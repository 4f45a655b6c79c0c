#include "account/typical_step.h"

#include <gmock/gmock.h>

#include <map>
#include <string>

#include "support/hand_run.h"

namespace fsdpbench::account {
namespace {

using ::testing::ElementsAre;
using testing::HandRun;
using ::testing::Pair;
using testing::Times;

/// One rank: computes, waits for a copy that takes `copy` and another `lag`, computes, and ends `tail` later.
HandRun lagging(std::int64_t copy, std::int64_t lag, std::int64_t tail, std::int64_t begin = 1000) {
  HandRun run;
  const std::int64_t second = begin + 100 + copy + lag;
  run.step(begin, second + 50 + tail);
  run.forward({begin, begin + 100, begin}).record = 1;
  schedule::Op& moved =
      run.op(schedule::OpKind::copy_out, Lane::all_gather, Times{begin + 100, begin + 100 + copy, begin});
  moved.record = 0;
  moved.waits.push_back({1});
  run.forward({second, second + 50, begin}, 2).waits.push_back({0});
  return run;
}

struct Told {
  std::map<std::string, std::int64_t> ns;
  std::vector<ToldStall> parts;
};

Told tell(const HandRun& typical, const HandRun& measured) {
  const plan::Groups groups(plan::Mesh{1, 1});
  const RunView of_typical = typical.view(), of_measured = measured.view();
  const TypicalStalls stalls(of_typical.steps().front(), groups, {}, true);
  const StepRecords& step = of_measured.steps().front();
  const std::vector<Stall> found = find_stalls(step, groups, {}, true, 0);
  Told told;
  told.parts = stalls.tell(step, 0, found);
  std::int64_t sum = 0, before = 0;
  for (const ToldStall& part : told.parts) {
    const std::int64_t ns = part.stall.time.end - part.stall.time.begin;
    EXPECT_GT(ns, 0);
    EXPECT_GE(part.stall.time.begin, before) << "in order and disjoint";
    before = part.stall.time.end;
    told.ns[std::string(name_of(part))] += ns;
    sum += ns;
  }
  for (const Stall& stall : found) sum -= stall.time.end - stall.time.begin;
  EXPECT_EQ(sum, 0) << "the same time";
  return told;
}

TEST(TypicalStalls, AStepLikeTheTypicalOneHasNoJitter) {
  EXPECT_THAT(tell(lagging(40, 10, 5), lagging(40, 10, 5, 7000)).ns,
              ElementsAre(Pair("copy", 40), Pair("unknown", 15)));
}

TEST(TypicalStalls, WhatACauseTakesBeyondTheTypicalStepIsJitter) {
  const Told told = tell(lagging(40, 10, 5), lagging(100, 10, 5));
  EXPECT_THAT(told.ns, ElementsAre(Pair("copy", 40), Pair("jitter", 60), Pair("unknown", 15)));
  ASSERT_EQ(told.parts.size(), 4U);
  EXPECT_EQ(told.parts[0].stall.time, (Interval{1100, 1140})) << "first what repeats";
  EXPECT_EQ(told.parts[1].stall.time, (Interval{1140, 1200}));
  EXPECT_TRUE(told.parts[1].jitter);
  EXPECT_EQ(told.parts[1].stall.op, told.parts[0].stall.op) << "it still says what was waited for";
}

TEST(TypicalStalls, AWaitThatRepeatsIsNoJitterThoughItHasAnotherCauseInTheTypicalStep) {
  EXPECT_THAT(tell(lagging(50, 0, 0), lagging(0, 50, 0)).ns, ElementsAre(Pair("unknown", 50)));
  EXPECT_THAT(tell(lagging(50, 0, 0), lagging(0, 80, 0)).ns, ElementsAre(Pair("jitter", 30), Pair("unknown", 50)));
}

TEST(TypicalStalls, NeitherHasOneWaitOfAnother) {
  // In the typical step only the end of the step is long.
  EXPECT_THAT(tell(lagging(0, 0, 60), lagging(0, 60, 0)).ns, ElementsAre(Pair("jitter", 60)));
  EXPECT_THAT(tell(lagging(0, 60, 0), lagging(0, 0, 60)).ns, ElementsAre(Pair("jitter", 60)));
}

TEST(TypicalStalls, AShorterStepHasNoJitter) {
  EXPECT_THAT(tell(lagging(40, 10, 5), lagging(30, 0, 5)).ns, ElementsAre(Pair("copy", 30), Pair("unknown", 5)));
}

TEST(TypicalStalls, ALateRankIsNotNamedInJitter) {
  const auto waits_for = [](std::int64_t late) {
    HandRun run(2);
    run.step(0, late + 70);
    run.forward({0, 100});
    schedule::Op& gather = run.collective(schedule::OpKind::all_gather, Lane::all_gather,
                                          {{0, late + 20, 0, late}, {late, late + 20, 0, late}});
    gather.unit = 3;
    gather.record = 0;
    run.forward({late + 20, late + 70}, 3).waits.push_back({0});
    return run;
  };
  const HandRun typical = waits_for(110), measured = waits_for(200);
  const plan::Groups groups(plan::Mesh{2, 1});
  const RunView of_typical = typical.view(), of_measured = measured.view();
  const StepRecords& step = of_measured.steps().front();
  const TypicalStalls stalls(of_typical.steps().front(), groups, {}, true);
  std::int64_t jitter = 0, of_late_rank = 0;
  for (const ToldStall& part : stalls.tell(step, 0, find_stalls(step, groups, {}, true, 0))) {
    (part.jitter ? jitter : of_late_rank) += part.stall.time.end - part.stall.time.begin;
    EXPECT_EQ(part.stall.late_rank, part.jitter ? -1 : 1);
  }
  EXPECT_EQ(jitter, 90);
  EXPECT_EQ(of_late_rank, 30);
}

TEST(TypicalStalls, AWaitIsOfTheComputationThatBeginsAfterIt) {
  const auto begins = [](std::int64_t first, std::int64_t second) {
    HandRun run;
    run.step(0, 300);
    run.forward({first, 100});
    run.forward({100 + second, 300}, 2);
    return run;
  };
  EXPECT_THAT(tell(begins(20, 0), begins(0, 20)).ns, ElementsAre(Pair("jitter", 20))) << "also before the first";
  // The stream that begins first ends the wait, whichever was issued first.
  const auto streams = [](std::int64_t first, std::int64_t second) {
    HandRun run;
    run.step(0, 300);
    run.forward({0, 50});
    run.op(schedule::OpKind::backward, Lane::tensor, Times{first, 300, 1});
    run.forward({second, 300, 2}, 2);
    return run;
  };
  EXPECT_THAT(tell(streams(100, 150), streams(150, 100)).ns, ElementsAre(Pair("jitter", 50)));
}

TEST(TypicalStalls, OneRankStandsForAllAndEachForItself) {
  const plan::Groups groups(plan::Mesh{2, 1});
  const auto two = [](std::int64_t of_first, std::int64_t of_second) {
    HandRun run(2);
    run.step(0, 300);
    run.forward({0, 100}).record = 0;
    run.op(schedule::OpKind::forward, Lane::compute, {{100 + of_first, 250}, {100 + of_second, 250}});
    return run;
  };
  const HandRun one = lagging(0, 30, 0), both = two(30, 60), measured = two(70, 70);
  const RunView of_one = one.view(), of_both = both.view(), of_measured = measured.view();
  const StepRecords& step = of_measured.steps().front();
  const auto jitter_before_second = [&](const RunView& typical, int rank) {
    const TypicalStalls stalls(typical.steps().front(), groups, {}, true);
    std::int64_t jitter = 0;
    for (const ToldStall& part : stalls.tell(step, rank, find_stalls(step, groups, {}, true, rank))) {
      if (part.jitter && part.stall.time.end <= 170) jitter += part.stall.time.end - part.stall.time.begin;
    }
    return jitter;
  };
  EXPECT_EQ(jitter_before_second(of_both, 0), 40);
  EXPECT_EQ(jitter_before_second(of_both, 1), 10);
  EXPECT_EQ(jitter_before_second(of_one, 1), 70) << "whose second computation is another";
}

/// Before the second computation the typical step has 50 of a copy; here it has 30 of no reason and 30 without a core.
TEST(TypicalStalls, WhatRepeatsForAnotherCauseIsUsedUp) {
  HandRun measured = lagging(0, 60, 0);
  measured.traces[0].records[2].core_wait_ns = 30;
  const Told told = tell(lagging(50, 0, 0), measured);
  EXPECT_THAT(told.ns, ElementsAre(Pair("cores_busy", 20), Pair("jitter", 10), Pair("unknown", 30)));
}

}  // namespace
}  // namespace fsdpbench::account
