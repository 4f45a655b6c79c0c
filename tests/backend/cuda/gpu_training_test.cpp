// Small trainings on this machine's GPUs: what the CPU backend computes, in the memory that the schedule says.

#include "backend/cuda/gpu_support.h"
#include "backend/cuda/training_checks.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

class GpuTraining : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string why = backend::why_skip_gpu(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
};

Measurement run_gpu(const RunConfig& config) {
  const testing::HashedBatches batches(static_cast<std::int32_t>(config.model.vocab));
  RunHooks hooks;
  hooks.keep_parameters = true;
  return run(*backend::make_gpu_backend(), set_up(config), batches, hooks);
}

TEST_P(GpuTraining, LearnsWhatTheCpuBackendLearns) {
  const RunConfig config = tiny_training(GetParam());
  const Measurement cuda = run_gpu(config);
  expect_same_training(cuda, testing::run_tiny(config), 1e-4);
  expect_memory_of_the_schedule(config, cuda);
  expect_whole_trace(config, cuda);
}

TEST_P(GpuTraining, InBf16Too) {
  RunConfig config = tiny_training(GetParam());
  config.fsdp.param_dtype = DType::bf16;
  config.fsdp.reduce_dtype = DType::bf16;
  const Measurement cuda = run_gpu(config);
  expect_same_training(cuda, testing::run_tiny(config), 2e-2);
  expect_memory_of_the_schedule(config, cuda);
}

TEST_P(GpuTraining, RepeatsItsBitsIfItShall) {
  RunConfig config = tiny_training(GetParam());
  config.fsdp.param_dtype = DType::bf16;
  config.device.deterministic = true;
  const Measurement first = run_gpu(config);
  ASSERT_TRUE(first.parameters_digest);
  EXPECT_EQ(run_gpu(config).parameters_digest, first.parameters_digest);
}

TEST_P(GpuTraining, WithTheBestTimer) {
  RunConfig config = tiny_training(GetParam());
  config.device.timer = Timer::automatic;
  expect_whole_trace(config, run_gpu(config));
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuTraining, ::testing::Values(1, 2, 4),
                         [](const auto& ranks) { return std::to_string(ranks.param); });

}  // namespace
}  // namespace fsdpbench::engine
