// The buffers that CUPTI fills, and the thread that reads them.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "backend/cuda/cupti_support.h"

namespace fsdpbench::backend::cuda {
namespace {

TEST_F(CuptiTest, BuffersAreZeroedAlignedAndComeBack) {
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  for (int round = 0; round < 100; ++round) {
    const cupti::Buffer buffer = cupti::request();
    ASSERT_NE(buffer.data, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data) % 8, 0U);
    EXPECT_TRUE(std::all_of(buffer.data, buffer.data + buffer.bytes, [](std::uint8_t b) { return b == 0; }));
    const auto record = fake::kernel_record(static_cast<std::uint32_t>(round), {});
    std::memcpy(buffer.data, &record, sizeof record);
    cupti::complete(buffer, sizeof record);
    collector.flush();
  }
  EXPECT_EQ(collector.pool().in_use(), 0U);
  EXPECT_EQ(collector.losses().shortages, 0);
  collector.stop();
}

TEST_F(CuptiTest, AStormOfRequestsGetsTheScratchBufferAndIsCounted) {
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  std::vector<cupti::Buffer> buffers;
  for (int i = 0; i < 1000; ++i) {
    buffers.push_back(cupti::request());
    ASSERT_NE(buffers.back().data, nullptr);
  }
  std::set<std::uint8_t*> different;
  for (const cupti::Buffer& buffer : buffers) different.insert(buffer.data);
  EXPECT_EQ(different.size(), 9U);  // four large, four small, the scratch buffer
  const auto record = fake::kernel_record(1, {});
  for (const cupti::Buffer& buffer : buffers) {
    std::memcpy(buffer.data, &record, sizeof record);
    cupti::complete(buffer, sizeof record);
  }
  collector.flush();
  EXPECT_EQ(collector.losses().shortages, 992);
  EXPECT_EQ(collector.losses().lost_bytes, 992 * static_cast<std::int64_t>(sizeof record));
  EXPECT_EQ(collector.pool().in_use(), 0U);
  CuptiTimer timer(collector, nullptr, kShort);
  EXPECT_EQ(facts(timer).count("record buffers dropped"), 1U);
  collector.stop();
}

TEST_F(CuptiTest, OnlyThreadsThatIssueOpsGetLargeBuffers) {
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  std::size_t of_nccl = 0, of_rank = 0;
  std::thread([&] { of_nccl = cupti::request().bytes; }).join();
  std::thread([&] {
    CuptiTimer timer(collector, nullptr, kShort);
    of_rank = cupti::request().bytes;
  }).join();
  EXPECT_EQ(of_nccl, kFew.small_bytes);
  EXPECT_EQ(of_rank, kFew.large_bytes);
  collector.stop();
}

TEST_F(CuptiTest, EmptyAndDamagedBuffersDoNoHarm) {
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  cupti::complete(cupti::request(), 0);
  cupti::complete({nullptr, 0}, 0);
  const cupti::Buffer damaged = cupti::request();
  std::memset(damaged.data, 0xee, 64);
  cupti::complete(damaged, 64);
  collector.flush();
  EXPECT_EQ(collector.table().counts().damaged, 1);
  EXPECT_EQ(collector.pool().in_use(), 0U);
  collector.stop();
}

TEST_F(CuptiTest, BuffersAfterTheEndAreTakenAndDropped) {
  cupti::Buffer late;
  {
    Collector collector(cupti::api(), kFew);
    ASSERT_EQ(collector.start(), "");
    const cupti::Buffer kept = cupti::request();
    collector.stop();
    const auto record = fake::kernel_record(1, {});
    std::memcpy(kept.data, &record, sizeof record);
    cupti::complete(kept, sizeof record);
    ASSERT_EQ(collector.start(), "");  // and goes on
    collector.stop();
  }
  late = cupti::request();
  ASSERT_NE(late.data, nullptr);
  cupti::complete(late, 8);
}

TEST_F(CuptiTest, ManyThreadsMayFillBuffersAtOnce) {
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  std::vector<std::thread> threads;
  std::atomic<std::uint32_t> next{1};
  std::atomic<int> scratch{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const cupti::Buffer buffer = cupti::request();
        if (collector.pool().is_scratch(buffer.data)) {
          ++scratch;
          cupti::complete(buffer, 0);
          continue;
        }
        const auto record = fake::kernel_record(next++, {});
        std::memcpy(buffer.data, &record, sizeof record);
        cupti::complete(buffer, sizeof record);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  collector.flush();
  EXPECT_EQ(collector.table().size(), 1600U - static_cast<std::size_t>(scratch));
  EXPECT_EQ(collector.pool().in_use(), 0U);
  collector.stop();
}

TEST_F(CuptiTest, OneThreadReadsAndItIsNoneOfCuptis) {
  // The fake's walk over a buffer says on which thread it happens.
  static std::mutex mutex;
  static std::set<std::thread::id> readers;
  readers.clear();
  CuptiApi api = cupti::api();
  static decltype(CuptiApi::get_next_record) walk;
  walk = api.get_next_record;
  api.get_next_record = [](std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
    const std::lock_guard lock(mutex);
    readers.insert(std::this_thread::get_id());
    return walk(buffer, valid, record);
  };
  Collector collector(api, kFew);
  ASSERT_EQ(collector.start(), "");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        cupti::launch_kernel({"k", 0, 1, 1, 2, 0});
        collector.flush();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(readers, std::set<std::thread::id>{collector.reader()});
  collector.stop();
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
