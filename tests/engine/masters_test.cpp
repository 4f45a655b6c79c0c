#include "engine/masters.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>
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

/// Linear layers of 12 x 10 and 10 x 12, a unit each.
RunConfig narrow_mlp(std::int64_t ranks) {
  RunConfig c = wide_mlp(ranks);
  c.model.layers = 2;
  c.model.width = 12;
  c.model.in_features = c.model.out_features = 10;
  c.train.optimizer = config::Optimizer::adamw;
  return c;
}

/// Calls body(masters, rank, buffers, communicators) on each rank of a run that takes no step; memory is full of 0x11.
void with_masters(const RunConfig& asked,
                  const std::function<void(Masters&, int, const BufferTable&, Communicators&)>& body) {
  const Setup setup = set_up(testing::settled(asked));
  backend::cpu::make_cpu_backend()->run(backend_options(setup, nullptr), [&](backend::RankContext& context) {
    Communicators communicators(context, setup.plan.groups);
    const BufferTable buffers(context.device, setup.schedules.steps.front());
    context.device.enqueue(
        Lane::compute, "poison",
        [&](backend::Kernels& kernels) {
          for (const schedule::Buffer& buffer : setup.schedules.steps.front().buffers) {
            const std::span<std::byte> memory = buffers.persistent(buffer.role, buffer.unit);
            const std::vector<std::byte> poison(memory.size(), std::byte{0x11});
            kernels.upload(poison.data(), memory.data(), std::ssize(memory));
          }
        },
        nullptr);
    context.device.synchronize();
    Masters masters(context, setup.plan, buffers, communicators);
    body(masters, context.rank, buffers, communicators);
  });
}

TEST(Masters, NeedAsMuchAsTheLargestUnitAndAPieceAtMost) {
  struct Sizes {
    std::int64_t staging, collection, whole;
    bool operator==(const Sizes&) const = default;
  };
  const auto sizes = [](const RunConfig& c) {
    const plan::Plan plan = set_up(testing::settled(c)).plan;
    return Sizes{Masters::staging_bytes(plan), Masters::collection_bytes(plan), Masters::whole_bytes(plan)};
  };
  EXPECT_EQ(sizes(narrow_mlp(1)), (Sizes{(12 * 10 + 12) * 4, 0, 0}));
  EXPECT_EQ(sizes(narrow_mlp(2)), (Sizes{(6 * 10 + 6) * 4, 1024, 0}));  // 2 x 66 x 4 = 528 bytes
  EXPECT_EQ(sizes(narrow_mlp(3)), (Sizes{(4 * 12 + 4) * 4, 1024, 0}));  // 3 x 52 x 4 = 624 bytes
  EXPECT_EQ(sizes(wide_mlp(1)), (Sizes{Masters::kPieceBytes, 0, 0}));
  EXPECT_EQ(sizes(wide_mlp(2)), (Sizes{551 * 1102 * 4, Masters::kPieceBytes, 0}));
  RunConfig c = narrow_mlp(2);
  c.fsdp.shard_threshold = 125;                        // weights are of 120 elements
  EXPECT_EQ(sizes(c), (Sizes{(128 + 12) * 4, 0, 0}));  // each begins at 128 bytes
  c = testing::splittable_decoder();
  c.mesh.tensor = 2;
  EXPECT_EQ(sizes(c).whole, 52 * 24 * 4);  // the embedding
  std::int64_t gathered = 0;
  for (const plan::Unit& unit : set_up(testing::settled(c)).plan.units) {
    gathered = std::max(gathered, unit.layout.gathered_numel());
  }
  EXPECT_EQ(sizes(c).collection, LanePool::rounded(gathered * 4) + LanePool::rounded(52 * 24 * 4));
}

/// (parameter, first element, elements) of each call of fill(), sorted.
TEST(Masters, AreFilledPieceByPieceByAllThreads) {
  using Calls = std::vector<std::array<std::int64_t, 3>>;
  RunConfig c = wide_mlp(1);
  c.model.layers = 1;
  constexpr std::int64_t kWeight = 1101 * 1101, kPiece = 1 << 20, kPart = 1 << 15;
  const auto calls = [&](int threads) {
    Calls all;
    std::mutex mutex;
    with_masters(c, [&](Masters& masters, int, const BufferTable&, Communicators&) {
      masters.initialize(
          [&](int parameter, std::int64_t begin, std::span<float> out) {
            fill(parameter, begin, out);
            const std::lock_guard lock(mutex);
            all.push_back({parameter, begin, std::ssize(out)});
          },
          threads);
    });
    std::ranges::sort(all);
    return all;
  };
  EXPECT_EQ(calls(1), (Calls{{0, 0, kPiece}, {0, kPiece, kWeight - kPiece}, {1, 0, 1101}}));
  EXPECT_EQ(calls(2), (Calls{{0, 0, kPiece / 2},
                             {0, kPiece / 2, kPiece / 2},
                             {0, kPiece, 82363},
                             {0, kPiece + 82363, kWeight - kPiece - 82363},
                             {1, 0, 1101}}));
  Calls many;  // a thread has 32768 elements at least
  for (std::int64_t begin = 0; begin < kWeight; begin += kPart)
    many.push_back({0, begin, std::min(kPart, kWeight - begin)});
  many.push_back({1, 0, 215});
  many.push_back({1, 215, 886});
  EXPECT_EQ(calls(100), many);
}

TEST(Masters, StateComesAndGoesInTheOrderOfRolesWithPaddingAndMomentsAtZero) {
  // Rank 2 of 3: rows 8 to 11 of 12, then 8 and 9 of 10 and two rows of padding.
  std::vector<float> expected;
  for (int i = 0; i < 40; ++i) expected.push_back(value(0, 80 + i));
  for (int i = 0; i < 4; ++i) expected.push_back(value(1, 8 + i));
  for (int i = 0; i < 48; ++i) expected.push_back(i < 24 ? value(2, 96 + i) : 0.0F);
  for (int i = 0; i < 4; ++i) expected.push_back(i < 2 ? value(3, 8 + i) : 0.0F);
  expected.resize(3 * expected.size());
  with_masters(narrow_mlp(3), [&](Masters& masters, int rank, const BufferTable&, Communicators&) {
    masters.initialize(fill, 1);
    std::vector<float> state;
    const auto take = [&](std::span<const float> piece) { state.insert(state.end(), piece.begin(), piece.end()); };
    masters.download(take);
    EXPECT_EQ(state == expected, rank == 2);
    float next = 0;
    masters.upload([&](std::span<float> piece) {
      for (float& x : piece) x = next++;
    });
    state.clear();
    masters.download(take);
    ASSERT_EQ(state.size(), 3U * 96U);
    for (std::size_t i = 0; i < state.size(); ++i) EXPECT_EQ(state[i], static_cast<float>(i));
  });
}

TEST(Masters, AreBroughtHomeInOrderWithNoMoreThanTheirBytes) {
  struct Case {
    RunConfig config;
    std::int64_t gathered, broadcast;  // bytes that rank 0 sends
  };
  RunConfig whole = wide_mlp(2);  // the window of the first bias holds the second, of another unit of memory by then
  whole.model.layers = 2;
  whole.fsdp.layout = Layout::flat;
  whole.fsdp.wrap.mode = config::Wrap::Mode::model;
  RunConfig replicas = narrow_mlp(4);
  replicas.fsdp.strategy = Strategy::hybrid_shard;
  replicas.mesh.shard = 2;
  RunConfig biases = narrow_mlp(2);
  biases.fsdp.shard_threshold = 100;
  for (const Case& c : {Case{narrow_mlp(1), 0, 0},
                        {narrow_mlp(2), (66 + 65) * 4, 0},
                        {narrow_mlp(3), (44 + 52) * 4 * 2, 0},
                        {replicas, (66 + 65) * 4, 0},
                        {biases, (60 + 60) * 4, 0},
                        {wide_mlp(2), 4 * 551 * 4, 4 * 1101 * 1101 * 4 / 2},
                        {whole, (1103 + 1102) * 4, 2 * 1101 * 1101 * 4 / 2}}) {
    const plan::Plan plan = set_up(testing::settled(c.config)).plan;
    with_masters(c.config, [&](Masters& masters, int rank, const BufferTable&, Communicators& communicators) {
      masters.initialize(fill, 1);
      const backend::WireBytes before = communicators.wire_bytes();
      int parameter = 0;
      std::int64_t next = 0;
      masters.collect([&](int p, std::int64_t begin, std::span<const float> values) {
        EXPECT_EQ(rank, 0);
        if (p != parameter) {
          EXPECT_EQ(next, plan.shapes.parameters[static_cast<std::size_t>(parameter)].numel());
          EXPECT_EQ(p, parameter + 1);
          parameter = p;
          next = 0;
        }
        EXPECT_EQ(begin, next);
        next += std::ssize(values);
        for (std::size_t i = 0; i < values.size(); ++i) {
          ASSERT_EQ(values[i], value(p, begin + static_cast<std::int64_t>(i))) << p;
        }
      });
      if (rank != 0) return;
      EXPECT_EQ(parameter + 1, static_cast<int>(plan.shapes.parameters.size()));
      const auto sent = [&](backend::Collective kind) {
        const auto index = static_cast<std::size_t>(kind);
        return communicators.wire_bytes()[index] - before[index];
      };
      EXPECT_EQ(sent(backend::Collective::all_gather), c.gathered) << c.config.mesh.ranks;
      EXPECT_EQ(sent(backend::Collective::broadcast), c.broadcast) << c.config.mesh.ranks;
    });
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
  with_masters(wide_mlp(1), [&](Masters& masters, int, const BufferTable&, Communicators&) {
    const std::thread::id own = std::this_thread::get_id();
    const auto others_fail = [own](int, std::int64_t, std::span<float>) {
      if (std::this_thread::get_id() != own) throw ConfigError("no such part in the checkpoint");
    };
    EXPECT_THROW(masters.initialize(others_fail, 4), ConfigError);
  });
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
