// Emulated compute, slow ranks, and worlds in which nothing but time is real. What is emulated is exact in the kernels,
// and never faster than that on a lane.

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>

#include "backend/copy_backend.h"
#include "backend/cpu/lane_worker.h"
#include "backend/support.h"

namespace fsdpbench::backend {
namespace {

constexpr double kFlopsPerSecond = 1e9;

void run_cpu(const BackendOptions& options, const Body& body) { make_copy_backend()->run(options, body); }

BackendOptions emulated(int ranks) {
  BackendOptions options;
  options.ranks = ranks;
  options.set<CpuOptions>().compute_flops_per_s = kFlopsPerSecond;
  return options;
}

Gemm gemm_of(std::int64_t flops) {
  Gemm gemm;
  gemm.m = flops / 2;
  gemm.n = gemm.k = 1;
  return gemm;
}

TEST(EmulatedKernels, ProductsTakeTheirFlopsOverTheRate) {
  cpu::EmulatedKernels kernels(kFlopsPerSecond);
  kernels.gemm(gemm_of(3'000'000));
  EXPECT_EQ(kernels.take_nanoseconds(), 3 * kMillisecond);
  EXPECT_EQ(kernels.take_nanoseconds(), 0) << "it has been taken";
}

TEST(EmulatedKernels, AttentionCountsTheCausalHalfAndTwoAndAHalfTimesThatBackward) {
  AttentionShape shape;
  shape.batch = 2;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.seq = 100;
  shape.head_dim = 10;
  constexpr std::int64_t kForward = 2 * 2 * 4 * 100 * 100 * 10;  // ns at 1 GFLOP/s
  cpu::EmulatedKernels kernels(kFlopsPerSecond);
  kernels.attention({.shape = shape});
  EXPECT_EQ(kernels.take_nanoseconds(), kForward);
  kernels.attention_backward({.shape = shape});
  EXPECT_EQ(kernels.take_nanoseconds(), kForward * 5 / 2);
}

TEST(EmulatedKernels, ManyOfOneOpAreOneTime) {
  cpu::EmulatedKernels kernels(3e9);
  for (int i = 0; i < 1000; ++i) kernels.gemm(gemm_of(1000));
  EXPECT_EQ(kernels.take_nanoseconds(), 333'333) << "rounded once";
}

TEST(EmulatedKernels, CopiesTakeNoTimeAndTouchNothing) {
  cpu::EmulatedKernels kernels(kFlopsPerSecond);
  kernels.fill_zero(nullptr, 1 << 20);
  kernels.add(nullptr, nullptr, nullptr, 1 << 20, DType::f32);
  EXPECT_EQ(kernels.take_nanoseconds(), 0);
}

TEST(PcieKernels, ACopyTakesItsLatencyAndItsBytesOverTheBandwidth) {
  const LinkModel pcie{.bytes_per_second = 1e9, .latency_seconds = 5e-6};
  std::vector<std::byte> host(3000, std::byte{7}), device(3000);
  cpu::PcieKernels moves(pcie, true), only_time(pcie, false);
  moves.upload(host.data(), device.data(), 3000);
  EXPECT_EQ(moves.take_nanoseconds(), 8000);
  EXPECT_EQ(host, device);
  moves.download(device.data(), host.data(), 1000);
  EXPECT_EQ(moves.take_nanoseconds(), 6000);
  only_time.upload(nullptr, nullptr, 3000);
  EXPECT_EQ(only_time.take_nanoseconds(), 8000);
}

TEST(EmulatedCompute, AnOpIsNeverFasterThanItsFlops) {
  run_cpu(emulated(1), [](RankContext& rank) {
    EXPECT_FALSE(rank.device.computes());
    Stamp stamp;
    rank.device.enqueue(
        Lane::compute, "products",
        [](Kernels& kernels) {
          for (int i = 0; i < 1000; ++i) kernels.gemm(gemm_of(3000));
        },
        &stamp);
    rank.device.synchronize();
    EXPECT_GE(stamp.end_ns - stamp.begin_ns, 3 * kMillisecond);
  });
}

/// Enqueues `task`, which alone takes a millisecond, on two lanes of rank 1, whose compute lane is so slow that it
/// would take an hour there. Ends when the other lane is done, whatever the compute lane does.
void expect_only_the_compute_lane_slow(BackendOptions options, const Device::Task& task) {
  options.ranks = 2;
  options.set<CpuOptions>().compute_slowdown = {1.0, 3.6e6};
  EXPECT_EQ(failure_of(&make_copy_backend, options,
                       [&](RankContext& rank) {
                         rank.device.enqueue(Lane::compute, "slow on rank 1", task, nullptr);
                         rank.device.record(0, Lane::compute);
                         if (rank.rank == 0) return rank.device.host_wait(0);
                         rank.device.enqueue(Lane::reduce_scatter, "as ever", task, nullptr);
                         rank.device.record(1, Lane::reduce_scatter);
                         rank.device.host_wait(1);
                         throw std::runtime_error("the other lane is done");
                       }),
            "the other lane is done");
}

TEST(EmulatedCompute, ASlowRankIsSlowOnItsComputeLaneAlone) {
  expect_only_the_compute_lane_slow(emulated(2), [](Kernels& kernels) { kernels.gemm(gemm_of(1'000'000)); });
}

TEST(RealCompute, ASlowRankIsSlowOnItsComputeLaneAlone) {
  expect_only_the_compute_lane_slow({}, [](Kernels& kernels) { kernels.delay(kMillisecond); });
}

/// On the compute lane of a rank that is three times slower.
void expect_at_least(BackendOptions options, const Device::Task& task, std::int64_t nanoseconds) {
  options.set<CpuOptions>().compute_slowdown = {3.0};
  run_cpu(options, [&](RankContext& rank) {
    Stamp stamp;
    rank.device.enqueue(Lane::compute, "slow", task, &stamp);
    rank.device.synchronize();
    EXPECT_GE(stamp.end_ns - stamp.begin_ns, nanoseconds);
  });
}

TEST(EmulatedCompute, ASlowRankTakesItsFactor) {
  expect_at_least(
      emulated(1), [](Kernels& kernels) { kernels.gemm(gemm_of(5'000'000)); }, 15 * kMillisecond);
}

TEST(RealCompute, ASlowRankTakesItsFactor) {
  BackendOptions options;
  options.ranks = 1;
  expect_at_least(
      options, [](Kernels& kernels) { kernels.delay(5 * kMillisecond); }, 15 * kMillisecond);
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
  EXPECT_EQ(failure_of(&make_copy_backend, options,
                       [](RankContext& rank) {
                         if (rank.rank == 1) {
                           rank.device.enqueue(
                               Lane::copy, "bad op", [](Kernels&) { throw std::runtime_error("no"); }, nullptr);
                         }
                         rank.device.enqueue(
                             Lane::compute, "long", [](Kernels& kernels) { kernels.gemm(gemm_of(3'600'000'000'000)); },
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
