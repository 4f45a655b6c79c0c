// Emulated compute, slow ranks, and worlds in which nothing but time is real.

#include <gtest/gtest.h>

#include <limits>

#include "backend/copy_kernels.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/support.h"

namespace fsdpbench::backend {
namespace {

constexpr double kFlopsPerSecond = 1e9;

void run_cpu(const BackendOptions& options, const Body& body) {
  cpu::CpuBackend([] { return std::make_unique<CopyKernels>(); }).run(options, body);
}

BackendOptions emulated(int ranks) {
  BackendOptions options;
  options.ranks = ranks;
  options.set<CpuOptions>().compute_flops_per_s = kFlopsPerSecond;
  return options;
}

std::int64_t time_of(Device& device, Lane lane, const Device::Task& task) {
  Stamp stamp;
  device.enqueue(lane, "op", task, &stamp);
  device.synchronize();
  return stamp.end_ns - stamp.begin_ns;
}

void gemm_of(Kernels& kernels, std::int64_t flops) {
  Gemm gemm;
  gemm.m = flops / 2;
  gemm.n = gemm.k = 1;
  kernels.gemm(gemm);
}

// Upper bounds are loose: other work may share the machine.
#define EXPECT_TAKES(nanoseconds, expected) \
  EXPECT_GE(nanoseconds, expected);         \
  EXPECT_LT(nanoseconds, (expected) + 40 * kMillisecond)

TEST(EmulatedCompute, TakesFlopsOverRate) {
  run_cpu(emulated(1), [](RankContext& rank) {
    EXPECT_FALSE(rank.device.computes());
    EXPECT_TAKES(time_of(rank.device, Lane::compute, [](Kernels& kernels) { gemm_of(kernels, 3'000'000); }),
                 3 * kMillisecond);
  });
}

TEST(EmulatedCompute, AttentionCountsTheCausalHalfAndTwoAndAHalfTimesThatBackward) {
  AttentionShape shape;
  shape.batch = 2;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.seq = 100;
  shape.head_dim = 10;
  constexpr std::int64_t kForward = 2 * 2 * 4 * 100 * 100 * 10;  // ns at 1 GFLOP/s
  run_cpu(emulated(1), [&](RankContext& rank) {
    EXPECT_TAKES(time_of(rank.device, Lane::compute,
                         [&](Kernels& kernels) {
                           kernels.attention(shape, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
                         }),
                 kForward);
    EXPECT_TAKES(time_of(rank.device, Lane::compute,
                         [&](Kernels& kernels) {
                           kernels.attention_backward(shape, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                                                      nullptr, nullptr, nullptr, nullptr);
                         }),
                 kForward * 5 / 2);
  });
}

TEST(EmulatedCompute, ManyKernelsOfOneOpDoNotAddUpErrors) {
  run_cpu(emulated(1), [](RankContext& rank) {
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    for (int attempt = 0; attempt < 5; ++attempt) {
      best = std::min(best, time_of(rank.device, Lane::compute, [](Kernels& kernels) {
                        for (int i = 0; i < 1000; ++i) gemm_of(kernels, 2000);
                      }));
    }
    EXPECT_GE(best, 2 * kMillisecond);
    EXPECT_LT(best, 10 * kMillisecond) << "a thousand sleeps of 2 us would take over 50 ms";
  });
}

TEST(EmulatedCompute, CopiesTakeNoTimeAndTouchNothing) {
  run_cpu(emulated(1), [](RankContext& rank) {
    const std::int64_t nanoseconds = time_of(rank.device, Lane::compute, [](Kernels& kernels) {
      kernels.fill_zero(nullptr, 1 << 20);
      kernels.add(nullptr, nullptr, nullptr, 1 << 20, DType::f32);
    });
    EXPECT_LT(nanoseconds, 20 * kMillisecond);
  });
}

TEST(EmulatedCompute, ASlowRankComputesSlowerOnItsComputeLaneAlone) {
  BackendOptions options = emulated(2);
  options.set<CpuOptions>().compute_slowdown = {1.0, 3.0};
  run_cpu(options, [](RankContext& rank) {
    const Device::Task task = [](Kernels& kernels) { gemm_of(kernels, 50'000'000); };
    const std::int64_t on_compute = time_of(rank.device, Lane::compute, task);
    const std::int64_t elsewhere = time_of(rank.device, Lane::reduce_scatter, task);
    EXPECT_TAKES(on_compute, (rank.rank == 1 ? 150 : 50) * kMillisecond);
    EXPECT_TAKES(elsewhere, 50 * kMillisecond);
  });
}

TEST(RealCompute, ASlowRankSleepsAfterEachOp) {
  BackendOptions options;
  options.ranks = 2;
  options.set<CpuOptions>().compute_slowdown = {1.0, 2.0};
  run_cpu(options, [](RankContext& rank) {
    EXPECT_TRUE(rank.device.computes());
    const Device::Task task = [](Kernels& kernels) { kernels.delay(50 * kMillisecond); };
    EXPECT_TAKES(time_of(rank.device, Lane::compute, task), (rank.rank == 1 ? 100 : 50) * kMillisecond);
    EXPECT_TAKES(time_of(rank.device, Lane::copy, task), 50 * kMillisecond);
  });
}

TEST(EmulatedCompute, BytesStillMoveOverARealLink) {
  run_cpu(emulated(2), [](RankContext& rank) {
    auto* values = reinterpret_cast<float*>(reserve<float>(rank.device, 2));
    values[rank.rank] = static_cast<float>(10 + rank.rank);
    auto* memory = reinterpret_cast<std::byte*>(values);
    rank.world.all_gather(Lane::all_gather, memory + 4 * rank.rank, memory, 1, DType::f32, nullptr);
    rank.device.synchronize();
    EXPECT_EQ(values[0], 10.0F);
    EXPECT_EQ(values[1], 11.0F);
  });
}

TEST(FullEmulation, HugeModelsNeedNoMemory) {
  BackendOptions options = emulated(2);
  options.set<CpuOptions>().link = LinkModel{.bytes_per_second = 1e15, .latency_seconds = 0};
  run_cpu(options, [](RankContext& rank) {
    constexpr std::int64_t kElements = std::int64_t{100} << 30;  // 400 GiB of fp32
    std::byte* shard = reserve<float>(rank.device, kElements);
    std::byte* full = reserve<float>(rank.device, 2 * kElements);
    Stamp stamp;
    rank.world.all_gather(Lane::all_gather, shard, full, kElements, DType::f32, &stamp);
    rank.world.reduce_scatter(Lane::all_gather, full, shard, kElements, DType::f32, 1.0F, nullptr);
    rank.device.synchronize();
    EXPECT_GE(stamp.end_ns - stamp.begin_ns, 429'000) << "400 GiB at 1 PB/s";
    EXPECT_EQ(rank.world.wire_bytes()[0], 4 * kElements);
  });
}

TEST(FullEmulation, AFailureWakesASleepingOp) {
  BackendOptions options = emulated(2);
  const std::int64_t begin = now_ns();
  EXPECT_EQ(failure_of(
                []() -> std::unique_ptr<Backend> {
                  return std::make_unique<cpu::CpuBackend>([] { return std::make_unique<CopyKernels>(); });
                },
                options,
                [](RankContext& rank) {
                  if (rank.rank == 1) {
                    rank.device.enqueue(
                        Lane::copy, "bad op", [](Kernels&) { throw std::runtime_error("no"); }, nullptr);
                  }
                  rank.device.enqueue(
                      Lane::compute, "long", [](Kernels& kernels) { gemm_of(kernels, 60'000'000'000); }, nullptr);
                  rank.device.synchronize();
                }),
            "rank 1, lane copy, op bad op: no");
  EXPECT_LT(now_ns() - begin, 20'000 * kMillisecond) << "the op alone would take a minute";
}

TEST(Options, ThatContradictThemselvesAreRefused) {
  const auto refused = [](const auto& change) {
    BackendOptions options = emulated(2);
    change(options);
    EXPECT_THROW(run_cpu(options, [](RankContext&) {}), BackendError);
  };
  refused([](BackendOptions& options) { options.ranks = 0; });
  refused([](BackendOptions& options) { options.set<CpuOptions>().compute_flops_per_s = 0.0; });
  refused([](BackendOptions& options) { options.set<CpuOptions>().compute_slowdown = {1.0}; });
  refused([](BackendOptions& options) { options.set<CpuOptions>().compute_slowdown = {1.0, 0.5}; });
  refused([](BackendOptions& options) { options.set<CpuOptions>().link_slowdown = {1.0, 2.0, 3.0}; });
  refused([](BackendOptions& options) {
    options.set<CpuOptions>().link = LinkModel{.bytes_per_second = 0, .latency_seconds = 0};
  });
  refused([](BackendOptions& options) {
    options.set<CpuOptions>().link = LinkModel{.bytes_per_second = 1, .latency_seconds = -1};
  });
}

}  // namespace
}  // namespace fsdpbench::backend
