// model.experts in whole trainings: the bits of one computation whatever the policy, the memory that is said
// beforehand, and a checkpoint that goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "support/resumed_run.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings
namespace fs = std::filesystem;

RunConfig experts_training(std::int64_t ranks = 2) {
  RunConfig c = testing::tiny_decoder();
  c.mesh.ranks = ranks;
  c.model.experts = 5;
  c.model.active_experts = 2;
  c.model.router_aux_loss = 0.1;
  c.train.clip_norm = 0.05;
  return c;
}

std::string digest(const RunConfig& c) { return testing::run_tiny(c).parameters_digest.value(); }

TEST(ExpertsRun, HasTheSameBitsWhateverThePolicy) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    RunConfig base = experts_training();
    base.fsdp.param_dtype = dtype;
    const std::string expected = digest(base);
    const std::vector<std::function<void(RunConfig&)>> policies{
        [](RunConfig& c) { c.fsdp.strategy = Strategy::no_shard; },
        [](RunConfig& c) { c.fsdp.strategy = Strategy::shard_grad_op, c.fsdp.layout = Layout::flat; },
        [](RunConfig& c) { c.fsdp.layout = Layout::flat; },
        [](RunConfig& c) { c.fsdp.activation_checkpointing = true; },
        [](RunConfig& c) { c.fsdp.forward_prefetch.mode = Prefetch::Mode::none; },
        [](RunConfig& c) {
          c.fsdp.wrap = {Wrap::Mode::blocks, 2, 0};
        },
        [](RunConfig& c) { c.fsdp.cpu_offload = CpuOffload::all; }};
    for (std::size_t i = 0; i < policies.size(); ++i) {
      RunConfig c = base;
      policies[i](c);
      EXPECT_EQ(digest(c), expected) << "policy " << i;
    }
  }
}

TEST(ExpertsRun, EveryRouterKeyChangesTheTraining) {
  const RunConfig base = experts_training();
  const std::string expected = digest(base);
  const std::vector<std::function<void(RunConfig&)>> changes{
      [](RunConfig& c) { c.model.router_aux_loss = 0; }, [](RunConfig& c) { c.model.router_normalize = false; },
      [](RunConfig& c) { c.model.router_score = RouterScore::sigmoid, c.model.router_aux_loss = 0; },
      [](RunConfig& c) { c.model.active_experts = 1; }};
  std::vector<std::string> digests{expected};
  for (const auto& change : changes) {
    RunConfig c = base;
    change(c);
    digests.push_back(digest(c));
  }
  std::ranges::sort(digests);
  EXPECT_EQ(std::unique(digests.begin(), digests.end()), digests.end());
}

TEST(ExpertsRun, TheBalanceLossIsOfEachMicrobatchOnce) {
  RunConfig c = experts_training(1);
  c.train.accumulate = 2;
  c.train.warmup = 0;
  c.train.steps = 1;
  c.train.optimizer = Optimizer::sgd;
  c.train.clip_norm = 0;
  RunConfig two = c;
  two.mesh.ranks = 2;
  two.train.accumulate = 1;
  const auto relative = [](const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
    double squares = 0, of = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < a[i].size(); ++j) {
        const double value = b[i][j], off = a[i][j] - value;
        squares += off * off;
        of += value * value;
      }
    }
    return squares / of;
  };
  EXPECT_LT(relative(testing::run_tiny(c).parameters, testing::run_tiny(two).parameters), 1e-12);
}

TEST(ExpertsRun, NeedsTheMemoryThatIsSaidBeforehand) {
  for (const bool checkpointing : {false, true}) {
    RunConfig c = experts_training();
    c.fsdp.activation_checkpointing = checkpointing;
    EXPECT_EQ(testing::run_tiny(c).memory.front().peak_occupied, set_up(testing::settled(c)).memory.peak_occupied);
  }
}

TEST(ExpertsRun, GoesOnFromACheckpointOnAnyMesh) {
  RunConfig c = experts_training();
  c.train.warmup = 0;
  c.train.steps = 5;
  const TemporaryFolder folder;
  const fs::path step = testing::checkpoint_after(2, c, folder);
  EXPECT_EQ(testing::resumed(c, step).parameters_digest, testing::run_tiny(c).parameters_digest);
}

}  // namespace
}  // namespace fsdpbench::engine
