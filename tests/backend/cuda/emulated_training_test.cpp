// Whole trainings on imagined GPUs: what the CPU backend computes, in the memory that the schedule says.

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backend/cuda/emulated_support.h"
#include "backend/cuda/fake/cublaslt/fake_cublaslt.h"
#include "backend/cuda/fake/fake_stream.h"
#include "backend/cuda/training_checks.h"
#include "base/bytes.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

Measurement run_cuda(const RunConfig& config) {
  const backend::FakeGpus gpus(8);
  const testing::HashedBatches batches(static_cast<std::int32_t>(config.model.vocab));
  RunHooks hooks;
  hooks.keep_parameters = true;
  return run(*backend::make_cuda(), set_up(config), batches, hooks);
}

class EmulatedCudaTraining : public ::testing::TestWithParam<int> {};

TEST_P(EmulatedCudaTraining, LearnsWhatTheCpuBackendLearns) {
  const RunConfig config = tiny_training(GetParam());
  const Measurement cuda = run_cuda(config);
  expect_same_training(cuda, testing::run_tiny(config), 1e-5);
  expect_memory_of_the_schedule(config, cuda);
  expect_whole_trace(config, cuda);
}

/// Fact `name` of the first device of a run.
std::string fact(const Measurement& m, const std::string& name) {
  for (const auto& [known, value] : m.devices.front()) {
    if (known == name) return value;
  }
  return "";
}

TEST_P(EmulatedCudaTraining, MemoryIsOneRegion) {
  const RunConfig config = tiny_training(GetParam());
  const Measurement fixed = run_cuda(config);
  const std::string bytes = format_bytes(set_up(config).pool_bytes);
  EXPECT_EQ(fact(fixed, "pool reserved at most"), bytes + ", one region, all of it before the first op");
}

TEST_P(EmulatedCudaTraining, AGpuIsWatchedUnlessItShallNotBe) {
  RunConfig config = tiny_training(GetParam());
  config.device.monitor = false;
  const Measurement unwatched = run_cuda(config);
  for (const auto& gpu : unwatched.gpus) {
    ASSERT_TRUE(gpu);
    EXPECT_EQ(gpu->unknown_because, "device.monitor is false.");
  }
  config.device.monitor = true;
  EXPECT_NE(run_cuda(config).gpus.front()->unknown_because, "device.monitor is false.");
}

TEST_P(EmulatedCudaTraining, InBf16Too) {
  RunConfig config = tiny_training(GetParam());
  config.fsdp.param_dtype = DType::bf16;
  config.fsdp.reduce_dtype = DType::bf16;
  const Measurement cuda = run_cuda(config);
  expect_same_training(cuda, testing::run_tiny(config), 1e-2);
  expect_memory_of_the_schedule(config, cuda);
}

TEST(EmulatedCudaTensor, RanksThatSplitLayersAndTokensLearnWhatTheCpusDo) {
  for (const bool tokens_too : {false, true}) {
    RunConfig config = tiny_training(4);
    config.model.ffn_width = 36;
    config.model.vocab = 52;
    config.mesh.tensor = config.mesh.shard = 2;
    config.mesh.sequence_parallel = tokens_too;
    const Measurement cuda = run_cuda(config);
    expect_same_training(cuda, testing::run_tiny(config), 1e-5);
    expect_memory_of_the_schedule(config, cuda);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, EmulatedCudaTraining, ::testing::Values(1, 4),
                         [](const auto& ranks) { return std::to_string(ranks.param); });

TEST(EmulatedCudaBits, AreTheSameAgainAndHaveADigestIfTheyShall) {
  RunConfig config = tiny_training(2);
  EXPECT_FALSE(run_cuda(config).parameters_digest) << "as PyTorch, which promises nothing";
  config.device.deterministic = true;
  const Measurement first = run_cuda(config);
  ASSERT_TRUE(first.parameters_digest);
  EXPECT_EQ(run_cuda(config).parameters_digest, first.parameters_digest);
}

/// Launches of one step of one rank, by name.
std::map<std::string, int> launches_of(const RunConfig& config) {
  std::mutex mutex;
  std::map<std::string, int> launches;
  fake::lt_reset();
  const backend::FakeGpus gpus(1);
  fake::observe([&](const fake::FinishedWork& work) {
    const std::lock_guard lock(mutex);
    if (work.label.kind == fake::WorkKind::kernel) ++launches[work.label.name];
  });
  const testing::HashedBatches batches(static_cast<std::int32_t>(config.model.vocab));
  run(*backend::make_cuda(), set_up(config), batches);
  fake::observe({});
  return launches;
}

TEST(EmulatedCudaLaunches, ResidualsAreAddedByProductsQueriesTurnWithKeysAndNormsAreNotMadeAgain) {
  RunConfig config = tiny_training(1);
  config.train.warmup = 0;
  config.train.steps = 1;
  std::map<std::string, int> launches = launches_of(config);
  EXPECT_EQ(launches["add"], 0);
  EXPECT_EQ(launches["rotary"], 2 * config.model.layers) << "a block's forward and backward";
  EXPECT_EQ(launches["rms_norm"], 2 * config.model.layers + 1) << "a forward's; their backward gives them again";
  EXPECT_EQ(launches["rms_norm_backward"], 2 * (2 * config.model.layers + 1)) << "with sums of weights' gradients";
}

/// Launches of two bf16 steps on one rank.
std::map<std::string, int> launches_in_bf16(const std::function<void(RunConfig&)>& change) {
  RunConfig config = tiny_training(1);
  config.fsdp.param_dtype = DType::bf16;
  config.fsdp.layout = Layout::flat;
  config.train.warmup = 0;
  config.train.steps = 2;
  change(config);
  return launches_of(config);
}

// A cast for each unit and step, or none: an update rounds what it has in its registers. Gradients are cast in no case:
// it reads them in bf16, as backward wrote them.
TEST(EmulatedCudaLaunches, UpdatesThatRoundShardsSpareTheCastsAndReadGradientsOfEitherDtype) {
  std::map<std::string, int> without = launches_in_bf16([](RunConfig&) {});
  std::map<std::string, int> rounding = launches_in_bf16([](RunConfig& c) { c.fsdp.cast_in_optimizer = true; });
  std::map<std::string, int> exact = launches_in_bf16([](RunConfig& c) { c.fsdp.fp32_gradients = true; });
  const auto units = static_cast<int>(tiny_training(1).model.layers) + 1;
  EXPECT_EQ(without["cast"] - rounding["cast"], 2 * units - units) << "those of two steps, but for the first copies";
  EXPECT_EQ(exact["cast"], without["cast"]);
  EXPECT_EQ(without["cast"], 2 * units) << "parameters'";
  EXPECT_EQ(rounding["adamw"], without["adamw"]);
  EXPECT_GT(rounding["adamw"], 0);
}

// 37 words are as good as 40: rows of logits begin where tensor cores read them at once.
TEST(EmulatedCudaLaunches, AnOddVocabularyMakesNoProductNarrow) {
  RunConfig config = tiny_training(1);
  config.fsdp.param_dtype = DType::bf16;
  config.train.warmup = 0;
  config.train.steps = 1;
  const auto narrow = [&](std::int64_t vocab) {
    config.model.vocab = vocab;
    launches_of(config);
    return fake::lt_counts().narrow;
  };
  EXPECT_EQ(narrow(37), narrow(40));
}

struct Policy {
  const char* name;
  int ranks;
  std::function<void(RunConfig&)> change;
};

TEST(EmulatedCudaPolicies, LearnTheSameInTheMemoryOfTheirSchedules) {
  const std::vector<Policy> policies{
      {"shard_grad_op, flat", 2,
       [](RunConfig& c) {
         c.fsdp.strategy = Strategy::shard_grad_op;
         c.fsdp.layout = Layout::flat;
       }},
      {"no_shard", 2,
       [](RunConfig& c) {
         c.fsdp.strategy = Strategy::no_shard;
         c.mesh.shard = 1;
         c.mesh.replicate = 2;
       }},
      {"hybrid", 4,
       [](RunConfig& c) {
         c.fsdp.strategy = Strategy::hybrid_shard;
         c.mesh.shard = c.mesh.replicate = 2;
       }},
      {"fsdp1 queue, separate communicator, no forward prefetch", 2,
       [](RunConfig& c) {
         c.fsdp.all_gather_limit = {AllGatherLimit::Mode::fsdp1_queue, 2, 0};
         c.fsdp.separate_reduce_scatter_comm = true;
         c.fsdp.forward_prefetch.mode = Prefetch::Mode::none;
       }},
      {"checkpointing, explicit prefetch, reshard to 2", 4,
       [](RunConfig& c) {
         c.fsdp.activation_checkpointing = true;
         c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 2};
         c.fsdp.reshard_after_forward = {ReshardAfterForward::Mode::group, 2};
       }},
      {"bf16, gradients in fp32", 1,
       [](RunConfig& c) {
         c.fsdp.param_dtype = DType::bf16;
         c.fsdp.fp32_gradients = true;
       }},
      {"registered memory", 2, [](RunConfig& c) { c.nccl.register_buffers = NcclRegister::window; }},
      {"blocking communicators", 2, [](RunConfig& c) { c.nccl.blocking = true; }},
      {"37 words, whose rows of logits lie 40 apart", 1, [](RunConfig& c) { c.model.vocab = 37; }},
  };
  for (const Policy& policy : policies) {
    SCOPED_TRACE(policy.name);
    RunConfig c = tiny_training(policy.ranks);
    policy.change(c);
    const Measurement result = run_cuda(c);
    expect_same_training(result, testing::run_tiny(c), 1e-5);
    expect_memory_of_the_schedule(c, result);
    expect_whole_trace(c, result);
  }
}

TEST(EmulatedCudaPolicies, UpdatesThatRoundShardsLeaveEveryBitOfTheParameters) {
  for (const int ranks : {1, 2}) {
    for (const Layout layout : {Layout::flat, Layout::per_param}) {
      RunConfig c = tiny_training(ranks);
      c.device.deterministic = true;
      c.fsdp.layout = layout;
      c.fsdp.param_dtype = DType::bf16;
      const Measurement without = run_cuda(c);
      c.fsdp.cast_in_optimizer = true;
      const Measurement with = run_cuda(c);
      EXPECT_EQ(with.parameters_digest.value(), without.parameters_digest.value()) << ranks;
      expect_memory_of_the_schedule(c, with);
    }
  }
}

}  // namespace
}  // namespace fsdpbench::engine
