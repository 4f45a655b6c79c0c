// PyTorch's caching allocator by its rules, one by one, and on schedules with times given by hand.
#include "clock/caching_allocator.h"

#include <gtest/gtest.h>

namespace fsdpbench::clock {
namespace {

constexpr std::int64_t kMebi = 1 << 20;

TEST(CachingAllocator, SmallBlocksShareSegmentsOfTwoMiB) {
  CachingAllocator a;
  a.allocate(1, Lane::compute, 0);
  EXPECT_EQ(a.statistics().allocated, 512);
  EXPECT_EQ(a.statistics().reserved, 2 * kMebi);
  a.allocate(513, Lane::compute, 0);
  EXPECT_EQ(a.statistics().allocated, 512 + 1024);
  EXPECT_EQ(a.statistics().reserved, 2 * kMebi);
  a.allocate(kMebi, Lane::compute, 0);  // the largest small one; of the segment 1536 bytes are gone
  EXPECT_EQ(a.statistics().reserved, 2 * kMebi);
  a.allocate(kMebi, Lane::compute, 0);
  EXPECT_EQ(a.statistics().reserved, 4 * kMebi);
}

TEST(CachingAllocator, UpToTenMiBIsCutFromTwentyAndMoreHasItsOwnSegment) {
  CachingAllocator a;
  a.allocate(kMebi + 1, Lane::compute, 0);
  EXPECT_EQ(a.statistics().reserved, 20 * kMebi);
  a.allocate(10 * kMebi - 512, Lane::compute, 0);
  EXPECT_EQ(a.statistics().reserved, 20 * kMebi);
  CachingAllocator b;
  b.allocate(10 * kMebi, Lane::compute, 0);
  EXPECT_EQ(b.statistics().reserved, 10 * kMebi);
  b.allocate(11 * kMebi + 1, Lane::compute, 0);  // rounded to 2 MiB: 12
  EXPECT_EQ(b.statistics().reserved, 22 * kMebi);
}

TEST(CachingAllocator, LargeBlocksAreSplitIfMoreThanOneMiBRemains) {
  CachingAllocator a;
  a.free(a.allocate(20 * kMebi, Lane::compute, 0));
  a.allocate(19 * kMebi, Lane::compute, 0);  // 1 MiB would remain: the block is handed out whole
  EXPECT_EQ(a.statistics().allocated, 20 * kMebi);
  CachingAllocator b;
  b.free(b.allocate(20 * kMebi, Lane::compute, 0));
  b.allocate(19 * kMebi - 512, Lane::compute, 0);
  EXPECT_EQ(b.statistics().allocated, 19 * kMebi - 512);
  b.allocate(kMebi + 512, Lane::compute, 0);  // what was split off
  EXPECT_EQ(b.statistics().reserved, 20 * kMebi);
}

TEST(CachingAllocator, AnExpandableSegmentGrowsByPagesAndHasNoSlivers) {
  for (const bool expandable : {false, true}) {
    CachingAllocator a(0, expandable);
    const int first = a.allocate(30 * kMebi, Lane::compute, 0), second = a.allocate(30 * kMebi, Lane::compute, 0);
    EXPECT_EQ(a.statistics().reserved, 60 * kMebi);  // three pages of 20 MiB, or two segments
    a.free(first);
    a.free(second);
    a.allocate(70 * kMebi, Lane::compute, 0);  // of the same segment, with one page more; else of a third
    EXPECT_EQ(a.statistics().reserved, expandable ? 80 * kMebi : 130 * kMebi);
    a.allocate(1, Lane::compute, 0);  // a small one has a segment of its own, of pages of 2 MiB
    EXPECT_EQ(a.statistics().reserved, (expandable ? 80 : 130) * kMebi + 2 * kMebi);
    a.allocate(20 * kMebi, Lane::all_gather, 0);  // as has another stream
    EXPECT_EQ(a.statistics().reserved, (expandable ? 80 : 130) * kMebi + 22 * kMebi);
  }
}

TEST(CachingAllocator, OfAnExpandableSegmentWholeFreePagesGoBackToAFullDevice) {
  CachingAllocator a(60 * kMebi, true);
  const int first = a.allocate(30 * kMebi, Lane::compute, 0);
  a.allocate(5 * kMebi, Lane::compute, 0);  // 30 to 35 of 40 MiB
  a.free(first);
  a.allocate(40 * kMebi, Lane::all_gather, 0);  // the first page is unmapped; the second holds the 5 MiB
  EXPECT_EQ(a.statistics().retries, 1);
  EXPECT_EQ(a.statistics().failures, 0);
  EXPECT_EQ(a.statistics().reserved, 60 * kMebi);
  a.allocate(10 * kMebi, Lane::compute, 0);  // what is left of the second page
  EXPECT_EQ(a.statistics().reserved, 60 * kMebi);
  a.allocate(20 * kMebi, Lane::compute, 0);  // nothing is
  EXPECT_EQ(a.statistics().failures, 1);
}

TEST(CachingAllocator, TheSmallestBlockThatIsLargeEnoughIsTaken) {
  CachingAllocator a;
  const int large = a.allocate(40 * kMebi, Lane::compute, 0);
  const int middle = a.allocate(30 * kMebi, Lane::compute, 0);
  a.free(large);
  a.free(middle);
  a.allocate(30 * kMebi, Lane::compute, 0);
  a.allocate(40 * kMebi, Lane::compute, 0);
  EXPECT_EQ(a.statistics().reserved, 70 * kMebi);
  EXPECT_EQ(a.statistics().peak_allocated, 70 * kMebi);
}

TEST(CachingAllocator, NeighboursThatAreFreeBecomeOneBlock) {
  CachingAllocator a;
  a.free(a.allocate(60 * kMebi, Lane::compute, 0));
  const int first = a.allocate(20 * kMebi, Lane::compute, 0);
  const int second = a.allocate(20 * kMebi, Lane::compute, 0);
  const int third = a.allocate(20 * kMebi, Lane::compute, 0);
  a.free(first);
  a.free(third);
  a.allocate(40 * kMebi, Lane::compute, 0);  // there are twice 20, apart
  EXPECT_EQ(a.statistics().reserved, 100 * kMebi);
  a.free(second);
  a.allocate(60 * kMebi, Lane::compute, 0);
  EXPECT_EQ(a.statistics().reserved, 100 * kMebi);
}

TEST(CachingAllocator, AStreamReusesItsOwnBlocksAlone) {
  CachingAllocator a;
  a.free(a.allocate(30 * kMebi, Lane::compute, 0));
  a.allocate(30 * kMebi, Lane::all_gather, 0);
  EXPECT_EQ(a.statistics().reserved, 60 * kMebi);
  a.allocate(30 * kMebi, Lane::compute, 0);
  EXPECT_EQ(a.statistics().reserved, 60 * kMebi);
}

TEST(CachingAllocator, EventsAreAskedWhenMemoryIsAllocated) {
  CachingAllocator a;
  a.free_after(a.allocate(30 * kMebi, Lane::compute, 0), 100);
  EXPECT_EQ(a.statistics().allocated, 0);  // the program has given it back
  const int second = a.allocate(30 * kMebi, Lane::compute, 99);
  EXPECT_EQ(a.statistics().reserved, 60 * kMebi);
  a.allocate(30 * kMebi, Lane::compute, 100);
  EXPECT_EQ(a.statistics().reserved, 60 * kMebi);
  EXPECT_EQ(a.statistics().peak_allocated, 60 * kMebi);
  // Where an event has not passed, a neighbour is not merged with it.
  a.free_after(second, 200);
  const int third = a.allocate(10 * kMebi, Lane::compute, 300);
  const int fourth = a.allocate(20 * kMebi, Lane::compute, 300);
  a.free_after(third, 400);
  a.free(fourth);
  a.allocate(30 * kMebi, Lane::compute, 399);
  EXPECT_EQ(a.statistics().reserved, 90 * kMebi);
  a.allocate(30 * kMebi, Lane::compute, 400);
  EXPECT_EQ(a.statistics().reserved, 90 * kMebi);
}

TEST(CachingAllocator, AFullDeviceGetsItsFreeSegmentsBack) {
  CachingAllocator a(100 * kMebi);
  a.free_after(a.allocate(60 * kMebi, Lane::compute, 0), 1e9);
  a.allocate(80 * kMebi, Lane::all_gather, 0);  // waits for the event, returns the 60
  EXPECT_EQ(a.statistics().reserved, 80 * kMebi);
  EXPECT_EQ(a.statistics().peak_reserved, 80 * kMebi);
  EXPECT_EQ(a.statistics().retries, 1);
  EXPECT_EQ(a.statistics().failures, 0);
  a.allocate(21 * kMebi, Lane::compute, 0);
  EXPECT_EQ(a.statistics().retries, 2);
  EXPECT_EQ(a.statistics().failures, 1);
}

TEST(CachingAllocator, ASegmentThatIsSplitDoesNotGoBack) {
  CachingAllocator a(100 * kMebi);
  a.free(a.allocate(60 * kMebi, Lane::compute, 0));
  a.allocate(20 * kMebi, Lane::compute, 0);
  a.allocate(80 * kMebi, Lane::compute, 0);
  EXPECT_EQ(a.statistics().failures, 1);
}

/// Three times: computation allocates 30 MiB, and a reduction on its own lane frees it.
struct ThreeReductions {
  ThreeReductions() {
    schedules.steps.resize(1);
    schedule::Schedule& step = schedules.steps.front();
    for (int i = 0; i < 3; ++i) {
      step.buffers.push_back({.bytes = 30 * kMebi});
      schedule::Op& backward = step.ops.emplace_back();
      backward.kind = schedule::OpKind::backward;
      backward.allocates = {i};
      backward.record = i;
      schedule::Op& reduce = step.ops.emplace_back();
      reduce.kind = schedule::OpKind::reduce_scatter;
      reduce.lane = Lane::reduce_scatter;
      reduce.waits = {{i, schedule::WaitReason::data}};
      reduce.frees = {i};
    }
    schedules.event_count = 3;
  }
  /// Each reduction ends so long after its backward; the host issues each pair of ops 100 ns after the one before.
  CachingAllocator::Statistics with_reductions_of(std::int64_t ns) const {
    std::vector<trace::Record> records;
    for (int i = 0; i < 3; ++i) {
      const std::int64_t issued = 1000 + 100 * i;
      records.push_back({.op = 2 * i, .issued_ns = issued, .begin_ns = issued, .end_ns = issued + 10});
      records.push_back({.op = 2 * i + 1, .issued_ns = issued, .begin_ns = issued + 10, .end_ns = issued + 10 + ns});
    }
    return allocator_walk(schedules, records, 0);
  }
  schedule::Schedules schedules;
};

TEST(AllocatorWalk, WhatAReductionReadsIsReusedOnceItIsOver) {
  const ThreeReductions three;
  EXPECT_EQ(three.with_reductions_of(90).peak_reserved, 30 * kMebi);   // over when the host asks again
  EXPECT_EQ(three.with_reductions_of(91).peak_reserved, 60 * kMebi);   // 1 ns too late
  EXPECT_EQ(three.with_reductions_of(500).peak_reserved, 90 * kMebi);  // all are held
  EXPECT_EQ(three.with_reductions_of(500).peak_allocated, 30 * kMebi);
}

TEST(AllocatorWalk, AnOpWithoutWorkIsOverWhenItsLaneComesPastIt) {
  ThreeReductions three;
  schedule::Schedule& step = three.schedules.steps.front();
  for (int i = 0; i < 3; ++i) {  // computation frees what the other lane allocated, and waits for it
    std::swap(step.ops[static_cast<std::size_t>(2 * i)].lane, step.ops[static_cast<std::size_t>(2 * i + 1)].lane);
    step.ops[static_cast<std::size_t>(2 * i + 1)].kind = schedule::OpKind::reshard;
  }
  std::vector<trace::Record> records;
  for (int i = 0; i < 3; ++i) {
    const std::int64_t issued = 1000 + 100 * i;
    records.push_back({.op = 2 * i, .issued_ns = issued, .begin_ns = issued, .end_ns = issued + 150});
    records.push_back({.op = 2 * i + 1, .issued_ns = issued});
  }
  EXPECT_EQ(allocator_walk(three.schedules, records, 0).peak_reserved, 60 * kMebi);
}

}  // namespace
}  // namespace fsdpbench::clock
