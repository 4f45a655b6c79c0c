#pragma once

// Duties of every backend that has pinned host memory, and of the lanes that only offloading uses. A
// backend's test file instantiates the suite as those of conformance.h; its host_compute lane must copy and delay.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/conformance.h"

namespace fsdpbench::backend {

class OffloadConformance : public BackendConformance<MakeBackend> {
 protected:
  static BackendOptions options(int ranks, std::int64_t host_bytes) {
    BackendOptions options;
    options.ranks = ranks;
    options.pool_bytes = 64 << 20;
    options.host_pool_bytes = host_bytes;
    options.offload_lanes = true;
    return options;
  }
  void run(const BackendOptions& options, const Body& body) {
    skip_unless(options.ranks);
    if (!IsSkipped()) GetParam()()->run(options, body);
  }
};

TEST_P(OffloadConformance, PinnedMemoryIsCountedAndLimitedApartFromTheDevices) {
  run(options(1, 4096), [](RankContext& rank) {
    Device& device = rank.device;
    device.allocate(1000, MemoryCategory::gradients, Lane::compute);
    std::byte* const host = device.allocate_host(3000, MemoryCategory::optimizer, Lane::host_compute);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(host) % 512, 0U);
    EXPECT_EQ(device.memory().peak_occupied_total, 1024);
    EXPECT_EQ(device.host_memory().peak_occupied_total, 3072);
    EXPECT_EQ(device.host_memory().live[index_of(MemoryCategory::optimizer)], 3072);
    EXPECT_THROW(device.allocate_host(4096, MemoryCategory::optimizer, Lane::host_compute), ResourceError);
    EXPECT_EQ(device.host_memory().live_total, 3072) << "as if nobody had asked";
    device.free(host, Lane::host_compute);
    EXPECT_EQ(device.allocate_host(3000, MemoryCategory::optimizer, Lane::host_compute), host);
    device.reset_memory_peaks();
    EXPECT_EQ(device.host_memory().peak_occupied_total, 3072);
    EXPECT_EQ(device.memory().live_total, 1024);
  });
}

TEST_P(OffloadConformance, AskingForMoreThanWasSetAsideNamesBytesAndCategory) {
  EXPECT_THAT(
      failure_of(
          GetParam(), options(1, 4096),
          [](RankContext& rank) { rank.device.allocate_host(1 << 20, MemoryCategory::optimizer, Lane::compute); }),
      testing::AllOf(testing::HasSubstr("1.00 MiB"), testing::HasSubstr("optimizer"), testing::HasSubstr("4.00 KiB")));
}

// Down, through the host's hands, and up again, each lane behind the one before; every one of them is slow.
TEST_P(OffloadConformance, EventsOrderCopiesAndWhatTheHostComputes) {
  constexpr std::int64_t kCount = 1 << 20;
  run(options(1, 16 << 20), [](RankContext& rank) {
    Device& device = rank.device;
    std::byte* const from = reserve<float>(device, kCount);
    std::byte* const to = reserve<float>(device, kCount);
    std::byte* const arrived = device.allocate_host(kCount * 4, MemoryCategory::gradients, Lane::device_to_host);
    std::byte* const computed = device.allocate_host(kCount * 4, MemoryCategory::gradients, Lane::host_compute);
    for (int round = 0; round < 3; ++round) {
      const std::vector<float> values = values_of<float>(round, 0, kCount);
      delay(device, Lane::compute, kMillisecond);
      upload(device, Lane::compute, values, from);
      device.record(0, Lane::compute);
      device.wait(Lane::device_to_host, 0);
      delay(device, Lane::device_to_host, kMillisecond);
      device.enqueue(
          Lane::device_to_host, "down", [=](Kernels& kernels) { kernels.download(from, arrived, kCount * 4); },
          nullptr);
      device.record(1, Lane::device_to_host);
      device.wait(Lane::host_compute, 1);
      delay(device, Lane::host_compute, kMillisecond);
      device.enqueue(
          Lane::host_compute, "move", [=](Kernels& kernels) { kernels.upload(arrived, computed, kCount * 4); },
          nullptr);
      device.record(2, Lane::host_compute);
      device.wait(Lane::host_to_device, 2);
      delay(device, Lane::host_to_device, kMillisecond);
      device.enqueue(
          Lane::host_to_device, "up", [=](Kernels& kernels) { kernels.upload(computed, to, kCount * 4); }, nullptr);
      device.record(3, Lane::host_to_device);
      device.wait(Lane::compute, 3);
      EXPECT_EQ(get<float>(device, to, kCount), values) << round;
    }
  });
}

TEST_P(OffloadConformance, TheHostMayWaitForWhatTheHostComputes) {
  run(options(1, 4096), [](RankContext& rank) {
    int seen = 0;
    for (int i = 1; i <= 200; ++i) {
      rank.device.enqueue(
          Lane::host_compute, "count", [&seen, i](Kernels&) { seen = seen == i - 1 ? i : -1; }, nullptr);
    }
    rank.device.record(0, Lane::host_compute);
    rank.device.host_wait(0);
    EXPECT_EQ(seen, 200) << "one after another";
  });
}

TEST_P(OffloadConformance, OpsOnTheHostHaveStampsToo) {
  run(options(1, 4096), [](RankContext& rank) { (void)stamps_cover_delays(rank.device, Lane::host_compute); });
}

TEST_P(OffloadConformance, FreedPinnedMemoryIsPoisoned) {
  BackendOptions poisons = options(1, 4096);
  poisons.poison_freed_memory = true;
  run(poisons, [](RankContext& rank) {
    for (const Lane lane : {Lane::host_compute, Lane::device_to_host}) {
      std::byte* const block = rank.device.allocate_host(8, MemoryCategory::gradients, lane);
      const std::vector<float> values{1.0F, 2.0F};
      upload(rank.device, lane, values, block);
      rank.device.free(block, lane);
      rank.device.synchronize();
      for (const float value : get<float>(rank.device, block, 2)) EXPECT_TRUE(std::isnan(value)) << to_string(lane);
    }
  });
}

// The pool's choice of blocks does not depend on poisoning: a lane that may have one early waits for its filling.
TEST_P(OffloadConformance, AFillingDoesNotOverwriteTheNextUse) {
  constexpr std::int64_t kBytes = 16 << 20;
  BackendOptions poisons = options(1, kBytes);
  poisons.poison_freed_memory = true;
  run(poisons, [](RankContext& rank) {
    Device& device = rank.device;
    std::byte* const block = device.allocate_host(kBytes, MemoryCategory::gradients, Lane::device_to_host);
    delay(device, Lane::device_to_host, 0);
    device.record(0, Lane::device_to_host);
    device.free(block, Lane::device_to_host);
    device.wait(Lane::host_compute, 0);
    std::byte* const again = device.allocate_host(kBytes, MemoryCategory::gradients, Lane::host_compute);
    ASSERT_EQ(again, block);
    const std::vector<float> mine{42.0F};
    upload(device, Lane::host_compute, mine, again + kBytes - 4);
    device.record(1, Lane::host_compute);
    device.wait(Lane::compute, 1);
    EXPECT_EQ(get<float>(device, again + kBytes - 4, 1), mine);
  });
}

TEST_P(OffloadConformance, AnErrorOnTheHostNamesTheOpAndEndsAllRanks) {
  skip_unless(2);
  if (IsSkipped()) return;
  EXPECT_THAT(failure_of(GetParam(), options(2, 4096),
                         [](RankContext& rank) {
                           if (rank.rank == 1) {
                             rank.device.enqueue(
                                 Lane::host_compute, "update", [](Kernels&) { throw std::runtime_error("on purpose"); },
                                 nullptr);
                             rank.device.synchronize();
                             return;
                           }
                           std::byte* const buffer = reserve<float>(rank.device, 2);
                           rank.world.all_reduce(Lane::all_reduce, buffer, 2, DType::f32, 1.0F, nullptr);
                           rank.device.synchronize();
                         }),
              testing::HasSubstr("rank 1, lane host_compute, op update: on purpose"));
}

// Memory that a task refers to may go when a call has thrown: the task is over, or never begins.
TEST_P(OffloadConformance, WhenACallThrowsNoTaskOfTheRankRuns) {
  std::atomic<int> alive{1};
  std::atomic<int> late{0};
  failure_of(GetParam(), options(1, 4096), [&](RankContext& rank) {
    rank.device.enqueue(
        Lane::host_compute, "fails", [](Kernels&) { throw std::runtime_error("on purpose"); }, nullptr);
    try {
      for (int i = 0; i < 100'000; ++i) {
        rank.device.enqueue(
            Lane::host_compute, "count", [&](Kernels&) { late += alive == 0 ? 1 : 0; }, nullptr);
      }
      rank.device.synchronize();
    } catch (...) {
      alive = 0;
      throw;
    }
  });
  EXPECT_EQ(alive, 0) << "nothing was thrown";
  EXPECT_EQ(late, 0);
}

}  // namespace fsdpbench::backend
