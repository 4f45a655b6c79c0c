// Whole trainings on imagined GPUs: what the CPU backend computes, in the memory that the schedule says.

#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/emulated_support.h"
#include "backend/cuda/training_checks.h"

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

TEST_P(EmulatedCudaTraining, InBf16Too) {
  RunConfig config = tiny_training(GetParam());
  config.fsdp.param_dtype = DType::bf16;
  config.fsdp.reduce_dtype = DType::bf16;
  const Measurement cuda = run_cuda(config);
  expect_same_training(cuda, testing::run_tiny(config), 1e-2);
  expect_memory_of_the_schedule(config, cuda);
}

INSTANTIATE_TEST_SUITE_P(Ranks, EmulatedCudaTraining, ::testing::Values(1, 4),
                         [](const auto& ranks) { return std::to_string(ranks.param); });

struct Policy {
  const char* name;
  std::function<void(RunConfig&)> change;
};

TEST(EmulatedCudaPolicies, LearnTheSameInTheMemoryOfTheirSchedules) {
  const RunConfig base = tiny_training(4);
  const Measurement expected = testing::run_tiny(base);
  const std::vector<Policy> policies{
      {"shard_grad_op, flat",
       [](RunConfig& c) {
         c.fsdp.strategy = Strategy::shard_grad_op;
         c.fsdp.layout = Layout::flat;
       }},
      {"no_shard",
       [](RunConfig& c) {
         c.fsdp.strategy = Strategy::no_shard;
         c.mesh.shard = 1;
         c.mesh.replicate = 4;
       }},
      {"hybrid",
       [](RunConfig& c) {
         c.fsdp.strategy = Strategy::hybrid_shard;
         c.mesh.shard = c.mesh.replicate = 2;
       }},
      {"fsdp1 queue, separate communicator, no forward prefetch",
       [](RunConfig& c) {
         c.fsdp.all_gather_limit = {AllGatherLimit::Mode::fsdp1_queue, 2, 0};
         c.fsdp.separate_reduce_scatter_comm = true;
         c.fsdp.forward_prefetch.mode = Prefetch::Mode::none;
       }},
      {"checkpointing, explicit prefetch, reshard to 2",
       [](RunConfig& c) {
         c.fsdp.activation_checkpointing = true;
         c.fsdp.forward_prefetch = {Prefetch::Mode::explicit_, 2};
         c.fsdp.reshard_after_forward = {ReshardAfterForward::Mode::group, 2};
       }},
      {"registered memory", [](RunConfig& c) { c.nccl.register_buffers = NcclRegister::window; }},
  };
  for (const Policy& policy : policies) {
    SCOPED_TRACE(policy.name);
    RunConfig c = tiny_training(4);
    policy.change(c);
    const Measurement result = run_cuda(c);
    expect_same_training(result, expected, 1e-5);
    expect_memory_of_the_schedule(c, result);
    expect_whole_trace(c, result);
  }
}

}  // namespace
}  // namespace fsdpbench::engine
