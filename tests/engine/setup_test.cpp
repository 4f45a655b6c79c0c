#include "engine/setup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "engine/executor.h"
#include "engine/masters.h"
#include "schedule/memory_walk.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

/// Bytes of a rank's pool; absent if they are refused as too many.
std::optional<std::int64_t> pool_bytes(const config::RunConfig& config) {
  try {
    return set_up(testing::settled(config)).pool_bytes;
  } catch (const ResourceError&) {
    return std::nullopt;
  }
}

/// Doubles one number of `config` up to its bound: needs grow with it, and once they are too much they stay so.
/// Returns how often they were too much.
template <class Change>
int expect_to_grow(int doublings, const Change& change) {
  std::optional<std::int64_t> before = 0;
  int refused = 0;
  for (int i = 0; i <= doublings; ++i) {
    config::RunConfig config;
    config.mesh.ranks = 2;
    config.model.layers = 2;
    config.model.heads = config.model.kv_heads = 64;
    config.model.width = config.model.ffn_width = 1 << 20;
    config.train.steps = config.train.warmup = 1;
    change(config, std::int64_t{1} << i);
    const std::optional<std::int64_t> now = pool_bytes(config);
    EXPECT_TRUE(before || !now) << "doubled " << i << " times";
    EXPECT_GE(now.value_or(INT64_MAX), before.value_or(INT64_MAX)) << "doubled " << i << " times";
    refused += now ? 0 : 1;
    before = now;
  }
  return refused;
}

TEST(Setup, MemoryNeverShrinksAsAConfigurationGrows) {
  EXPECT_GE(expect_to_grow(24,
                           [](config::RunConfig& c, std::int64_t n) {
                             c.train.seq_len = n;
                             c.train.batch_per_rank = 1 << 20;
                           }),
            4);
  EXPECT_GE(expect_to_grow(20,
                           [](config::RunConfig& c, std::int64_t n) {
                             c.train.batch_per_rank = n;
                             c.train.seq_len = 1 << 24;
                             c.fsdp.activation_checkpointing = true;
                           }),
            4);
  EXPECT_GE(expect_to_grow(24,
                           [](config::RunConfig& c, std::int64_t n) {
                             c.model.vocab = std::max<std::int64_t>(n, 256);
                             c.train.seq_len = 1 << 24;
                             c.train.batch_per_rank = 1 << 15;
                           }),
            1);
  // Each layer fits; all together do not.
  EXPECT_GE(expect_to_grow(9,
                           [](config::RunConfig& c, std::int64_t n) {
                             c.model.layers = n;
                             c.train.seq_len = 1 << 24;
                             c.train.batch_per_rank = 1 << 9;
                           }),
            1);
}

TEST(Setup, TheLargestModelFits) {
  config::RunConfig c;
  c.model.layers = 64;
  c.model.heads = c.model.kv_heads = 4096;
  c.model.width = 1 << 20;
  c.model.ffn_width = 1 << 22;
  c.model.vocab = 1 << 24;
  c.mesh.ranks = 1;
  c.train.steps = c.train.warmup = c.train.seq_len = c.train.batch_per_rank = 1;
  EXPECT_GT(pool_bytes(c).value_or(0), std::int64_t{4} << 50);
}

TEST(Setup, MemoryIsThatOfTheStepsAndOfBringingParametersHome) {
  config::RunConfig c = testing::splittable_decoder();
  c.mesh.tensor = 2;
  for (const bool computes : {true, false}) {
    if (!computes) c.emulate.compute_tflops = 1;
    const engine::Setup s = set_up(testing::settled(c));
    EXPECT_EQ(s.pool_bytes, s.memory.reserved + Masters::collection_bytes(s.plan));
    EXPECT_EQ(s.host_bytes, Executor::recording_bytes(s.schedules, c.train.steps) +
                                (computes ? Masters::staging_bytes(s.plan) + Masters::whole_bytes(s.plan) : 0));
    EXPECT_GT(Masters::whole_bytes(s.plan), 0);
    EXPECT_EQ(s.memory, schedule::memory_walk(s.schedules, c.train.warmup + c.train.steps));
    EXPECT_FALSE(s.uses_offload_lanes());
  }
  c.fsdp.cpu_offload = config::CpuOffload::all;
  EXPECT_TRUE(set_up(testing::settled(c)).uses_offload_lanes());
}

std::string refusal_of(const std::string& name, const char* value) {
  try {
    check_environment([&](const std::string& asked) { return asked == name ? value : nullptr; });
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(Setup, VariablesThatAreNoneAreRefusedBeforeAnythingBegins) {
  for (const char* good : {"", "0", "0.5", "1800", "1e7"}) EXPECT_EQ(refusal_of("FSDPBENCH_STALL_S", good), "") << good;
  for (const char* bad : {"-1", "10000001", "x", "5x", "nan"}) {
    EXPECT_EQ(refusal_of("FSDPBENCH_STALL_S", bad),
              std::string("FSDPBENCH_STALL_S is '") + bad + "'; expected seconds, from 0 (for ever) to 1e+07.");
  }
  EXPECT_EQ(
      refusal_of("FSDPBENCH_SHARE_MEMORY", "2"),
      "FSDPBENCH_SHARE_MEMORY is '2'; expected 1 (ranks of one host read each other's memory) or 0 (they exchange "
      "messages).");
}

TEST(ShareMemory, IsOnUnlessItIsTurnedOff) {
  const auto shares = [](const char* value) { return share_memory([value](const std::string&) { return value; }); };
  EXPECT_TRUE(shares(nullptr));
  EXPECT_TRUE(shares(""));
  EXPECT_TRUE(shares("1"));
  EXPECT_FALSE(shares("0"));
  EXPECT_THROW(shares("yes"), ConfigError);
}

}  // namespace
}  // namespace fsdpbench::engine
