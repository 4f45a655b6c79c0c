// The arms of a step, on the computed clock: each part alone takes what its ops take, to the nanosecond.
#include "accept/stages/step_arms.h"

#include <gtest/gtest.h>

#include "schedule/memory_walk.h"
#include "support/hand_run.h"
#include "support/tiny_run.h"

namespace fsdpbench::app {
namespace {

/// A rank's computation and a collective alone are known exactly.
config::RunConfig emulated(int layers = 3) {
  config::RunConfig c = testing::tiny_decoder();
  c.model.layers = layers;
  c.emulate.compute_tflops = 0.001;
  c.emulate.link_gb_per_s = 0.05;
  c.emulate.link_latency_us = 5;
  return testing::settled(c);
}

struct SimulatedArms {
  explicit SimulatedArms(const config::RunConfig& config, int rounds = 2)
      : setup(set_up_arms(config, rounds)),
        measurement(engine::simulate(setup, engine::simulated_times(setup, nullptr))),
        run(setup.schedules, measurement.traces) {}
  SimulatedArms(const SimulatedArms&) = delete;
  SimulatedArms& operator=(const SimulatedArms&) = delete;

  engine::Setup setup;
  engine::Measurement measurement;
  account::RunView run;
};

TEST(StepArmsRun, PartsAloneTakeWhatTheirOpsTake) {
  const SimulatedArms arms(emulated());
  const std::vector<accept::ArmRound> rounds = arm_rounds(arms.run);
  ASSERT_EQ(rounds.size(), 2U);
  for (const accept::ArmRound& r : rounds) {
    EXPECT_GT(r.communication_ms, 0.5);
    EXPECT_NEAR(r.computation_ms, r.kernels_alone_ms, 1e-9) << "nothing to wait for";
    EXPECT_NEAR(r.kernels_beside_ms, r.kernels_alone_ms, 1e-9) << "a computed clock slows nothing down";
    EXPECT_LT(r.whole_ms, r.computation_ms + r.communication_ms) << "something overlaps";
    EXPECT_GE(r.whole_ms, std::max(r.computation_ms, r.communication_ms));
  }
}

/// Steps of two ranks in the order of a round. In each a rank computes for 2 ms, the other for 4; a transfer whose last
/// rank arrives after 1 ms takes 3 more. Each arm's second step takes 1 ms longer.
TEST(StepArmsRun, ARoundHasTheMeansOfEachArm) {
  using schedule::OpKind;
  testing::HandRun run(2);
  constexpr std::int64_t kMs = 1'000'000;
  std::int64_t at = 0;
  for (int step = 0; step < 6 + 3; ++step) {  // the second round is not whole
    const std::int64_t more = step % 6 >= 3 ? kMs : 0;
    const bool computes = step % 6 != 1 && step % 6 != 4, communicates = step % 6 != 0 && step % 6 != 5;
    run.step({{at, at + 10 * kMs}, {at, at + 12 * kMs + more}});
    if (computes) {
      run.op(
          OpKind::forward, Lane::compute,
          std::vector<testing::Times>{{.begin = at, .end = at + 2 * kMs}, {.begin = at, .end = at + 4 * kMs + more}});
    }
    if (communicates) {
      run.collective(OpKind::all_gather, Lane::all_gather,
                     testing::Times{.begin = at, .end = at + 4 * kMs, .arrived = at + kMs + more});
    }
    run.op(OpKind::host_wait, Lane::compute, testing::Times{});
    at += 20 * kMs;
  }
  const std::vector<accept::ArmRound> rounds = arm_rounds(run.view());
  ASSERT_EQ(rounds.size(), 1U);
  EXPECT_DOUBLE_EQ(rounds[0].computation_ms, 12.5);
  EXPECT_DOUBLE_EQ(rounds[0].communication_ms, 12.5);
  EXPECT_DOUBLE_EQ(rounds[0].whole_ms, 12.5);
  EXPECT_DOUBLE_EQ(rounds[0].kernels_alone_ms, 3.25) << "the mean of 2 and 4, and of 2 and 5";
  EXPECT_DOUBLE_EQ(rounds[0].kernels_beside_ms, 3.25);
  EXPECT_DOUBLE_EQ(rounds[0].transfers_alone_ms, 2.5) << "the mean of 3 and 2";
  EXPECT_DOUBLE_EQ(rounds[0].transfers_beside_ms, 2.5);
}

TEST(StepArmsRun, WarmUpIsWholeStepsAndMemoryIsWhatTheArmsNeed) {
  config::RunConfig config = testing::settled(testing::tiny_decoder());
  config.train.warmup = 3;
  config.checkpoint.folder = "saved";
  const engine::Setup arms = set_up_arms(config, 2);
  EXPECT_EQ(arms.config.checkpoint.folder, "");
  EXPECT_EQ(arms.config.train.warmup, 3);
  EXPECT_EQ(arms.config.train.steps, 12);
  ASSERT_EQ(arms.schedules.steps.size(), 3U + 12);
  const auto collectives = [&](std::size_t step) {
    return std::ranges::count_if(arms.schedules.steps[step].ops,
                                 [](const schedule::Op& op) { return op.is_collective(); });
  };
  const auto all = collectives(2);
  EXPECT_GT(all, 0);
  for (std::size_t round = 0; round < 2; ++round) {
    const std::size_t first = 3 + 6 * round;
    EXPECT_EQ(collectives(first), 0);
    EXPECT_EQ(collectives(first + 1), all);
    EXPECT_EQ(collectives(first + 2), all);
    EXPECT_EQ(collectives(first + 5), 0);
  }
  const engine::Setup plain = engine::set_up(config);
  EXPECT_EQ(arms.memory, schedule::memory_walk(arms.schedules, 3 + 12));
  EXPECT_EQ(arms.pool_bytes,
            plain.pool_bytes + std::max<std::int64_t>(0, arms.memory.reserved - plain.memory.reserved));
}

/// The queue of fsdp1_queue fills over several steps.
TEST(StepArmsRun, WarmUpLastsUntilStepsRepeat) {
  config::RunConfig config = testing::settled(testing::tiny_decoder());
  config.train.warmup = 0;
  config.fsdp.all_gather_limit = {config::AllGatherLimit::Mode::fsdp1_queue, 20};
  const std::ptrdiff_t steps = std::ssize(engine::set_up(config).schedules.steps);
  EXPECT_GT(steps, 1);
  EXPECT_EQ(set_up_arms(config, 1).config.train.warmup, steps - 1);
}

TEST(StepArmsRun, WithoutPrefetchNothingIsHiddenInForward) {
  config::RunConfig serial = emulated();
  serial.fsdp.forward_prefetch = {config::Prefetch::Mode::none, 1};
  serial.fsdp.backward_prefetch = {config::Prefetch::Mode::none, 1};
  const SimulatedArms with(emulated()), without(serial);
  EXPECT_GT(arm_rounds(without.run).front().whole_ms, arm_rounds(with.run).front().whole_ms);
  EXPECT_NEAR(arm_rounds(without.run).front().computation_ms, arm_rounds(with.run).front().computation_ms, 1e-9);
}

TEST(StepArmsRun, TheyEndWhenTheyAreToldAndOnlyWholeRoundsCount) {
  const engine::Setup setup = set_up_arms(testing::settled(testing::tiny_decoder()), 5);
  const std::int64_t warmup = setup.config.train.warmup;
  const testing::HashedBatches batches(static_cast<std::int32_t>(setup.config.model.vocab));
  const auto rounds_after = [&](std::int64_t steps) {  // that were begun when it is told
    const engine::Measurement measured =
        run_arms(setup, batches, nullptr, [&, asked = std::int64_t{0}]() mutable { return asked++ == steps; });
    EXPECT_EQ(measured.steps_done, std::min(steps, warmup + 5 * kStepsOfARound));
    return arm_rounds({setup.schedules, measured.traces}).size();
  };
  EXPECT_EQ(rounds_after(warmup + 2 * kStepsOfARound + 4), 2U);
  EXPECT_EQ(rounds_after(warmup + kStepsOfARound), 1U);
  EXPECT_EQ(rounds_after(1000), 5U);
}

TEST(StepArmsRun, RealRanksDoThem) {
  config::RunConfig config = testing::settled(testing::tiny_decoder());
  const engine::Setup setup = set_up_arms(config, 1);
  const testing::HashedBatches batches(static_cast<std::int32_t>(config.model.vocab));
  const engine::Measurement measured = run_arms(setup, batches, nullptr);
  const account::RunView run(setup.schedules, measured.traces);
  EXPECT_EQ(run.steps().size(), static_cast<std::size_t>(kStepsOfARound));
  const std::vector<accept::ArmRound> rounds = arm_rounds(run);
  ASSERT_EQ(rounds.size(), 1U);
  EXPECT_GT(rounds.front().kernels_alone_ms, 0);
  EXPECT_GT(rounds.front().transfers_alone_ms, 0);
  for (std::size_t s = 1; s < run.steps().size(); ++s) {
    for (int rank = 0; rank < run.ranks(); ++rank) {
      for (int other = 0; other < run.ranks(); ++other) {
        EXPECT_GE(run.steps()[s].window(rank).begin_ns, run.steps()[s - 1].window(other).end_ns)
            << "no rank begins a step before all have ended the one before";
      }
    }
  }
  // Bytes go round in the steps that communicate, and in no other.
  const testing::HashedBatches same(static_cast<std::int32_t>(config.model.vocab));
  engine::Setup whole = engine::set_up(config);
  whole.config.train.steps = 4;
  const engine::Measurement plain = engine::run(*backend::cpu::make_cpu_backend(), whole, same, {});
  EXPECT_EQ(measured.wire_bytes, plain.wire_bytes) << "4 steps of 6 communicate";
}

}  // namespace
}  // namespace fsdpbench::app
