// Trainings with state in pinned host memory, on imagined GPUs: what is computed without, in the memory that the
// schedule says, with every copy made where it lies.

#include <array>
#include <functional>
#include <vector>

#include "backend/cpu/backend.h"
#include "backend/cuda/emulated_support.h"
#include "backend/cuda/fake/fake_stream.h"
#include "backend/cuda/training_checks.h"
#include "support/temporary_folder.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

constexpr std::array kOffloads{CpuOffload::optimizer, CpuOffload::all};

Measurement run_offloading(const RunConfig& config) {
  const backend::FakeGpus gpus(8);
  const testing::HashedBatches batches(static_cast<std::int32_t>(config.model.vocab));
  RunHooks hooks;
  hooks.keep_parameters = true;
  return run(*backend::make_cuda_with(backend::cpu::make_host_kernels), set_up(config), batches, hooks);
}

void expect_pinned_memory_of_the_schedule(const RunConfig& config, const Measurement& result) {
  const PoolStatistics expected = set_up(config).host_memory;
  ASSERT_EQ(result.host_memory.size(), static_cast<std::size_t>(config.mesh.ranks));
  for (const PoolStatistics& memory : result.host_memory) {
    EXPECT_EQ(memory.peak_occupied_total, expected.peak_occupied_total);
    EXPECT_EQ(memory.peak_occupied, expected.peak_occupied);
    EXPECT_EQ(memory.reserved, expected.reserved);
  }
}

struct Setting {
  const char* name;
  int ranks;
  std::function<void(RunConfig&)> change;
};

const std::vector<Setting> kSettings{
    {"fsdp2", 2, [](RunConfig&) {}},
    {"bf16, hybrid", 4,
     [](RunConfig& c) {
       c.fsdp.param_dtype = c.fsdp.reduce_dtype = DType::bf16;
       c.fsdp.strategy = Strategy::hybrid_shard;
       c.mesh.shard = c.mesh.replicate = 2;
     }},
    {"flat, shard_grad_op, microbatches", 2,
     [](RunConfig& c) {
       c.fsdp.strategy = Strategy::shard_grad_op;
       c.fsdp.layout = Layout::flat;
       c.train.accumulate = 2;
     }},
    {"microbatches without sync, bf16", 2,
     [](RunConfig& c) {
       c.train.accumulate = 2;
       c.train.accumulate_mode = AccumulateMode::no_sync;
       c.fsdp.param_dtype = DType::bf16;
     }},
    {"sgd, no_shard", 2,
     [](RunConfig& c) {
       c.train.optimizer = Optimizer::sgd;
       c.fsdp.strategy = Strategy::no_shard;
       c.mesh.shard = 1;
       c.mesh.replicate = 2;
     }},
    {"some replicated, registered memory", 2,
     [](RunConfig& c) {
       c.fsdp.shard_threshold = 600;
       c.nccl.register_buffers = NcclRegister::window;
     }},
};

class EmulatedCudaOffloadSettings : public ::testing::TestWithParam<std::size_t> {};

TEST_P(EmulatedCudaOffloadSettings, LeaveEveryBitOfTheParametersAsItIs) {
  const Setting& setting = kSettings[GetParam()];
  SCOPED_TRACE(setting.name);
  RunConfig c = tiny_training(setting.ranks);
  c.device.deterministic = true;
  setting.change(c);
  const Measurement without = run_offloading(c);
  ASSERT_TRUE(without.parameters_digest);
  for (const CpuOffload offload : kOffloads) {
    c.fsdp.cpu_offload = offload;
    const std::int64_t pageable = fake::pageable_copies();
    const Measurement with = run_offloading(c);
    EXPECT_EQ(with.parameters_digest, without.parameters_digest) << static_cast<int>(offload);
    EXPECT_EQ(with.losses, without.losses);
    EXPECT_EQ(fake::pageable_copies(), pageable);
    expect_memory_of_the_schedule(c, with);
    expect_pinned_memory_of_the_schedule(c, with);
    expect_whole_trace(c, with);
  }
}

INSTANTIATE_TEST_SUITE_P(Each, EmulatedCudaOffloadSettings, ::testing::Range<std::size_t>(0, kSettings.size()));

TEST(EmulatedCudaOffloadTraining, OneRankHasTheSameBitsToo) {
  RunConfig c = tiny_training(1);
  c.device.deterministic = true;
  const Measurement without = run_offloading(c);
  for (const CpuOffload offload : kOffloads) {
    c.fsdp.cpu_offload = offload;
    const Measurement with = run_offloading(c);
    EXPECT_EQ(with.parameters_digest, without.parameters_digest) << static_cast<int>(offload);
    expect_pinned_memory_of_the_schedule(c, with);
  }
}

// The host adds the squares in an order of its own, so the norm may differ in its last bits.
TEST(EmulatedCudaOffloadTraining, ClipsByTheNormOfAllThatLiesOnBothSides) {
  for (const std::int64_t threshold : {0, 600}) {
    RunConfig c = tiny_training(2);
    c.train.clip_norm = 0.05;
    c.fsdp.shard_threshold = threshold;
    const Measurement without = run_offloading(c);
    for (const CpuOffload offload : kOffloads) {
      c.fsdp.cpu_offload = offload;
      const Measurement with = run_offloading(c);
      expect_same_training(with, without, 1e-6);
      expect_same_training(with, testing::run_tiny(c), 1e-5);
      expect_pinned_memory_of_the_schedule(c, with);
    }
  }
}

// Slow lanes, and freed memory full of NaN (tiny_training): what is freed or read one event too early would show.
TEST(EmulatedCudaOffloadTraining, DelayedLanesChangeNothing) {
  RunConfig c = tiny_training(2);
  c.device.deterministic = true;
  c.fsdp.param_dtype = DType::bf16;
  c.train.clip_norm = 0.05;
  for (const CpuOffload offload : kOffloads) {
    c.fsdp.cpu_offload = offload;
    c.inject.delay_us = 0;
    const Measurement without = run_offloading(c);
    c.inject.delay_us = 500;
    for (const Lane lane : {Lane::host_to_device, Lane::device_to_host, Lane::host_compute}) {
      c.inject.delay_lane = to_string(lane);
      EXPECT_EQ(run_offloading(c).parameters_digest, without.parameters_digest)
          << static_cast<int>(offload) << ' ' << to_string(lane);
    }
  }
}

}  // namespace
}  // namespace fsdpbench::engine
