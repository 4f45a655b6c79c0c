#include "engine/setup.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

config::RunConfig on(config::BackendKind backend) {
  config::RunConfig c = testing::settled(testing::tiny_decoder());
  c.device.backend = backend;
  return c;
}

TEST(BackendOptions, TheCpuBackendHearsOfEmulationAndNothingElse) {
  config::RunConfig c = on(config::BackendKind::cpu);
  c.emulate.link_gb_per_s = 2;
  c.emulate.link_latency_us = 5;
  c.inject.slow_rank = 1;
  c.inject.slow_rank_factor = 3;
  c.device.timer = config::Timer::cupti;
  const backend::BackendOptions options = backend_options(set_up(c), nullptr);
  const auto own = options.get<backend::CpuOptions>();
  EXPECT_EQ(own.link->bytes_per_second, 2e9);
  EXPECT_DOUBLE_EQ(own.link->latency_seconds, 5e-6);
  EXPECT_EQ(own.compute_slowdown, (std::vector<double>{1, 3, 1, 1}));
  EXPECT_FALSE(own.compute_flops_per_s);
  EXPECT_THROW(options.get<backend::CudaOptions>(), BackendError);
}

TEST(BackendOptions, TheCudaBackendHearsEveryNameOfTheConfiguration) {
  using backend::NcclOptions;
  config::RunConfig c = on(config::BackendKind::cuda);
  c.device.timer = config::Timer::events;
  c.nccl.register_buffers = config::NcclRegister::window;
  c.nccl.cta_policy = config::CtaPolicy::zero;
  c.nccl.max_ctas = 4;
  c.nccl.blocking = true;
  c.nccl.timeout_s = 7;
  const engine::Setup s = set_up(c);
  const backend::BackendOptions options = backend_options(s, nullptr);
  EXPECT_EQ(options.ranks, 4);
  EXPECT_EQ(options.pool_bytes, s.pool_bytes);
  for (const MemoryCategory category : kMemoryCategories) {
    EXPECT_GE(options.category_bytes[index_of(category)], s.memory.peak_occupied[index_of(category)])
        << to_string(category);
  }
  const auto own = options.get<backend::CudaOptions>();
  EXPECT_EQ(own.timer, backend::Timer::events);
  EXPECT_EQ(own.nccl.registration, NcclOptions::Register::window);
  EXPECT_EQ(own.nccl.cta_policy, NcclOptions::CtaPolicy::zero);
  EXPECT_EQ(own.nccl.max_ctas, 4);
  EXPECT_TRUE(own.nccl.blocking);
  EXPECT_EQ(own.nccl.timeout_s, 7);
  EXPECT_TRUE(own.monitor);
}

TEST(BackendOptions, SumsAreInAFixedOrderWhereTheyShallBe) {
  for (const bool deterministic : {false, true}) {
    config::RunConfig c = on(config::BackendKind::cuda);
    c.device.deterministic = deterministic;
    EXPECT_EQ(backend_options(set_up(c), nullptr).get<backend::CudaOptions>().arithmetic.deterministic, deterministic);
  }
}

TEST(BackendOptions, TheMonitorIsAsTheConfigurationSays) {
  config::RunConfig c = on(config::BackendKind::cuda);
  c.device.monitor = false;
  const auto own = backend_options(set_up(c), nullptr).get<backend::CudaOptions>();
  EXPECT_FALSE(own.monitor);
}

TEST(BackendOptions, OfAnotherBackendAreRefused) {
  const backend::BackendOptions options = backend_options(set_up(on(config::BackendKind::cuda)), nullptr);
  EXPECT_THROW(backend::cpu::make_cpu_backend()->run(options, [](backend::RankContext&) {}), BackendError);
}

}  // namespace
}  // namespace fsdpbench::engine
