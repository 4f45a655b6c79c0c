// Whole trainings on imagined GPUs: what the CPU backend computes, in the memory that the schedule says.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/emulated_support.h"
#include "engine/run.h"
#include "metrics/run_metrics.h"
#include "schedule/memory_walk.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

RunResult run_cuda(const RunConfig& config) {
  const backend::FakeGpus gpus(8);
  const testing::HashedBatches batches(static_cast<std::int32_t>(config.model.vocab));
  return run(*backend::make_cuda(), prepare(config), batches);
}

RunConfig tiny(int ranks) {
  RunConfig c = testing::tiny_decoder();
  c.model.width = 32;  // whole packs, and a remainder in the feed-forward part
  c.model.layers = 2;
  c.mesh.ranks = ranks;
  c.train.steps = 2;
  c.device.timer = Timer::events;
  c.inject.poison_freed_memory = true;
  return c;
}

void expect_same_training(const RunResult& cuda, const RunResult& cpu, double tolerance) {
  ASSERT_EQ(cuda.losses.size(), cpu.losses.size());
  for (std::size_t i = 0; i < cpu.losses.size(); ++i) {
    EXPECT_NEAR(cuda.losses[i], cpu.losses[i], tolerance * cpu.losses[i]) << "step " << i;
  }
  ASSERT_EQ(cuda.parameters.size(), cpu.parameters.size());
  for (std::size_t p = 0; p < cpu.parameters.size(); ++p) {
    for (std::size_t i = 0; i < cpu.parameters[p].size(); ++i) {
      ASSERT_NEAR(cuda.parameters[p][i], cpu.parameters[p][i], 20 * tolerance) << "parameter " << p << ", " << i;
    }
  }
}

void expect_memory_of_the_schedule(const RunConfig& config, const RunResult& result) {
  const auto steps = static_cast<int>(config.train.warmup + config.train.steps);
  const PoolStatistics expected = schedule::memory_walk(prepare(config).schedules, steps);
  ASSERT_EQ(result.memory.size(), static_cast<std::size_t>(config.mesh.ranks));
  for (const PoolStatistics& memory : result.memory) {
    EXPECT_EQ(memory.peak_occupied_total, expected.peak_occupied_total);
    EXPECT_EQ(memory.peak_occupied, expected.peak_occupied);
    EXPECT_EQ(memory.reserved, expected.reserved);
  }
}

/// Times of all ops fit together: run_metrics checks every identity and throws where one does not hold.
void expect_whole_trace(const RunConfig& config, const RunResult& result) {
  const Preparation p = prepare(config);
  const metrics::RunMetrics m = metrics::run_metrics(
      p.schedules, p.plan.mesh, static_cast<int>(config.fsdp.reshard_after_forward.group), result.traces, 1.0);
  EXPECT_GT(m.step_ms.median, 0);
  EXPECT_GT(m.compute_ms, 0);
  for (const trace::RankTrace& trace : result.traces) {
    EXPECT_EQ(trace.steps.size(), static_cast<std::size_t>(config.train.steps));
    for (const trace::Record& record : trace.records) {
      if (record.begin_ns == 0) continue;  // no work: only events, or memory given back
      EXPECT_LE(record.issued_ns, record.begin_ns);
      EXPECT_LE(record.begin_ns, record.end_ns);
    }
  }
}

class EmulatedCudaTraining : public ::testing::TestWithParam<int> {};

TEST_P(EmulatedCudaTraining, LearnsWhatTheCpuBackendLearns) {
  const RunConfig config = testing::settled(tiny(GetParam()));
  const RunResult cuda = run_cuda(config);
  expect_same_training(cuda, testing::run_tiny(config), 1e-5);
  expect_memory_of_the_schedule(config, cuda);
  expect_whole_trace(config, cuda);
}

TEST_P(EmulatedCudaTraining, InBf16Too) {
  RunConfig c = tiny(GetParam());
  c.fsdp.param_dtype = DType::bf16;
  c.fsdp.reduce_dtype = DType::bf16;
  const RunConfig config = testing::settled(c);
  const RunResult cuda = run_cuda(config);
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
  const RunConfig base = testing::settled(tiny(4));
  const RunResult expected = testing::run_tiny(base);
  const std::vector<Policy> policies{
      {"shard_grad_op, flat",
       [](RunConfig& c) {
         c.fsdp.strategy = Strategy::shard_grad_op;
         c.fsdp.layout = Layout::flat;
       }},
      {"no_shard", [](RunConfig& c) { c.fsdp.strategy = Strategy::no_shard; }},
      {"hybrid",
       [](RunConfig& c) {
         c.fsdp.strategy = Strategy::hybrid_shard;
         c.mesh.shard = 2;
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
    RunConfig c = tiny(4);
    policy.change(c);
    c = testing::settled(c);
    const RunResult result = run_cuda(c);
    expect_same_training(result, expected, 1e-5);
    expect_memory_of_the_schedule(c, result);
    expect_whole_trace(c, result);
  }
}

}  // namespace
}  // namespace fsdpbench::engine
