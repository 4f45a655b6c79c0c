#include "engine/rank_outcome.h"

#include <gtest/gtest.h>

#include <thread>

namespace fsdpbench::engine {
namespace {

TEST(DoneSteps, ShowsWhatWasPublishedWhileTheTraceGrowsAndAfterItIsGone) {
  constexpr std::size_t kSteps = 2000;
  DoneSteps done;
  EXPECT_EQ(done.snapshot().steps, 0);
  std::jthread rank([&] {
    trace::RankTrace trace;
    trace.rank = 2;
    trace.steps.reserve(kSteps);
    trace.records.reserve(3 * kSteps);
    trace.memory.reserve(2 * kSteps);
    Publication publication(&done);
    for (std::int64_t step = 0; step < static_cast<std::int64_t>(kSteps); ++step) {
      for (int i = 0; i < 3; ++i) trace.records.push_back({static_cast<std::int32_t>(step), i, 0, 0, 0, 0});
      trace.steps.push_back({step, step + 1});
      trace.memory.resize(trace.memory.size() + 2);
      publication.publish(trace, step + 1);
    }
  });
  std::int64_t seen = 0;
  while (seen < static_cast<std::int64_t>(kSteps)) {
    const DoneSteps::Snapshot snapshot = done.snapshot();
    ASSERT_GE(snapshot.steps, seen);
    seen = snapshot.steps;
    ASSERT_EQ(snapshot.trace.steps.size(), static_cast<std::size_t>(seen));
    ASSERT_EQ(snapshot.trace.records.size(), static_cast<std::size_t>(3 * seen));
    ASSERT_EQ(snapshot.trace.memory.size(), static_cast<std::size_t>(2 * seen));
    if (seen > 0) {
      ASSERT_EQ(snapshot.trace.records.back().step, seen - 1);
    }
  }
  rank.join();
  EXPECT_EQ(done.snapshot().trace.rank, 2);
  EXPECT_EQ(done.snapshot().trace.records.size(), 3 * kSteps);
}

}  // namespace
}  // namespace fsdpbench::engine
