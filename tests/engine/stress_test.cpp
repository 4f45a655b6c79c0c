// Random policies under random delays with poisoned memory: still one digest, the memory the schedule said to the byte,
// and the bytes on the wire that the formula says.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "plan/communication.h"
#include "schedule/memory_walk.h"
#include "schedule/policy.h"
#include "schedule/prefetcher.h"
#include "support/communication_formula.h"
#include "support/random_config.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

using ::fsdpbench::testing::pick;

void randomize(RunConfig& c, std::mt19937& random) {
  Fsdp& f = c.fsdp;
  f.strategy = pick(random, {Strategy::no_shard, Strategy::shard_grad_op, Strategy::full_shard, Strategy::full_shard});
  f.layout = pick(random, {Layout::flat, Layout::per_param});
  testing::reorder(random, f);
  f.separate_reduce_scatter_comm = pick(random, {false, true});
  f.activation_checkpointing = pick(random, {false, true});
  f.shard_threshold = pick<std::int64_t>(random, {0, 30, 700});
  if (pick(random, {false, true})) testing::other_engines(random, f);
  f.cpu_offload = pick(random, {CpuOffload::none, CpuOffload::none, CpuOffload::optimizer, CpuOffload::all});
  c.inject.jitter_us = 300;
  c.inject.poison_freed_memory = true;
}

void expect_one_digest_of_random_policies(RunConfig base, int cases, std::mt19937& random) {
  base.train.warmup = 2;
  base.train.steps = 2;
  const std::string expected = testing::run_tiny(base).parameters_digest.value();
  for (int i = 0; i < cases; ++i) {
    RunConfig c = base;
    randomize(c, random);
    c = testing::settled(c);
    const engine::Setup setup = set_up(c);
    const Measurement result = testing::run_tiny(c);
    EXPECT_EQ(result.parameters_digest.value(), expected) << "case " << i;

    const PoolStatistics expected_memory = schedule::memory_walk(setup.schedules, 4);
    for (const PoolStatistics& memory : result.memory) {
      EXPECT_EQ(memory.peak_occupied_total, expected_memory.peak_occupied_total) << "case " << i;
      EXPECT_EQ(memory.peak_occupied, expected_memory.peak_occupied) << "case " << i;
      EXPECT_EQ(memory.reserved, expected_memory.reserved) << "case " << i;
    }
    const plan::CommunicationVolume volume =
        plan::communication_volume(setup.plan, c, schedule::regathers(setup.policy, setup.plan));
    for (const backend::WireBytes& bytes : result.wire_bytes) {
      EXPECT_EQ(bytes[0], std::llround(2 * volume.all_gather)) << "case " << i;
      EXPECT_EQ(bytes[1], std::llround(2 * volume.reduce_scatter)) << "case " << i;
      EXPECT_NEAR(static_cast<double>(bytes[2]), 2 * volume.all_reduce, 40) << "case " << i;
    }
  }
}

TEST(Stress, RandomPoliciesUnderRandomDelays) {
  std::mt19937 random(99);
  expect_one_digest_of_random_policies(testing::tiny_decoder(), FSDPBENCH_STRESS_POLICIES, random);
}

TEST(Stress, RandomPoliciesOnRanksThatSplitLayersAndTokens) {
  std::mt19937 random(1705);
  for (const Mesh& mesh : {Mesh{4, 0, 0, 2}, Mesh{4, 0, 0, 2, true}, Mesh{8, 0, 0, 4, true}}) {
    RunConfig base = testing::splittable_decoder();
    base.mesh = mesh;
    expect_one_digest_of_random_policies(base, FSDPBENCH_STRESS_POLICIES / 3, random);
  }
}

}  // namespace
}  // namespace fsdpbench::engine
