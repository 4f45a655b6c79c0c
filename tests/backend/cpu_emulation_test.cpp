// Emulated compute, slow ranks, and worlds in which nothing but time is real.

#include <gtest/gtest.h>

#include <algorithm>
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

/// The least of several times: other work may share the machine, and only prolongs.
std::int64_t time_of(Device& device, Lane lane, const Device::Task& task, std::int64_t soon_enough) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int attempt = 0; attempt < 50 && least >= soon_enough; ++attempt) {
    Stamp stamp;
    device.enqueue(lane, "op", task, &stamp);
    device.synchronize();
    least = std::min(least, stamp.end_ns - stamp.begin_ns);
  }
  return least;
}

void gemm_of(Kernels& kernels, std::int64_t flops) {
  Gemm gemm;
  gemm.m = flops / 2;
  gemm.n = gemm.k = 1;
  kernels.gemm(gemm);
}

void expect_takes(Device& device, Lane lane, const Device::Task& task, std::int64_t expected) {
  const std::int64_t limit = expected + 40 * kMillisecond;
  const std::int64_t least = time_of(device, lane, task, limit);
  EXPECT_GE(least, expected);
  EXPECT_LT(least, limit);
}

TEST(EmulatedCompute, TakesFlopsOverRate) {
  run_cpu(emulated(1), [](RankContext& rank) {
    EXPECT_FALSE(rank.device.computes());
    expect_takes(
        rank.device, Lane::compute, [](Kernels& kernels) { gemm_of(kernels, 3'000'000); }, 3 * kMillisecond);
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
    expect_takes(
        rank.device, Lane::compute,
        [&](Kernels& kernels) { kernels.attention(shape, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr); },
        kForward);
    expect_takes(
        rank.device, Lane::compute,
        [&](Kernels& kernels) {
          kernels.attention_backward(shape, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                                     nullptr, nullptr);
        },
        kForward * 5 / 2);
  });
}

TEST(EmulatedCompute, ManyKernelsOfOneOpDoNotAddUpErrors) {
  run_cpu(emulated(1), [](RankContext& rank) {
    const auto many = [](Kernels& kernels) {
      for (int i = 0; i < 1000; ++i) gemm_of(kernels, 2000);
    };
    // A thousand sleeps of 2 us would take over 50 ms.
    expect_takes(rank.device, Lane::compute, many, 2 * kMillisecond);
  });
}

TEST(EmulatedCompute, CopiesTakeNoTimeAndTouchNothing) {
  run_cpu(emulated(1), [](RankContext& rank) {
    const auto copies = [](Kernels& kernels) {
      kernels.fill_zero(nullptr, 1 << 20);
      kernels.add(nullptr, nullptr, nullptr, 1 << 20, DType::f32);
    };
    expect_takes(rank.device, Lane::compute, copies, 0);
  });
}

TEST(EmulatedCompute, ASlowRankComputesSlowerOnItsComputeLaneAlone) {
  BackendOptions options = emulated(2);
  options.set<CpuOptions>().compute_slowdown = {1.0, 3.0};
  run_cpu(options, [](RankContext& rank) {
    const Device::Task task = [](Kernels& kernels) { gemm_of(kernels, 50'000'000); };
    expect_takes(rank.device, Lane::compute, task, (rank.rank == 1 ? 150 : 50) * kMillisecond);
    expect_takes(rank.device, Lane::reduce_scatter, task, 50 * kMillisecond);
  });
}

TEST(RealCompute, ASlowRankSleepsAfterEachOp) {
  BackendOptions options;
  options.ranks = 2;
  options.set<CpuOptions>().compute_slowdown = {1.0, 2.0};
  run_cpu(options, [](RankContext& rank) {
    EXPECT_TRUE(rank.device.computes());
    const Device::Task task = [](Kernels& kernels) { kernels.delay(50 * kMillisecond); };
    expect_takes(rank.device, Lane::compute, task, (rank.rank == 1 ? 100 : 50) * kMillisecond);
    expect_takes(rank.device, Lane::copy, task, 50 * kMillisecond);
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
                      Lane::compute, "long", [](Kernels& kernels) { gemm_of(kernels, 3'600'000'000'000); },
                      nullptr);  // an hour
                  rank.device.synchronize();
                }),
            "rank 1, lane copy, op bad op: no");
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
