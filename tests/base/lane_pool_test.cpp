#include "base/lane_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <stdexcept>
#include <vector>

namespace fsdpbench {
namespace {

constexpr std::int64_t kG = LanePool::kGranule;

class LanePoolTest : public testing::Test {
 protected:
  std::int64_t allocate(std::int64_t bytes, Lane lane = Lane::compute,
                        MemoryCategory category = MemoryCategory::activations) {
    return pool.allocate(bytes, category, lane, order);
  }
  /// An op on `lane`, so that the free that follows has something to come after.
  void free(std::int64_t offset, Lane lane = Lane::compute) {
    order.issue(lane);
    pool.free(offset, lane, order);
  }
  LanePool pool;
  LaneOrder order;
};

TEST_F(LanePoolTest, RoundsUpToGranulesAndGivesZeroBytesAPlace) {
  EXPECT_EQ(allocate(1), 0);
  EXPECT_EQ(allocate(0), kG);
  EXPECT_EQ(allocate(kG + 1), 2 * kG);
  EXPECT_EQ(allocate(1), 4 * kG);
  EXPECT_EQ(pool.size_of_block(2 * kG), 2 * kG);
  EXPECT_EQ(pool.statistics().reserved, 5 * kG);
}

TEST_F(LanePoolTest, TheFreeingLaneReusesAtOnce) {
  const std::int64_t block = allocate(4 * kG);
  free(block);
  EXPECT_EQ(allocate(4 * kG), block);
  EXPECT_EQ(pool.statistics().reuses, 1);
  EXPECT_EQ(pool.statistics().reserved, 4 * kG);
}

TEST_F(LanePoolTest, AnotherLaneReusesOnlyOnceOrdered) {
  const std::int64_t block = allocate(kG);
  free(block);
  EXPECT_NE(allocate(kG, Lane::copy), block);
  order.wait(Lane::copy, order.record(Lane::compute));
  EXPECT_EQ(allocate(kG, Lane::copy), block);
}

TEST_F(LanePoolTest, AnEventRecordedBeforeTheLastUseDoesNotHelp) {
  const std::int64_t block = allocate(kG);
  order.issue(Lane::compute);
  const LaneClock early = order.record(Lane::compute);
  free(block);  // after one more op
  order.wait(Lane::copy, early);
  EXPECT_NE(allocate(kG, Lane::copy), block);
}

TEST_F(LanePoolTest, AHostWaitLetsEveryLaneReuse) {
  const std::int64_t block = allocate(kG);
  free(block);
  order.host_wait(order.record(Lane::compute));
  EXPECT_EQ(allocate(kG, Lane::reduce_scatter), block);
}

TEST_F(LanePoolTest, AFreeComesAfterWhatItsLaneHadWaitedFor) {
  const std::int64_t block = allocate(kG);
  order.issue(Lane::copy);  // the last user
  const LaneClock used = order.record(Lane::copy);
  const LaneClock compute_before = order.record(Lane::compute);
  order.wait(Lane::compute, used);
  pool.free(block, Lane::compute, order);  // no op on compute in between
  order.wait(Lane::all_gather, compute_before);
  EXPECT_NE(allocate(kG, Lane::all_gather), block) << "all_gather is not ordered after the copy";
}

TEST_F(LanePoolTest, SplitsALargerBlockAndUsesTheRest) {
  const std::int64_t block = allocate(4 * kG);
  allocate(kG);  // keeps the freed block from being the growing tail
  free(block);
  EXPECT_EQ(allocate(kG), block);
  EXPECT_EQ(allocate(3 * kG), block + kG);
  EXPECT_EQ(pool.statistics().reserved, 5 * kG);
}

TEST_F(LanePoolTest, MergesNeighboursThatTheLaneMayUse) {
  const std::int64_t a = allocate(kG);
  const std::int64_t b = allocate(kG);
  allocate(kG);
  free(a);
  free(b);
  EXPECT_EQ(allocate(2 * kG), a);
}

TEST_F(LanePoolTest, DoesNotMergeWithANeighbourOfAnUnorderedLane) {
  const std::int64_t a = allocate(kG);
  const std::int64_t b = allocate(kG, Lane::copy);
  allocate(kG);
  free(a, Lane::compute);
  free(b, Lane::copy);
  EXPECT_EQ(allocate(2 * kG), 3 * kG);
  order.wait(Lane::compute, order.record(Lane::copy));
  EXPECT_EQ(allocate(2 * kG), a);
}

TEST_F(LanePoolTest, PicksTheSmallestBlockThatFits) {
  const std::int64_t large = allocate(5 * kG);
  allocate(kG);
  const std::int64_t small = allocate(2 * kG);
  allocate(kG);
  free(large);
  free(small);
  EXPECT_EQ(allocate(2 * kG), small);
}

TEST_F(LanePoolTest, TheRangeGrowsOnlyByWhatItsFreeTailLacks) {
  const std::int64_t block = allocate(2 * kG);
  free(block);
  EXPECT_EQ(allocate(3 * kG), block);
  EXPECT_EQ(pool.statistics().reserved, 3 * kG);
}

TEST_F(LanePoolTest, CountsLiveAndPeakByCategory) {
  const std::int64_t gradients = allocate(2 * kG, Lane::compute, MemoryCategory::gradients);
  const std::int64_t optimizer = allocate(kG, Lane::compute, MemoryCategory::optimizer);
  free(gradients);
  const PoolStatistics& s = pool.statistics();
  EXPECT_EQ(s.live[index_of(MemoryCategory::gradients)], 0);
  EXPECT_EQ(s.live[index_of(MemoryCategory::optimizer)], kG);
  EXPECT_EQ(s.live_total, kG);
  EXPECT_EQ(s.peak_occupied[index_of(MemoryCategory::gradients)], 2 * kG);
  EXPECT_EQ(s.peak_occupied_total, 3 * kG);
  pool.reset_peaks();
  EXPECT_EQ(s.peak_occupied[index_of(MemoryCategory::gradients)], 0);
  EXPECT_EQ(s.peak_occupied_total, kG);
  EXPECT_EQ(s.reserved, 3 * kG);
  free(optimizer);
  EXPECT_EQ(s.live_total, 0);
  EXPECT_EQ(s.allocations, 2);
}

TEST_F(LanePoolTest, AFreedBlockStillOccupiesForALaneThatMayNotUseIt) {
  const std::int64_t block = allocate(2 * kG, Lane::compute, MemoryCategory::gradients);
  free(block);
  allocate(kG, Lane::copy, MemoryCategory::gradients);
  EXPECT_EQ(pool.statistics().live_total, kG);
  EXPECT_EQ(pool.statistics().peak_occupied_total, 3 * kG);
}

TEST_F(LanePoolTest, FreeingWhatIsNotLiveIsAnError) {
  const std::int64_t block = allocate(kG);
  EXPECT_THROW(pool.free(block + kG, Lane::compute, order), std::logic_error);
  pool.free(block, Lane::compute, order);
  EXPECT_THROW(pool.free(block, Lane::compute, order), std::logic_error);
  EXPECT_THROW(pool.size_of_block(block), std::logic_error);
}

/// Random use against the rule itself: two blocks may share an address only if the later one's lane is ordered after
/// the free of the earlier.
TEST_F(LanePoolTest, RandomUseNeverHandsOutABlockTooEarly) {
  struct Use {
    std::int64_t begin, end;
    Lane freed_on;
    std::int64_t freed_at;
  };
  std::mt19937 random(7);
  std::map<std::int64_t, std::int64_t> live;  // begin to end
  std::map<std::int64_t, Lane> allocated_on;
  std::vector<Use> freed;
  for (int i = 0; i < 20'000; ++i) {
    const Lane lane = kLanes[random() % kLaneCount];
    const Lane other = kLanes[random() % kLaneCount];
    switch (random() % 4) {
      case 0: {
        if (live.size() > 40) break;
        const std::int64_t begin = allocate(static_cast<std::int64_t>(random() % 8) * kG, lane);
        const std::int64_t end = begin + pool.size_of_block(begin);
        const auto next = live.lower_bound(begin);
        ASSERT_TRUE(next == live.end() || next->first >= end);
        ASSERT_TRUE(next == live.begin() || std::prev(next)->second <= begin);
        const LaneClock now = order.now(lane);
        for (const Use& use : freed) {
          if (use.begin < end && begin < use.end) {
            ASSERT_TRUE(now.covers(use.freed_on, use.freed_at));
          }
        }
        std::erase_if(freed, [&](const Use& use) { return begin <= use.begin && use.end <= end; });
        live[begin] = end;
        allocated_on[begin] = lane;
        break;
      }
      case 1: {
        if (live.empty()) break;
        const auto victim = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
        order.wait(lane, order.record(allocated_on[victim->first]));  // who frees has seen the allocation
        free(victim->first, lane);
        freed.push_back({victim->first, victim->second, lane, order.last(lane)});
        live.erase(victim);
        break;
      }
      case 2: order.wait(lane, order.record(other)); break;
      default: order.issue(lane); break;
    }
  }
}

}  // namespace
}  // namespace fsdpbench
