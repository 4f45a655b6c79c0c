// Emulated links between processes take the time that they take between threads.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "backend/cpu_processes.h"
#include "backend/support.h"
#include "base/clock.h"

namespace fsdpbench::backend {
namespace {

constexpr int kRanks = 4;
constexpr int kRounds = 8;
constexpr std::int64_t kCount = 250'000;  // 1 MB, 1 ms on the link for each other rank

/// Nanoseconds that some rounds took.
using Rounds = std::int64_t (*)(RankContext& rank);

BackendOptions emulated(std::vector<double> link_slowdown) {
  BackendOptions options;
  options.ranks = kRanks;
  options.set<CpuOptions>().compute_flops_per_s = 1e12;
  options.set<CpuOptions>().link = LinkModel{.bytes_per_second = 1e9, .latency_seconds = 20e-6};
  options.set<CpuOptions>().link_slowdown = std::move(link_slowdown);
  return options;
}

void compute(Device& device, std::int64_t nanoseconds) {
  device.enqueue(
      Lane::compute, "compute",
      [nanoseconds](Kernels& kernels) {
        Gemm gemm;
        gemm.m = nanoseconds * 500;  // a thousand FLOPs a nanosecond
        gemm.n = gemm.k = 1;
        kernels.gemm(gemm);
      },
      nullptr);
}

std::byte* buffer(RankContext& rank) { return reserve<float>(rank.device, kRanks * kCount); }

/// While one unit's gradients are reduced, the next one's parameters are gathered.
std::int64_t full_shard(RankContext& rank) {
  Device& device = rank.device;
  const auto reducing = rank.world.split(0, rank.rank);
  std::byte* const memory = buffer(rank);
  rank.world.barrier();
  const std::int64_t begin = now_ns();
  for (int round = 0; round < kRounds; ++round) {
    rank.world.all_gather(Lane::all_gather, memory, memory, kCount, DType::f32, nullptr);
    device.record(0, Lane::all_gather);
    device.wait(Lane::compute, 0);
    compute(device, 2 * kMillisecond);
    device.record(1, Lane::compute);
    device.wait(Lane::reduce_scatter, 1);
    reducing->reduce_scatter(Lane::reduce_scatter, memory, memory, kCount, DType::f32, 1.0F, nullptr);
  }
  device.synchronize();
  return now_ns() - begin;
}

/// Two shard groups; each rank's reduced shard is then summed over the replicas.
std::int64_t hybrid(RankContext& rank) {
  Device& device = rank.device;
  const auto shard = rank.world.split(rank.rank / 2, rank.rank);
  const auto replicate = rank.world.split(rank.rank % 2, rank.rank);
  std::byte* const memory = buffer(rank);
  rank.world.barrier();
  const std::int64_t begin = now_ns();
  for (int round = 0; round < kRounds; ++round) {
    compute(device, kMillisecond);
    device.record(0, Lane::compute);
    device.wait(Lane::reduce_scatter, 0);
    shard->reduce_scatter(Lane::reduce_scatter, memory, memory, 2 * kCount, DType::f32, 1.0F, nullptr);
    device.record(1, Lane::reduce_scatter);
    device.wait(Lane::all_reduce, 1);
    replicate->all_reduce(Lane::all_reduce, memory, 2 * kCount, DType::f32, 1.0F, nullptr);
  }
  device.synchronize();
  return now_ns() - begin;
}

/// Rank 1's link carries a transfer of which rank 0 has no part when their own begins. When that is through, both are,
/// whenever it has begun: as seen at rank 0.
std::int64_t stranger(RankContext& rank) {
  Device& device = rank.device;
  const auto others = rank.world.split(rank.rank == 1 || rank.rank == 2, rank.rank);
  const auto ours = rank.world.split(rank.rank == 0 || rank.rank == 1, rank.rank);
  std::byte* const memory = buffer(rank);
  rank.world.barrier();
  const std::int64_t begin = now_ns();
  if (rank.rank == 1 || rank.rank == 2) {
    others->all_gather(Lane::all_gather, memory, memory, 40 * kCount, DType::f32, nullptr);
  }
  compute(device, 10 * kMillisecond);
  device.record(0, Lane::compute);
  device.wait(Lane::reduce_scatter, 0);
  if (rank.rank <= 1) ours->all_gather(Lane::reduce_scatter, memory, memory, 40 * kCount, DType::f32, nullptr);
  device.synchronize();
  return rank.rank == 0 ? now_ns() - begin : 0;
}

/// Of the slowest rank, in the shortest of a few runs: what the model says and little else.
double milliseconds(Backend& backend, const BackendOptions& options, Rounds rounds) {
  std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::atomic<std::int64_t> longest{0};
    backend.run(options, [&](RankContext& rank) {
      const std::int64_t took = rounds(rank);
      std::int64_t seen = longest.load();
      while (seen < took && !longest.compare_exchange_weak(seen, took)) {
      }
    });
    shortest = std::min(shortest, longest.load());
  }
  return static_cast<double>(shortest) * 1e-6;
}

void expect_equal_times(std::vector<double> link_slowdown, Rounds rounds) {
  const BackendOptions options = emulated(std::move(link_slowdown));
  cpu::CpuBackend threads([] { return std::make_unique<CopyKernels>(); });
  CpuProcesses processes;
  const double between_threads = milliseconds(threads, options, rounds);
  const double between_processes = milliseconds(processes, options, rounds);
  EXPECT_NEAR(between_processes / between_threads, 1.0, 0.03)
      << between_processes << " ms between processes, " << between_threads << " ms between threads";
}

TEST(LinkBetweenProcesses, CommunicatorsShareItAsBetweenThreads) { expect_equal_times({}, &full_shard); }

TEST(LinkBetweenProcesses, ASlowOneIsSharedByAllWhoUseIt) { expect_equal_times({1.0, 1.0, 3.0, 1.0}, &full_shard); }

TEST(LinkBetweenProcesses, GroupsOfDifferentMembersShareTheirLinks) { expect_equal_times({}, &hybrid); }

TEST(LinkBetweenProcesses, AlsoWhereOneLinkIsSlow) { expect_equal_times({1.0, 1.0, 1.0, 3.0}, &hybrid); }

TEST(LinkBetweenProcesses, WhatAMemberDoesElsewhereIsKnownWhenItComes) { expect_equal_times({}, &stranger); }

}  // namespace
}  // namespace fsdpbench::backend
