#include "metrics/checkpoint_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdpbench::metrics {
namespace {

using ::testing::HasSubstr;
using trace::RankTrace;
using trace::SavePart;

constexpr std::int64_t kNsPerMs = 1'000'000;

/// `ranks` with `steps` steps of 10 ms, one after another, from 0 on; times are milliseconds.
std::vector<RankTrace> steps_of_10_ms(int ranks, int steps) {
  std::vector<RankTrace> traces(static_cast<std::size_t>(ranks));
  for (RankTrace& trace : traces) {
    for (int s = 0; s < steps; ++s) trace.steps.push_back({s * 10 * kNsPerMs, (s + 1) * 10 * kNsPerMs, 0});
  }
  return traces;
}

void add(RankTrace& rank, SavePart part, std::int64_t steps, std::int64_t begin, std::int64_t end, std::int64_t stall,
         std::int64_t bytes) {
  rank.saves.push_back({part, steps, begin * kNsPerMs, end * kNsPerMs, stall * kNsPerMs, bytes});
}

TEST(CheckpointCost, WithoutCheckpointsThereIsNone) {
  EXPECT_FALSE(checkpoint_cost(steps_of_10_ms(2, 3), 1));
  EXPECT_FALSE(checkpoint_cost({}, 1));
}

TEST(CheckpointCost, PartsAreThoseOfTheRankThatStoodStillLongest) {
  std::vector<RankTrace> traces = steps_of_10_ms(2, 8);
  add(traces[0], SavePart::wait, 4, 40, 46, 6, 0);
  add(traces[0], SavePart::copy, 4, 46, 49, 1, 3000);
  add(traces[0], SavePart::write, 4, 50, 60, 0, 3100);
  add(traces[1], SavePart::copy, 4, 41, 46, 2, 5000);
  add(traces[1], SavePart::write, 4, 50, 65, 0, 5100);
  const CheckpointCost cost = checkpoint_cost(traces, 2).value();
  ASSERT_EQ(cost.saves.size(), 1U);
  const SaveCost& save = cost.saves.front();
  EXPECT_EQ(save.steps, 4);
  EXPECT_EQ(save.bytes, 8200);
  EXPECT_FALSE(save.at_end);
  EXPECT_DOUBLE_EQ(save.stall_ms, 7);
  EXPECT_DOUBLE_EQ(save.waited_ms, 6);
  EXPECT_DOUBLE_EQ(save.copied_ms, 1);
  EXPECT_DOUBLE_EQ(save.wrote_ms, 0);
  EXPECT_DOUBLE_EQ(save.copy_ms, 5);
  EXPECT_DOUBLE_EQ(save.write_ms, 15);
  EXPECT_NEAR(save.hidden_pct, 100 * (1 - 3.0 / 33), 1e-9);
  EXPECT_NEAR(save.mb_per_s, 8200 / 15e-3 * 1e-6, 1e-9);
  EXPECT_DOUBLE_EQ(cost.stall_ms.value(), 7);
  EXPECT_DOUBLE_EQ(cost.stall_pct.value(), 70);
  EXPECT_THAT(cost.because, HasSubstr("checkpoint.every = 3 instead of 2"));  // 5 + 15 ms are two steps
}

TEST(CheckpointCost, TheOneAfterTheLastStepHoldsNobodyUp) {
  std::vector<RankTrace> traces = steps_of_10_ms(1, 3);
  add(traces[0], SavePart::write, 3, 30, 90, 60, 6000);
  const CheckpointCost cost = checkpoint_cost(traces, 0).value();
  EXPECT_TRUE(cost.saves.front().at_end);
  EXPECT_DOUBLE_EQ(cost.saves.front().stall_ms, 60);
  EXPECT_FALSE(cost.stall_ms || cost.stall_pct || cost.beside_pct);
  EXPECT_EQ(cost.because, "");
  // One between steps does.
  add(traces[0], SavePart::write, 2, 20, 25, 5, 6000);
  const CheckpointCost both = checkpoint_cost(traces, 2).value();
  EXPECT_DOUBLE_EQ(both.stall_pct.value(), 50);
  EXPECT_THAT(both.because, HasSubstr("checkpoint.asynchronous = true"));
}

TEST(CheckpointCost, StepsBesideASaveAreComparedWithTheOthers) {
  std::vector<RankTrace> traces = steps_of_10_ms(2, 6);
  for (const std::size_t s : {1U, 3U, 5U}) {
    trace::StepWindow& window = traces[1].steps[s];
    window.end_ns += 2 * kNsPerMs;  // both ranks' step counts with its slowest
    traces[0].saves.push_back(
        {SavePart::write, static_cast<std::int64_t>(s), window.begin_ns, window.begin_ns + 1, 0, 1});
  }
  const CheckpointCost cost = checkpoint_cost(traces, 2).value();
  EXPECT_NEAR(cost.beside_pct.value(), 20, 1e-9);
  EXPECT_DOUBLE_EQ(cost.stall_ms.value(), 0);
  EXPECT_EQ(cost.because, "") << "nothing stands still";
  traces[0].saves.pop_back();
  EXPECT_FALSE(checkpoint_cost(traces, 2)->beside_pct) << "two are too few";
}

TEST(CheckpointCost, ACopyThatIsLongerThanForwardAndBackwardIsNamed) {
  std::vector<RankTrace> traces = steps_of_10_ms(1, 4);
  add(traces[0], SavePart::copy, 1, 10, 25, 6, 100);
  add(traces[0], SavePart::write, 1, 26, 28, 0, 100);
  EXPECT_THAT(checkpoint_cost(traces, 10)->because, HasSubstr("copy to host memory, which takes 15.0 ms"));
}

}  // namespace
}  // namespace fsdpbench::metrics
