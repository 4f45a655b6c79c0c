#pragma once

// Duties of every backend, written once. A backend's test file includes this header and instantiates the suites
// with a function that makes the backend:
//
//   INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance, testing::Values(&make_backend_under_test));
//
// A backend on hardware also says when it cannot be tried and how far its sums may be off (support.h).

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "backend/support.h"

namespace fsdpbench::backend {

/// Skips where the backend has no hardware for even one rank.
template <class Param>
class BackendConformance : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override { skip_unless(1); }
  static void skip_unless(int ranks) {
    if (const std::string why = why_skip(ranks); !why.empty()) GTEST_SKIP() << why;
  }
};

/// "3_ranks_1000_elements"
inline std::string sizes_name(const testing::TestParamInfo<std::tuple<MakeBackend, int, std::int64_t>>& test) {
  return fmt::format("{}_ranks_{}_elements", std::get<1>(test.param), std::get<2>(test.param));
}

class DeviceConformance : public BackendConformance<MakeBackend> {};

TEST_P(DeviceConformance, ALaneRunsInOrderAlsoBeyondItsQueueLength) {
  run(GetParam(), 1, [](RankContext& rank) {
    std::vector<int> seen;
    for (int i = 0; i < 5000; ++i) {
      rank.device.enqueue(
          Lane::compute, "note", [&seen, i](Kernels&) { seen.push_back(i); }, nullptr);
    }
    rank.device.synchronize();
    ASSERT_EQ(seen.size(), 5000U);
    for (int i = 0; i < 5000; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(i)], i);
  });
}

TEST_P(DeviceConformance, AWaitOrdersOneLaneAfterAnother) {
  run(GetParam(), 1, [](RankContext& rank) {
    Device& device = rank.device;
    std::byte* memory = reserve<int>(device, 1);
    for (int round = 0; round < 10; ++round) {
      const std::vector<int> written{round};
      std::vector<int> read{-1};
      delay(device, Lane::all_gather, kMillisecond);
      upload(device, Lane::all_gather, written, memory);
      device.record(3, Lane::all_gather);
      device.wait(Lane::compute, 3);
      download(device, Lane::compute, memory, read);
      device.synchronize();
      EXPECT_EQ(read, written);
    }
  });
}

TEST_P(DeviceConformance, WaitingForAnEventThatWasNeverRecordedIsANoOp) {
  run(GetParam(), 1, [](RankContext& rank) {
    delay(rank.device, Lane::all_gather, kMillisecond);
    rank.device.wait(Lane::compute, 17);
    rank.device.host_wait(18);
    rank.device.synchronize();
  });
}

TEST_P(DeviceConformance, RecordingAgainOverwrites) {
  run(GetParam(), 1, [](RankContext& rank) {
    Device& device = rank.device;
    std::byte* memory = reserve<int>(device, 1);
    const std::vector<int> first{1};
    const std::vector<int> second{2};
    std::vector<int> read{-1};
    upload(device, Lane::copy, first, memory);
    device.record(0, Lane::copy);
    delay(device, Lane::copy, 2 * kMillisecond);
    upload(device, Lane::copy, second, memory);
    device.record(0, Lane::copy);
    device.wait(Lane::compute, 0);
    download(device, Lane::compute, memory, read);
    device.synchronize();
    EXPECT_EQ(read, second);
  });
}

TEST_P(DeviceConformance, AWaitMeansTheRecordingItSaw) {
  run(GetParam(), 1, [](RankContext& rank) {
    Device& device = rank.device;
    device.record(0, Lane::all_gather);
    delay(device, Lane::compute, kMillisecond);
    device.wait(Lane::compute, 0);
    // Recorded again behind the lane that waits: had the wait meant this recording, it would wait for itself.
    device.record(1, Lane::compute);
    device.wait(Lane::all_gather, 1);
    delay(device, Lane::all_gather, kMillisecond);
    device.record(0, Lane::all_gather);
    device.host_wait(0);
    device.synchronize();
  });
}

TEST_P(DeviceConformance, HostWaitBlocksUntilTheEventIsComplete) {
  run(GetParam(), 1, [](RankContext& rank) {
    Device& device = rank.device;
    std::byte* memory = device.allocate(4, MemoryCategory::activations, Lane::compute);
    const std::vector<int> written{42};
    std::vector<int> read{0};
    delay(device, Lane::compute, 2 * kMillisecond);
    upload(device, Lane::compute, written, memory);
    download(device, Lane::compute, memory, read);
    device.record(5, Lane::compute);
    device.host_wait(5);
    EXPECT_EQ(read, written);
    device.synchronize();
  });
}

/// Issues two ops on `lane`, the second after the first; returns the first one's stamp.
inline Stamp stamps_cover_delays(Device& device, Lane lane) {
  Stamp first, second;
  delay(device, lane, 2 * kMillisecond, &first);
  delay(device, lane, kMillisecond, &second);
  device.synchronize();
  device.settle_stamps();
  EXPECT_GE(first.end_ns - first.begin_ns, 2 * kMillisecond);
  EXPECT_GE(second.end_ns - second.begin_ns, kMillisecond);
  EXPECT_GE(second.begin_ns, first.end_ns);
  return first;
}

TEST_P(DeviceConformance, StampsCoverTheirOpsAndFollowTheLane) {
  run(GetParam(), 1,
      [](RankContext& rank) { EXPECT_EQ(stamps_cover_delays(rank.device, Lane::compute).peers_arrived_ns, 0); });
}

TEST_P(DeviceConformance, AFreedBlockIsReusedBySameLaneAtOnceByAnotherOnceOrdered) {
  run(GetParam(), 1, [](RankContext& rank) {
    Device& device = rank.device;
    std::byte* block = nullptr;
    /// True if the block that `lane` gets is one that was freed.
    const auto reuses = [&](Lane lane) {
      const std::int64_t before = device.memory().reuses;
      block = device.allocate(1 << 20, MemoryCategory::gradients, lane);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 512, 0U);
      return device.memory().reuses > before;
    };
    const auto use_and_free = [&](Lane lane) {
      delay(device, lane, 0);
      device.free(block, lane);
    };
    EXPECT_FALSE(reuses(Lane::compute));
    use_and_free(Lane::compute);
    EXPECT_TRUE(reuses(Lane::compute));

    use_and_free(Lane::compute);
    EXPECT_FALSE(reuses(Lane::all_gather)) << "all_gather is not ordered after compute";
    use_and_free(Lane::all_gather);

    device.record(0, Lane::compute);
    device.wait(Lane::reduce_scatter, 0);
    EXPECT_TRUE(reuses(Lane::reduce_scatter));

    use_and_free(Lane::reduce_scatter);
    device.record(1, Lane::reduce_scatter);
    device.host_wait(1);
    EXPECT_TRUE(reuses(Lane::copy)) << "the host saw reduce_scatter's end: every lane comes after it";
    EXPECT_EQ(device.memory().reserved, 2 << 20);
  });
}

TEST_P(DeviceConformance, MemoryIsCountedByCategory) {
  run(GetParam(), 1, [](RankContext& rank) {
    Device& device = rank.device;
    std::byte* a = device.allocate(1000, MemoryCategory::optimizer, Lane::compute);
    std::byte* b = device.allocate(512, MemoryCategory::gradients, Lane::compute);
    EXPECT_EQ(device.memory().live[index_of(MemoryCategory::optimizer)], 1024);
    EXPECT_EQ(device.memory().live_total, 1536);
    device.free(a, Lane::compute);
    EXPECT_EQ(device.memory().live_total, 512);
    EXPECT_EQ(device.memory().peak_occupied_total, 1536);
    device.reset_memory_peaks();
    EXPECT_EQ(device.memory().peak_occupied_total, 512);
    device.free(b, Lane::compute);
  });
}

TEST_P(DeviceConformance, AskingForTooMuchMemoryNamesBytesAndCategory) {
  try {
    run(GetParam(), 1, [](RankContext& rank) {
      rank.device.allocate(std::int64_t{1} << 55, MemoryCategory::unsharded_parameters, Lane::compute);
    });
    FAIL() << "nothing was thrown";
  } catch (const ResourceError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("32.00 PiB for unsharded_parameters"));
  }
}

TEST_P(DeviceConformance, ZeroBytesHaveAnAddress) {
  run(GetParam(), 1, [](RankContext& rank) {
    EXPECT_NE(rank.device.allocate(0, MemoryCategory::activations, Lane::compute), nullptr);
  });
}

class CollectiveConformance : public BackendConformance<std::tuple<MakeBackend, int, std::int64_t>> {};

TEST_P(CollectiveConformance, Fp32) {
  const auto [make, ranks, count] = GetParam();
  run(make, ranks, [count = count](RankContext& rank) { check_collectives<float>(rank, count); });
}

TEST_P(CollectiveConformance, Bf16) {
  const auto [make, ranks, count] = GetParam();
  run(make, ranks, [count = count](RankContext& rank) { check_collectives<std::uint16_t>(rank, count); });
}

/// Promises of a backend that sums in rank order and sees the calls of all ranks.
class StrictCommunicatorConformance : public BackendConformance<MakeBackend> {};

TEST_P(StrictCommunicatorConformance, AnElementGetsTheSameBitsWhateverCarriesIt) {
  constexpr std::int64_t kCount = 1003;
  run(GetParam(), 3, [](RankContext& rank) {
    std::byte* message = put(rank.device, values_of<float>(rank.rank, 0, 3 * kCount));
    std::byte* shard = reserve<float>(rank.device, kCount);
    rank.world.reduce_scatter(Lane::reduce_scatter, message, shard, kCount, DType::f32, 0.3F, nullptr);
    const std::vector<float> scattered = get<float>(rank.device, shard, kCount);
    rank.world.all_reduce(Lane::all_reduce, message, 3 * kCount, DType::f32, 0.3F, nullptr);
    const std::vector<float> reduced = get<float>(rank.device, message + rank.rank * kCount * 4, kCount);
    EXPECT_EQ(scattered, reduced);
  });
}

/// All backends have an all-to-all; not every test program of one tries it.
class ExchangeConformance : public BackendConformance<std::tuple<MakeBackend, int, std::int64_t>> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ExchangeConformance);

TEST_P(ExchangeConformance, EachRankGetsItsSliceOfEveryInput) {
  const auto [make, ranks, count] = GetParam();
  run(make, ranks, [count = count](RankContext& rank) {
    const int size = rank.world.size();
    std::byte* input = put(rank.device, values_of<float>(rank.rank, 0, size * count));
    std::byte* output = reserve<float>(rank.device, size * count);
    rank.world.all_to_all(Lane::reduce_scatter, input, output, count, DType::f32, nullptr);
    std::vector<float> expected;
    for (int from = 0; from < size; ++from) {
      const std::vector<float> slice = values_of<float>(from, rank.rank * count, count);
      expected.insert(expected.end(), slice.begin(), slice.end());
    }
    EXPECT_EQ(get<float>(rank.device, output, size * count), expected);
    EXPECT_EQ(rank.world.wire_bytes(), (WireBytes{0, 0, 0, 0, (size - 1) * count * 4}));
    // Single bytes, as quantised numbers are; and the way back brings everything home.
    rank.world.all_to_all(Lane::reduce_scatter, output, input, 4 * count, DType::u8, nullptr);
    EXPECT_EQ(get<float>(rank.device, input, size * count), values_of<float>(rank.rank, 0, size * count));
  });
}

TEST_P(ExchangeConformance, EachRankGetsTheMessageOfTheOneBefore) {
  const auto [make, ranks, count] = GetParam();
  run(make, ranks, [count = count](RankContext& rank) {
    const int size = rank.world.size();
    std::byte* input = put(rank.device, values_of<float>(rank.rank, 0, count));
    std::byte* output = reserve<float>(rank.device, count);
    rank.world.enqueue(Lane::all_gather, {Collective::send_recv, input, output, count, DType::f32}, nullptr);
    EXPECT_EQ(get<float>(rank.device, output, count), values_of<float>((rank.rank + size - 1) % size, 0, count));
    EXPECT_EQ(rank.world.wire_bytes(), (WireBytes{0, 0, 0, 0, 0, size > 1 ? count * 4 : 0}));
  });
}

class CommunicatorConformance : public BackendConformance<MakeBackend> {};

TEST_P(CommunicatorConformance, SplitsIntoShardAndReplicateGroups) {
  constexpr std::int64_t kCount = 101;
  run(GetParam(), 6, [](RankContext& rank) {  // 3 shards x 2 replicas
    const auto shard = rank.world.split(rank.rank / 3, rank.rank);
    const auto replicate = rank.world.split(rank.rank % 3, rank.rank);
    ASSERT_EQ(shard->size(), 3);
    ASSERT_EQ(shard->rank(), rank.rank % 3);
    ASSERT_EQ(replicate->size(), 2);
    ASSERT_EQ(replicate->rank(), rank.rank / 3);
    const int first = rank.rank / 3 * 3;
    const std::int64_t mine = shard->rank() * kCount;
    std::byte* message = put(rank.device, values_of<float>(rank.rank, 0, 3 * kCount));
    std::byte* sums = reserve<float>(rank.device, kCount);
    shard->reduce_scatter(Lane::reduce_scatter, message, sums, kCount, DType::f32, 1.0F, nullptr);
    const std::vector<float> in_group = get<float>(rank.device, sums, kCount);
    expect_sums(in_group, sum_of<float>({first, first + 1, first + 2}, mine, kCount, 1.0F));
    replicate->all_reduce(Lane::all_reduce, sums, kCount, DType::f32, 1.0F, nullptr);
    std::vector<float> total = sum_of<float>({0, 1, 2}, mine, kCount, 1.0F);
    const std::vector<float> other = sum_of<float>({3, 4, 5}, mine, kCount, 1.0F);
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += other[i];
    expect_sums(get<float>(rank.device, sums, kCount), total);
  });
}

TEST_P(CommunicatorConformance, ReduceScatterMayReplaceItsOwnPartOfTheInput) {
  constexpr std::int64_t kCount = 10'000;
  run(GetParam(), 3, [](RankContext& rank) {
    const std::vector<float> ones(static_cast<std::size_t>(3 * kCount), static_cast<float>(rank.rank + 1));
    std::byte* message = put(rank.device, ones);
    std::byte* mine = message + rank.rank * kCount * 4;
    rank.world.reduce_scatter(Lane::reduce_scatter, message, mine, kCount, DType::f32, 1.0F, nullptr);
    EXPECT_EQ(get<float>(rank.device, mine, kCount), std::vector<float>(kCount, 6.0F));
  });
}

TEST_P(CommunicatorConformance, SplitOrdersByKeyThenRank) {
  run(GetParam(), 4, [](RankContext& rank) {
    const auto reversed = rank.world.split(7, -rank.rank);
    EXPECT_EQ(reversed->rank(), 3 - rank.rank);
    const auto equal_keys = reversed->split(0, 5);
    EXPECT_EQ(equal_keys->rank(), reversed->rank());
    const auto alone = rank.world.split(rank.rank, 0);
    EXPECT_EQ(alone->size(), 1);
  });
}

TEST_P(CommunicatorConformance, TwoCommunicatorsRunAtOnce) {
  constexpr std::int64_t kCount = 5000;
  run(GetParam(), 3, [](RankContext& rank) {
    const auto second = rank.world.split(0, rank.rank);
    std::byte* shard = put(rank.device, values_of<float>(rank.rank, 0, kCount));
    std::byte* message = put(rank.device, values_of<float>(rank.rank, 0, 3 * kCount));
    std::byte* full = reserve<float>(rank.device, 3 * kCount);
    std::byte* sums = reserve<float>(rank.device, kCount);
    for (int i = 0; i < 50; ++i) {
      rank.world.all_gather(Lane::all_gather, shard, full, kCount, DType::f32, nullptr);
      second->reduce_scatter(Lane::reduce_scatter, message, sums, kCount, DType::f32, 1.0F, nullptr);
    }
    EXPECT_EQ(get<float>(rank.device, full + 2 * kCount * 4, kCount), values_of<float>(2, 0, kCount));
    expect_sums(get<float>(rank.device, sums, kCount), sum_of<float>({0, 1, 2}, rank.rank * kCount, kCount, 1.0F));
  });
}

TEST_P(CommunicatorConformance, CollectivesOfOneCommunicatorKeepIssueOrderAcrossLanes) {
  run(GetParam(), 2, [](RankContext& rank) {
    Device& device = rank.device;
    std::byte* a = reserve<float>(device, 2);
    std::byte* b = reserve<float>(device, 2);
    Stamp first;
    Stamp second;
    delay(device, Lane::reduce_scatter, 3 * kMillisecond);
    rank.world.all_reduce(Lane::reduce_scatter, a, 2, DType::f32, 1.0F, &first);
    rank.world.all_reduce(Lane::all_gather, b, 2, DType::f32, 1.0F, &second);  // its lane is idle at once
    device.synchronize();
    device.settle_stamps();
    EXPECT_GE(second.begin_ns, first.end_ns);
  });
}

TEST_P(StrictCommunicatorConformance, TheStampTellsWhenTheLastPeerArrived) {
  run(GetParam(), 2, [](RankContext& rank) {
    std::byte* buffer = reserve<float>(rank.device, 2);
    Stamp late;
    Stamp stamp;
    if (rank.rank == 1) delay(rank.device, Lane::all_gather, 5 * kMillisecond, &late);
    rank.world.barrier();
    rank.world.all_reduce(Lane::all_gather, buffer, 2, DType::f32, 1.0F, &stamp);
    rank.device.synchronize();
    rank.device.settle_stamps();
    EXPECT_GE(stamp.peers_arrived_ns, late.end_ns);
    EXPECT_GE(stamp.peers_arrived_ns, stamp.begin_ns);
    EXPECT_LE(stamp.peers_arrived_ns, stamp.end_ns);
  });
}

TEST_P(StrictCommunicatorConformance, DifferentCollectivesAreAnErrorNotAHang) {
  BackendOptions options;
  options.ranks = 3;
  EXPECT_THAT(failure_of(GetParam(), options,
                         [](RankContext& rank) {
                           std::byte* buffer = reserve<float>(rank.device, 24);
                           if (rank.rank == 1) {
                             rank.world.all_reduce(Lane::all_gather, buffer, 8, DType::f32, 1.0F, nullptr);
                           } else {
                             rank.world.all_gather(Lane::all_gather, buffer, buffer, 8, DType::f32, nullptr);
                           }
                           rank.device.synchronize();
                         }),
              testing::HasSubstr("the ranks call different collectives"));
}

TEST_P(CommunicatorConformance, CountsWireBytesAsARingWould) {
  run(GetParam(), 4, [](RankContext& rank) {
    std::byte* full = reserve<float>(rank.device, 400);
    std::byte* shard = reserve<float>(rank.device, 100);
    Communicator& world = rank.world;
    world.all_gather(Lane::all_gather, shard, full, 100, DType::f32, nullptr);
    world.all_gather(Lane::all_gather, shard, full, 100, DType::bf16, nullptr);
    world.reduce_scatter(Lane::reduce_scatter, full, shard, 100, DType::f32, 1.0F, nullptr);
    world.all_reduce(Lane::all_reduce, full, 400, DType::f32, 1.0F, nullptr);
    world.broadcast(Lane::copy, full, 400, DType::f32, 0, nullptr);
    rank.device.synchronize();
    EXPECT_EQ(world.wire_bytes(), (WireBytes{3 * 400 + 3 * 200, 3 * 400, 2 * 3 * 400, 3 * 400, 0}));
  });
}

TEST_P(CommunicatorConformance, BarrierHoldsTheHostUntilAllHaveCome) {
  std::atomic<int> arrived{0};
  run(GetParam(), 4, [&](RankContext& rank) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      rank.world.barrier();
      EXPECT_GE(arrived.load(), 4 * round);
      rank.world.barrier();
    }
  });
}

}  // namespace fsdpbench::backend
