// Injected delays: which op waits how long, and that the seed decides it.
#include "engine/trouble.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>

#include "backend/cpu/lane_worker.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

/// Notes the delays that are enqueued; runs nothing else.
class DelayNotes : public backend::Device {
 public:
  void enqueue(Lane lane, const char*, Task task, backend::Stamp*) override {
    backend::cpu::EmulatedKernels kernels(1.0);
    task(kernels);
    delays.emplace_back(lane, kernels.take_nanoseconds());
  }
  void record(Event, Lane) override {}
  void wait(Lane, Event) override {}
  void host_wait(Event) override {}
  void synchronize() override {}
  std::byte* allocate(std::int64_t, MemoryCategory, Lane) override { throw std::logic_error("no memory here"); }
  void free(std::byte*, Lane) override {}
  const PoolStatistics& memory() const override { return statistics_; }
  void reset_memory_peaks() override {}
  bool computes() const override { return false; }

  std::vector<std::pair<Lane, std::int64_t>> delays;

 private:
  PoolStatistics statistics_;
};

/// Delays of 50 ops on each of two lanes.
std::vector<std::pair<Lane, std::int64_t>> delays_of(const config::Inject& inject, std::uint64_t seed, int rank) {
  Trouble trouble(inject, seed, rank);
  DelayNotes device;
  for (int i = 0; i < 50; ++i) {
    trouble.before_op(device, Lane::compute);
    trouble.before_op(device, Lane::all_gather);
  }
  return device.delays;
}

TEST(Trouble, NoneByDefault) { EXPECT_TRUE(delays_of({}, 1, 0).empty()); }

TEST(Trouble, SeedAndRankDecideTheJitter) {
  config::Inject inject;
  inject.jitter_us = 20;
  const auto delays = delays_of(inject, 1, 0);
  EXPECT_GT(delays.size(), 90U);  // a delay of nothing is not enqueued
  for (const auto& [lane, nanoseconds] : delays) {
    EXPECT_GT(nanoseconds, 0);
    EXPECT_LE(nanoseconds, 20000);
  }
  EXPECT_EQ(delays_of(inject, 1, 0), delays);
  std::mt19937_64 random(2 * 1000003 + 3);
  for (const auto& [lane, nanoseconds] : delays_of(inject, 2, 3)) {
    EXPECT_EQ(nanoseconds, std::uniform_int_distribution<std::int64_t>(0, 20000)(random));
  }
  EXPECT_NE(delays_of(inject, 2, 0), delays);
  EXPECT_NE(delays_of(inject, 1, 3), delays);
}

TEST(Trouble, ADelayIsForItsLaneAndRank) {
  config::Inject inject;
  inject.delay_lane = "all_gather";
  inject.delay_us = 7;
  inject.delay_rank = 2;
  EXPECT_TRUE(delays_of(inject, 1, 0).empty());
  const auto delays = delays_of(inject, 1, 2);
  EXPECT_EQ(delays.size(), 50U);
  for (const auto& delay : delays) EXPECT_EQ(delay, (std::pair<Lane, std::int64_t>{Lane::all_gather, 7000}));
  inject.delay_rank = 0;
  EXPECT_EQ(delays_of(inject, 1, 0), delays);
  EXPECT_TRUE(delays_of(inject, 1, 1).empty());
  inject.delay_rank = -1;
  EXPECT_EQ(delays_of(inject, 1, 5), delays);
  inject.jitter_us = 1;  // on top
  for (const auto& [lane, nanoseconds] : delays_of(inject, 1, 5)) {
    EXPECT_GE(nanoseconds, lane == Lane::all_gather ? 7000 : 0);
    EXPECT_LE(nanoseconds, lane == Lane::all_gather ? 8000 : 1000);
  }
}

TEST(Trouble, AGroupThatThePlanLacksHasNoCommunicator) {
  const engine::Setup s = set_up(testing::settled(testing::tiny_decoder()));
  backend::cpu::make_cpu_backend()->run(backend_options(s, nullptr), [&](backend::RankContext& context) {
    Communicators communicators(context, s.plan.groups);
    EXPECT_EQ(communicators.of(plan::Group::shard).size(), 4);
    EXPECT_THROW(communicators.of(plan::Group::expert), std::logic_error);
  });
}

}  // namespace
}  // namespace fsdpbench::engine
