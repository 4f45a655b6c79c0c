// One run between threads and one between processes: who is told what, and what each brings home.
#include "engine/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/addresses.h"
#include "launch/local_job.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using config::RunConfig;
using ::testing::ElementsAre;

RunConfig two_ranks() {
  RunConfig c = testing::tiny_decoder();
  c.mesh.ranks = 2;
  c.device.backend = config::BackendKind::cpu;
  return testing::settled(c);
}

/// The measurement of each process of a job.
std::array<Measurement, 2> run_processes(const RunConfig& c, const std::function<RunHooks(int rank)>& hooks) {
  const engine::Setup setup = set_up(c);
  std::array<Measurement, 2> all;
  launch::testing::run_job(2, [&](launch::Session& session, int rank) {
    all[static_cast<std::size_t>(rank)] =
        run(*backend::cpu::make_cpu_backend(), setup, testing::HashedBatches(53), hooks(rank), &session);
  });
  return all;
}

TEST(Run, ProcessesMeasureWhatThreadsDo) {
  const RunConfig c = two_ranks();
  const Measurement threads = testing::run_tiny(c);
  std::array<std::vector<std::int64_t>, 2> told;
  std::array<std::atomic<int>, 2> over{};
  std::array<DoneSteps, 2> published;
  const auto [root, other] = run_processes(c, [&](int rank) {
    RunHooks hooks;
    hooks.done = &published[static_cast<std::size_t>(rank)];  // of a process with one rank
    hooks.keep_parameters = true;
    hooks.progress = [&, rank](std::int64_t done, const std::optional<StepLoss>& loss) {
      told[static_cast<std::size_t>(rank)].push_back(done);
      if (!loss) return;
      EXPECT_EQ(loss->mean, threads.losses[static_cast<std::size_t>(loss->steps - 1)]);
    };
    hooks.steps_over = [&, rank] { ++over[static_cast<std::size_t>(rank)]; };
    return hooks;
  });
  EXPECT_EQ(root.losses, threads.losses);
  EXPECT_EQ(root.parameters_digest.value(), threads.parameters_digest.value());
  EXPECT_EQ(root.parameters, threads.parameters);
  EXPECT_EQ(root.wire_bytes, threads.wire_bytes);
  EXPECT_EQ(root.memory, threads.memory);
  EXPECT_EQ(root.host_memory, threads.host_memory);
  EXPECT_EQ(threads.host_memory.size(), 2U);
  ASSERT_EQ(threads.memory.size(), 2U);
  EXPECT_EQ(threads.memory[1].peak_occupied_total, set_up(c).memory.peak_occupied_total)
      << "of the steps, not of bringing parameters home";
  for (const DoneSteps& one : published) EXPECT_EQ(one.snapshot().steps, 5);
  EXPECT_THAT(root.hosts, ElementsAre(launch::host_name(), launch::host_name()));
  EXPECT_EQ(root.gpus.size(), 2U);
  EXPECT_THAT(root.early_ns, ElementsAre(0, 0));
  EXPECT_EQ(root.devices.size(), 2U);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(root.traces[rank].rank, static_cast<int>(rank));
    EXPECT_EQ(root.traces[rank].records.size(), threads.traces[rank].records.size());
    EXPECT_EQ(root.traces[rank].steps.size(), static_cast<std::size_t>(c.train.steps));
    EXPECT_TRUE(root.clocks.at(rank).before.same_clock);
    EXPECT_TRUE(root.clocks[rank].correction.same_clock());
  }
  EXPECT_TRUE(other.losses.empty());
  EXPECT_TRUE(other.clocks.empty());
  EXPECT_FALSE(other.parameters_digest);
  EXPECT_TRUE(other.parameters.empty());
  EXPECT_TRUE(other.traces[0].records.empty());
  EXPECT_EQ(other.traces[1].records.size(), root.traces[1].records.size());
  for (const Measurement* m : {&root, &other, &threads}) {
    EXPECT_EQ(m->steps_done, 5);
    EXPECT_FALSE(m->interrupted);
    EXPECT_EQ(m->parameters_not_finite, 0);
  }
  EXPECT_THAT(told[0], ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(told[1], ElementsAre());
  EXPECT_EQ(over[0], 1);
  EXPECT_EQ(over[1], 1);
}

TEST(Run, AStopOfAnyProcessEndsAllAfterTheSameStep) {
  RunConfig c = two_ranks();
  c.train.steps = 5000;
  std::atomic<int> asked = 0;
  const auto [root, other] = run_processes(c, [&](int rank) {
    RunHooks hooks;
    if (rank == 1) hooks.stop = [&] { return ++asked > 3; };
    return hooks;
  });
  EXPECT_TRUE(root.interrupted);
  EXPECT_TRUE(other.interrupted);
  EXPECT_EQ(root.steps_done, other.steps_done);
  EXPECT_GE(root.steps_done, 4);
  EXPECT_LT(root.steps_done, 5001);
  EXPECT_EQ(root.losses.size(), static_cast<std::size_t>(root.steps_done));
  EXPECT_EQ(root.traces[1].steps.size(), static_cast<std::size_t>(root.steps_done - 1));
}

/// Fails when it is asked for the second sample of rank 1.
class NoThirdSample : public testing::HashedBatches {
 public:
  using HashedBatches::HashedBatches;
  void tokens(std::int64_t sample, std::span<std::int32_t> out) const override {
    if (sample == 3) throw ConfigError("the data end here");
    HashedBatches::tokens(sample, out);
  }
};

TEST(Run, AProcessThatFailsTellsTheOthersWhy) {
  const engine::Setup setup = set_up(two_ranks());
  std::array<std::string, 2> said;
  launch::testing::run_job(2, [&](launch::Session& session, int rank) {
    try {
      (void)run(*backend::cpu::make_cpu_backend(), setup, NoThirdSample(53), {}, &session);
    } catch (const Error& error) {
      said[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  EXPECT_THAT(said[0], ::testing::AllOf(::testing::StartsWith("rank 1 ("), ::testing::EndsWith("the data end here")));
  EXPECT_EQ(said[1], "the data end here");
}

TEST(Run, OfThreadsTheFirstTellsOfProgressAndOfTheEnd) {
  const RunConfig c = two_ranks();
  std::mutex mutex;
  std::vector<std::int64_t> told;
  std::atomic<int> over = 0;
  RunHooks hooks;
  std::vector<double> means;
  hooks.meet_before_steps = true;
  hooks.progress = [&](std::int64_t done, const std::optional<StepLoss>& loss) {
    const std::lock_guard lock(mutex);
    told.push_back(done);
    if (loss) means.push_back(loss->mean);
  };
  hooks.steps_over = [&] { ++over; };
  const Measurement m = testing::run_tiny(c, hooks);
  EXPECT_THAT(told, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_FALSE(means.empty());
  for (const double mean : means) EXPECT_THAT(m.losses, ::testing::Contains(mean));
  EXPECT_EQ(over, 1);
  EXPECT_TRUE(m.clocks.empty());
}

TEST(Run, NothingIsBroughtHomeThatNobodyWants) {
  RunConfig c = two_ranks();
  const auto brought = [&](bool keep) {
    RunHooks hooks;
    hooks.keep_parameters = keep;
    return run(*backend::cpu::make_cpu_backend(), set_up(c), testing::HashedBatches(53), hooks);
  };
  EXPECT_TRUE(brought(false).parameters_digest);
  EXPECT_TRUE(brought(false).parameters.empty());
  c.train.params_digest = false;
  EXPECT_FALSE(brought(false).parameters_digest);
  EXPECT_FALSE(brought(true).parameters_digest);
  EXPECT_FALSE(brought(true).parameters.empty());
  c.train.params_digest = true;
  c.emulate.compute_tflops = 1000;  // nothing is computed
  bool told = false;
  RunHooks hooks;
  hooks.keep_parameters = true;
  hooks.progress = [&](std::int64_t, const std::optional<StepLoss>& loss) { told = told || loss.has_value(); };
  const Measurement m = run(*backend::cpu::make_cpu_backend(), set_up(c), testing::HashedBatches(53), hooks);
  EXPECT_FALSE(told);
  EXPECT_TRUE(m.losses.empty());
  EXPECT_TRUE(m.parameters.empty());
}

TEST(Run, WhatIsNotFiniteIsCounted) {
  RunConfig c = two_ranks();
  c.train.steps = 1;
  c.train.warmup = 0;
  RunHooks hooks;
  hooks.fill = [](int, std::int64_t, std::span<float> out) {
    std::ranges::fill(out, std::numeric_limits<float>::infinity());
  };
  const Measurement m = testing::run_tiny(c, hooks);
  EXPECT_EQ(m.parameters_not_finite, set_up(c).plan.shapes.parameter_count());
  EXPECT_FALSE(m.parameters_digest);
}

TEST(Run, AnInterruptAfterTheLastStepLeavesThemAllAndNoParameters) {
  const RunConfig c = two_ranks();
  launch::Abort now;
  RunHooks hooks;
  hooks.interrupt = &now;
  hooks.steps_over = [&] { now.set(std::make_exception_ptr(Interrupted())); };
  const Measurement m = testing::run_tiny(c, hooks);
  EXPECT_TRUE(m.interrupted);
  EXPECT_FALSE(m.parameters_digest);
  EXPECT_TRUE(m.parameters.empty());
  EXPECT_GE(m.steps_done, 4);  // rank 1 may be at the end of its last
  EXPECT_EQ(m.losses.size(), static_cast<std::size_t>(m.steps_done));
}

TEST(Run, OnlyMeasuredStepsCount) {
  RunConfig c = two_ranks();
  const auto bytes = [&](std::int64_t warmup, std::int64_t steps) {
    c.train.warmup = warmup;
    c.train.steps = steps;
    const Measurement m = testing::run_tiny(c);
    EXPECT_EQ(m.traces[1].steps.size(), static_cast<std::size_t>(steps));
    EXPECT_EQ(m.traces[1].records.front().step, warmup);
    EXPECT_EQ(m.losses.size(), static_cast<std::size_t>(warmup + steps));
    return m.wire_bytes[1][0];
  };
  EXPECT_GT(bytes(1, 1), 0);
  EXPECT_EQ(bytes(1, 3), 3 * bytes(1, 1));
  EXPECT_EQ(bytes(3, 2), 2 * bytes(1, 1));
}

TEST(Run, AnEmulatedLinkIsOfOneHost) {
  RunConfig c;
  const launch::ClockOffset here{.same_clock = true}, away{};
  EXPECT_NO_THROW(check_emulation(c, {here, away}));
  c.emulate.link_gb_per_s = 2.5;
  EXPECT_NO_THROW(check_emulation(c, {}));
  EXPECT_NO_THROW(check_emulation(c, {here, here}));
  try {
    check_emulation(c, {here, here, away, away});
    FAIL();
  } catch (const BackendError& error) {
    EXPECT_STREQ(
        error.what(),
        "emulate.link_gb_per_s = 2.5 is for ranks on one host, and rank 2 is on another; \"none\" uses the real "
        "network");
  }
}

}  // namespace
}  // namespace fsdpbench::engine
