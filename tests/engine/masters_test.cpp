#include "engine/masters.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using config::Layout;
using config::RunConfig;
using config::Strategy;

/// Four layers of which each, in fp32, is larger than what may be staged; a step leaves the parameters as they are.
RunConfig wide_mlp(std::int64_t ranks) {
  RunConfig c;
  c.model.kind = config::ModelKind::mlp;
  c.model.layers = 4;
  c.model.width = c.model.in_features = c.model.out_features = 1101;
  c.mesh.ranks = ranks;
  c.train.steps = 1;
  c.train.warmup = 0;
  c.train.batch_per_rank = 1;
  c.train.optimizer = config::Optimizer::sgd;
  c.train.learning_rate = 0;
  return c;
}

float value(int parameter, std::int64_t element) {
  return (static_cast<float>((element * 7 + parameter * 13) % 1009) - 500.5F) * 1e-5F;
}

void fill(int parameter, std::int64_t begin, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = value(parameter, begin + static_cast<std::int64_t>(i));
}

/// All parameters in one piece of memory, hashed at once.
std::string digest_of_all(const plan::ModelShapes& shapes) {
  std::vector<float> all;
  for (std::size_t p = 0; p < shapes.parameters.size(); ++p) {
    for (std::int64_t i = 0; i < shapes.parameters[p].numel(); ++i) all.push_back(value(static_cast<int>(p), i));
  }
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size() * sizeof(float));
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

TEST(Masters, WhatIsNotFiniteHasNoDigest) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    ParametersDigest digest;
    digest.add(std::vector{1.0F, 2.0F});
    EXPECT_TRUE(digest.text());
    digest.add(std::vector{bad, 3.0F, bad});
    EXPECT_EQ(digest.not_finite(), 2);
    EXPECT_FALSE(digest.text());
  }
}

TEST(Masters, ComeBackWholeAndInOrderFromEverySharding) {
  std::vector<RunConfig> cases(6, wide_mlp(3));
  cases[0].mesh.ranks = 1;
  cases[0].fsdp.strategy = Strategy::no_shard;
  cases[1].fsdp.layout = Layout::flat;
  cases[2].fsdp.layout = Layout::per_param;
  cases[3].fsdp.layout = Layout::per_param;
  cases[3].fsdp.shard_threshold = 2000;  // the biases
  cases[4].fsdp.layout = Layout::flat;
  cases[4].mesh.ranks = 4;
  cases[4].mesh.shard = 2;
  cases[4].fsdp.strategy = Strategy::hybrid_shard;
  cases[5].mesh.ranks = 2;
  cases[5].fsdp.strategy = Strategy::no_shard;
  const std::string expected = digest_of_all(set_up(testing::settled(cases[0])).plan.shapes);
  RunHooks hooks;
  hooks.fill = fill;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(testing::run_tiny(cases[i], hooks).parameters_digest.value(), expected) << "case " << i;
  }
}

TEST(Masters, SmallOnesAreGatheredTogetherAndComeInOrderToo) {
  RunConfig c = testing::tiny_decoder();
  c.train.optimizer = config::Optimizer::sgd;
  c.train.learning_rate = 0;
  RunHooks hooks;
  hooks.fill = fill;
  const std::string expected = digest_of_all(set_up(testing::settled(c)).plan.shapes);
  for (const Layout layout : {Layout::flat, Layout::per_param}) {
    c.fsdp.layout = layout;
    EXPECT_EQ(testing::run_tiny(c, hooks).parameters_digest.value(), expected) << static_cast<int>(layout);
  }
}

TEST(Masters, OnTheHostTakeNoMoreThanAPieceARank) {
  const RunConfig c = wide_mlp(2);
  std::mutex mutex;
  std::map<const float*, std::size_t> filled;  // where fill() wrote, and how far
  RunHooks hooks;
  hooks.fill = [&](int parameter, std::int64_t begin, std::span<float> out) {
    fill(parameter, begin, out);
    const std::lock_guard lock(mutex);
    std::size_t& size = filled[out.data()];
    size = std::max(size, out.size());
  };
  testing::run_tiny(c, hooks);
  std::size_t bytes = 0;
  const float* end = nullptr;  // of what was counted
  for (const auto& [begin, size] : filled) {
    const float* first = std::max(begin, end);
    const float* last = begin + size;
    if (first < last) bytes += static_cast<std::size_t>(last - first) * sizeof(float);
    end = std::max(end, last);
  }
  const plan::Plan plan = set_up(testing::settled(c)).plan;
  ASSERT_GT(plan.shapes.parameter_count() * 4, 4 * Masters::kPieceBytes);
  EXPECT_LE(bytes, static_cast<std::size_t>(2 * Masters::kPieceBytes));
}

TEST(Masters, AFillThatFailsEndsTheRun) {
  RunHooks hooks;
  hooks.fill = [](int parameter, std::int64_t, std::span<float>) {
    if (parameter == 2) throw ConfigError("no such parameter in the checkpoint");
  };
  EXPECT_THROW(testing::run_tiny(wide_mlp(2), hooks), ConfigError);
}

TEST(Masters, HostMemoryOfARunIsSaidAndDoesNotGrowWithTheModel) {
  RunConfig c = testing::tiny_decoder();
  c.mesh.ranks = 8;
  c.model.layers = 32;
  c.model.width = 4096;
  c.model.heads = 32;
  c.model.kv_heads = 8;
  c.model.ffn_width = 14336;
  c.model.vocab = 128256;
  c = testing::settled(c);
  const engine::Setup s = set_up(c);
  EXPECT_GT(s.plan.shapes.parameter_count(), std::int64_t{8'000'000'000});
  EXPECT_EQ(s.pool_bytes - s.memory.reserved, Masters::kPieceBytes);
  EXPECT_GE(s.host_bytes, Masters::kPieceBytes);
  EXPECT_LT(s.host_bytes, 2 * Masters::kPieceBytes);

  c.train.steps *= 10;  // a longer trace
  EXPECT_GT(set_up(c).host_bytes, s.host_bytes);
  c.train.steps /= 10;
  c.emulate.compute_tflops = 1;  // no parameters
  EXPECT_EQ(set_up(c).host_bytes, s.host_bytes - Masters::kPieceBytes);
}

}  // namespace
}  // namespace fsdpbench::engine
