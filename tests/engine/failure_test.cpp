// One rank's failure ends all ranks with that failure's message; a stop between steps keeps what was measured.
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "base/error.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

/// Fails when sample `at` is asked for: on one rank, in the middle of a step.
class FailingBatches : public testing::HashedBatches {
 public:
  FailingBatches(std::int32_t vocab, std::int64_t at) : HashedBatches(vocab), at_(at) {}
  void tokens(std::int64_t sample, std::span<std::int32_t> out) const override {
    if (sample == at_) throw ConfigError("the data file shrank while it was read");
    HashedBatches::tokens(sample, out);
  }

 private:
  std::int64_t at_;
};

TEST(Failure, OfOneRankEndsAllWithItsMessage) {
  const config::RunConfig c = testing::settled(testing::tiny_decoder());
  const engine::Setup p = set_up(c);
  for (std::int64_t sample : {0, 5, 13, 39}) {  // ranks 0, 2, 2 and 3, steps 0, 0, 1 and 4
    const FailingBatches batches(static_cast<std::int32_t>(c.model.vocab), sample);
    try {
      run(*backend::cpu::make_cpu_backend(), p, batches);
      FAIL() << "sample " << sample;
    } catch (const ConfigError& error) {
      EXPECT_STREQ(error.what(), "the data file shrank while it was read");
    }
  }
}

TEST(Failure, AStopBetweenStepsKeepsWhatWasDone) {
  config::RunConfig c = testing::settled(testing::tiny_decoder());
  c.train.steps = 50;
  const engine::Setup p = set_up(c);
  std::atomic<std::int64_t> done = 0;
  RunHooks hooks;
  hooks.progress = [&](std::int64_t steps, const std::optional<StepLoss>&) { done = steps; };
  hooks.stop = [&] { return done >= 3; };
  const Measurement result = run(*backend::cpu::make_cpu_backend(), p, testing::HashedBatches(53), hooks);
  EXPECT_TRUE(result.interrupted);
  EXPECT_GE(result.steps_done, 3);
  EXPECT_LT(result.steps_done, 50);
  EXPECT_EQ(result.losses.size(), static_cast<std::size_t>(result.steps_done));
  for (const trace::RankTrace& trace : result.traces) {
    EXPECT_EQ(trace.steps.size(), static_cast<std::size_t>(result.steps_done - 1));
  }
}

/// Bytes that rank 0 has sent in all measured steps.
backend::WireBytes wire_of(const Measurement& m) { return m.wire_bytes.front(); }

TEST(Failure, AnInterruptInTheMiddleOfAStepKeepsTheStepsThatAllHaveDone) {
  config::RunConfig c = testing::settled(testing::tiny_decoder());
  c.train.steps = 50;
  launch::Abort now;
  RunHooks hooks;
  hooks.progress = [&](std::int64_t steps, const std::optional<StepLoss>&) {
    if (steps == 4) now.set(std::make_exception_ptr(Interrupted()));  // the other ranks are in step 4 or 5
  };
  hooks.interrupt = &now;
  const Measurement result = run(*backend::cpu::make_cpu_backend(), set_up(c), testing::HashedBatches(53), hooks);
  EXPECT_TRUE(result.interrupted);
  EXPECT_FALSE(result.parameters_digest.has_value());
  ASSERT_GE(result.steps_done, 3);
  ASSERT_LE(result.steps_done, 4);
  EXPECT_EQ(result.losses.size(), static_cast<std::size_t>(result.steps_done));
  c.train.steps = result.steps_done - 1;
  const Measurement whole = run(*backend::cpu::make_cpu_backend(), set_up(c), testing::HashedBatches(53));
  EXPECT_EQ(wire_of(result), wire_of(whole));
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(result.traces[rank].steps.size(), whole.traces[rank].steps.size());
    EXPECT_EQ(result.traces[rank].records.size(), whole.traces[rank].records.size());
    EXPECT_EQ(result.traces[rank].memory.size(), whole.traces[rank].memory.size());
  }
}

TEST(Failure, AnInterruptBeforeTheRunEndsItWithNothing) {
  const config::RunConfig c = testing::settled(testing::tiny_decoder());
  launch::Abort now;
  now.set(std::make_exception_ptr(Interrupted()));
  RunHooks hooks;
  hooks.interrupt = &now;
  const Measurement result = run(*backend::cpu::make_cpu_backend(), set_up(c), testing::HashedBatches(53), hooks);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.steps_done, 0);
  EXPECT_TRUE(result.losses.empty());
}

TEST(Failure, WhatEachRankHadDoneIsLeftBehind) {
  const config::RunConfig c = testing::settled(testing::tiny_decoder());
  const FailingBatches batches(static_cast<std::int32_t>(c.model.vocab), 29);  // rank 2 in step 3
  std::array<DoneSteps, 4> done;
  RunHooks hooks;
  hooks.done = done.data();
  EXPECT_THROW(run(*backend::cpu::make_cpu_backend(), set_up(c), batches, hooks), ConfigError);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const DoneSteps::Snapshot left = done[rank].snapshot();
    EXPECT_GE(left.steps, rank == 2 ? 3 : 2) << rank;  // the others may have been at the end of the step before
    EXPECT_LE(left.steps, 3) << rank;
    EXPECT_EQ(left.trace.steps.size(), static_cast<std::size_t>(left.steps - 1)) << rank;
    EXPECT_EQ(done[rank].failed(), rank == 2) << rank;
  }
}

}  // namespace
}  // namespace fsdpbench::engine
