#include "engine/setup.h"

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>

#include "base/error.h"
#include "engine/masters.h"
#include "launch/local_job.h"
#include "schedule/memory_walk.h"
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

TEST(BackendOptions, TheCpuBackendEmulatesLinksCopiesAndComputation) {
  config::RunConfig c = on(config::BackendKind::cpu);
  c.emulate.compute_tflops = 2;
  c.emulate.pcie_gb_per_s = 3;
  c.inject.slow_link_rank = 0;
  c.inject.slow_link_factor = 4;
  c.inject.poison_freed_memory = true;
  c.fsdp.cpu_offload = config::CpuOffload::all;
  const engine::Setup s = set_up(c);
  const backend::BackendOptions options = backend_options(s, nullptr);
  EXPECT_TRUE(options.poison_freed_memory);
  EXPECT_TRUE(options.offload_lanes);
  EXPECT_EQ(options.host_pool_bytes, s.host_memory.reserved);
  EXPECT_GT(options.host_pool_bytes, 0);
  EXPECT_EQ(options.session, nullptr);
  const auto own = options.get<backend::CpuOptions>();
  EXPECT_EQ(own.compute_flops_per_s, 2e12);
  EXPECT_EQ(own.pcie->bytes_per_second, 3e9);
  EXPECT_FALSE(own.link);
  EXPECT_EQ(own.link_slowdown, (std::vector<double>{4, 1, 1, 1}));
  EXPECT_TRUE(own.compute_slowdown.empty());
  EXPECT_FALSE(own.stall_s);
  c.inject.slow_link_rank = -1;
  c.inject.slow_rank = 0;
  const auto other = backend_options(set_up(c), nullptr).get<backend::CpuOptions>();
  EXPECT_TRUE(other.link_slowdown.empty());
  EXPECT_EQ(other.compute_slowdown.size(), 4U);
  c.device.backend = config::BackendKind::virtual_;
  EXPECT_THROW(backend_options(set_up(c), nullptr), std::logic_error);
}

TEST(BackendOptions, ProcessesHearOfTheirEnvironment) {
  using launch::testing::WithVariable;
  const engine::Setup s = set_up(on(config::BackendKind::cpu));
  launch::testing::run_job(1, [&](launch::Session& session, int) {
    const auto own = [&] { return backend_options(s, &session).get<backend::CpuOptions>(); };
    EXPECT_EQ(backend_options(s, &session).session, &session);
    EXPECT_EQ(own().stall_s, 1800);
    EXPECT_TRUE(own().share_memory);
    const WithVariable apart("FSDPBENCH_SHARE_MEMORY", "0");
    EXPECT_FALSE(own().share_memory);
    for (const auto& [text, seconds] : {std::pair{"7.5", std::optional(7.5)},
                                        {"0.5", std::optional(0.5)},
                                        {"0", std::nullopt},
                                        {"", std::optional(1800.0)}}) {
      const WithVariable stall("FSDPBENCH_STALL_S", text);
      EXPECT_EQ(own().stall_s, seconds) << text;
    }
  });
}

TEST(BackendOptions, EveryNameMeansTheSameToTheCudaBackend) {
  using backend::NcclOptions;
  config::RunConfig c = on(config::BackendKind::cuda);
  const auto own = [&] { return backend_options(set_up(c), nullptr).get<backend::CudaOptions>(); };
  for (const auto& [named, means] : {std::pair{config::Timer::automatic, backend::Timer::automatic},
                                     {config::Timer::cupti, backend::Timer::cupti},
                                     {config::Timer::events, backend::Timer::events}}) {
    c.device.timer = named;
    EXPECT_EQ(own().timer, means);
  }
  for (const auto& [named, means] : {std::pair{config::NcclRegister::none, NcclOptions::Register::none},
                                     {config::NcclRegister::local, NcclOptions::Register::local},
                                     {config::NcclRegister::window, NcclOptions::Register::window}}) {
    c.nccl.register_buffers = named;
    EXPECT_EQ(own().nccl.registration, means);
    const engine::Setup s = set_up(c);
    CategoryBytes expected = schedule::category_walk(s.schedules, c.train.warmup + c.train.steps);
    expected[index_of(MemoryCategory::communication_buffers)] += Masters::collection_bytes(s.plan);
    if (named == config::NcclRegister::none) expected = {};
    EXPECT_EQ(backend_options(s, nullptr).category_bytes, expected);
  }
  for (const auto& [named, means] : {std::pair{config::CtaPolicy::library, NcclOptions::CtaPolicy::library},
                                     {config::CtaPolicy::efficiency, NcclOptions::CtaPolicy::efficiency},
                                     {config::CtaPolicy::zero, NcclOptions::CtaPolicy::zero}}) {
    c.nccl.cta_policy = named;
    EXPECT_EQ(own().nccl.cta_policy, means);
  }
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
