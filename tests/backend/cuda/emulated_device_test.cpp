// The CUDA device on an imagined GPU: what goes wrong there, what it says of itself, and its memory.

#include <cmath>
#include <set>

#include "backend/cuda/emulated_support.h"
#include "base/clock.h"
#include "base/lane_blocks.h"

namespace fsdpbench::backend {
namespace {

using ::testing::HasSubstr;

class EmulatedCudaDevice : public testing::Test {
 protected:
  void run(const Body& body) { make_cuda()->run(options_, body); }
  std::string failure(const Body& body) { return failure_of(&make_cuda, options_, body); }

  BackendOptions options_;
  FakeGpus gpus_{8};
};

TEST_F(EmulatedCudaDevice, AWaitForWorkThatHangsEndsAndNamesTheOp) {
  options_.set<CudaOptions>().nccl.timeout_s = 0.05;
  StuckOp stuck;
  EXPECT_EQ(failure([&](RankContext& rank) {
              rank.device.set_op(7, 42);
              delay(rank.device, Lane::compute, 0);
              stuck.enqueue(rank, Lane::copy);
              rank.device.record(0, Lane::copy);
              rank.device.wait(Lane::compute, 0);
              delay(rank.device, Lane::compute, 0);
              try {
                rank.device.host_wait(0);
              } catch (...) {
                stuck.release();
                throw;
              }
            }),
            "rank 0: nothing has completed on its GPU for 0.05 s; the oldest unfinished op is stuck (step 7, op 42) on "
            "lane copy");
}

TEST_F(EmulatedCudaDevice, WorkThatGetsOnIsWaitedForHoweverLongItTakes) {
  options_.set<CudaOptions>().nccl.timeout_s = 0.2;  // and a second of grace
  run([](RankContext& rank) {
    for (int i = 0; i < 40; ++i) delay(rank.device, Lane::compute, 50 * kMillisecond);
    rank.device.synchronize();
  });
}

TEST_F(EmulatedCudaDevice, ABrokenGpuIsNamedWithTheOpThatWasRunning) {
  options_.pool_bytes = 512;  // which nothing gives back to a broken GPU
  StuckOp stuck;
  EXPECT_EQ(
      failure([&](RankContext& rank) {
        stuck.enqueue(rank, Lane::compute);
        fake::break_device(0, cudaErrorIllegalAddress);
        stuck.release();
        rank.device.synchronize();
      }),
      "rank 0, waiting for its GPU (the oldest unfinished op is stuck on lane compute): an illegal memory access was "
      "encountered (cudaErrorIllegalAddress)");
}

TEST_F(EmulatedCudaDevice, AnErrorInAnOpNamesRankLaneAndOp) {
  EXPECT_EQ(failure([](RankContext& rank) {
              fake::fail_call("cudaMemsetAsync", cudaErrorInvalidValue);
              rank.device.enqueue(
                  Lane::reduce_scatter, "zero", [](Kernels& kernels) { kernels.fill_zero(nullptr, 8); }, nullptr);
            }),
            "rank 0, lane reduce_scatter, op zero: fill_zero: invalid argument (cudaErrorInvalidValue)");
}

TEST_F(EmulatedCudaDevice, OutOfMemoryNamesEverythingAndLeavesThePoolAsItWas) {
  run([](RankContext& rank) {
    std::byte* first = rank.device.allocate(1 << 20, MemoryCategory::activations, Lane::compute);
    try {
      rank.device.allocate(std::int64_t{1} << 30, MemoryCategory::gradients, Lane::compute);
      FAIL() << "nothing was thrown";
    } catch (const ResourceError& e) {
      EXPECT_THAT(e.what(),
                  testing::MatchesRegex("rank 0 cannot allocate 1.00 GiB for gradients: 1.00 MiB are in use by "
                                        "its pool, and of its GPU's 8.00 GiB are 6[.0-9]* GiB free"));
    }
    EXPECT_EQ(rank.device.memory().live_total, 1 << 20);
    EXPECT_NE(rank.device.allocate(3 << 20, MemoryCategory::gradients, Lane::compute), nullptr);
    rank.device.free(first, Lane::compute);
  });
}

TEST_F(EmulatedCudaDevice, MoreThanTheGpuHasIsRefusedBeforeTheFirstOp) {
  options_.pool_bytes = std::int64_t{100} << 30;
  EXPECT_EQ(failure([](RankContext&) { FAIL() << "the body was called"; }),
            "the GPU has not the 100.00 GiB of memory that this run needs");
}

TEST_F(EmulatedCudaDevice, AllMemoryIsGivenBackAlsoAfterAFailure) {
  const std::int64_t before = fake::live_bytes(0);
  run([](RankContext& rank) { rank.device.allocate(1 << 20, MemoryCategory::activations, Lane::copy); });
  EXPECT_EQ(fake::live_bytes(0), before);
  failure([](RankContext& rank) {
    rank.device.allocate(1 << 20, MemoryCategory::activations, Lane::copy);
    throw std::runtime_error("on purpose");
  });
  EXPECT_EQ(fake::live_bytes(0), before);
}

/// Two values of a block that was freed, read from one region where that does no harm.
std::vector<float> after_free(BackendOptions options, bool poison) {
  options.set<CudaOptions>().nccl.registration = NcclOptions::Register::window;
  options.category_bytes.fill(1 << 20);
  options.poison_freed_memory = poison;
  std::vector<float> seen;
  make_cuda()->run(options, [&](RankContext& rank) {
    const std::vector<float> values{1.0F, 2.0F};
    std::byte* block = rank.device.allocate(8, MemoryCategory::gradients, Lane::compute);
    upload(rank.device, Lane::compute, values, block);
    rank.device.synchronize();
    rank.device.free(block, Lane::compute);
    seen = get<float>(rank.device, block, 2);
  });
  return seen;
}

TEST_F(EmulatedCudaDevice, PoisonFillsFreedMemoryWithNaN) {
  for (const float value : after_free(options_, true)) EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(after_free(options_, false), (std::vector<float>{1.0F, 2.0F}));
}

TEST_F(EmulatedCudaDevice, ARegionHoldsWhatIsCommunicatedAndNothingElse) {
  options_.set<CudaOptions>().nccl.registration = NcclOptions::Register::window;
  options_.category_bytes.fill(1 << 20);
  run([](RankContext& rank) {
    const std::span<std::byte> region = lanes_of(rank).communication_memory();
    EXPECT_EQ(region.size(), 4U << 20) << "of six categories";
    std::set<const std::byte*> begins;
    for (const MemoryCategory category : kMemoryCategories) {
      const std::byte* const block = rank.device.allocate(1 << 20, category, Lane::compute);
      const bool inside = block >= region.data() && block < region.data() + region.size();
      EXPECT_EQ(inside, category != MemoryCategory::activations && category != MemoryCategory::optimizer)
          << to_string(category);
      begins.insert(block);
    }
    EXPECT_EQ(begins.size(), kMemoryCategoryCount);
  });
}

TEST_F(EmulatedCudaDevice, ARegionLaysBlocksOutAsTheBookkeepingDoes) {
  options_.set<CudaOptions>().nccl.registration = NcclOptions::Register::local;
  options_.category_bytes[index_of(MemoryCategory::gradients)] = 4 << 20;
  run([](RankContext& rank) {
    const std::span<std::byte> region = lanes_of(rank).communication_memory();
    ASSERT_EQ(region.size(), 4U << 20);
    std::byte* a = rank.device.allocate(1 << 20, MemoryCategory::gradients, Lane::compute);
    EXPECT_EQ(a, region.data());
    delay(rank.device, Lane::compute, 0);
    rank.device.free(a, Lane::compute);
    EXPECT_EQ(rank.device.allocate(1 << 20, MemoryCategory::gradients, Lane::copy), region.data() + (1 << 20));
    EXPECT_THROW(rank.device.allocate(3 << 20, MemoryCategory::gradients, Lane::copy), ResourceError);
  });
}

TEST_F(EmulatedCudaDevice, ALaneThatWaitedForAnEventBeforeTheFillMayReuseABlockOfARegion) {
  constexpr std::int64_t kBytes = 16 << 20;  // filling takes milliseconds, writing the last element does not
  options_.set<CudaOptions>().nccl.registration = NcclOptions::Register::window;
  options_.category_bytes[index_of(MemoryCategory::gradients)] = kBytes;
  options_.poison_freed_memory = true;
  run([](RankContext& rank) {
    Device& device = rank.device;
    std::byte* block = device.allocate(kBytes, MemoryCategory::gradients, Lane::compute);
    delay(device, Lane::compute, 0);
    device.record(0, Lane::compute);
    device.free(block, Lane::compute);
    device.wait(Lane::all_gather, 0);
    std::byte* again = device.allocate(kBytes, MemoryCategory::gradients, Lane::all_gather);
    ASSERT_EQ(again, block) << "the pool's choice must not depend on poisoning";
    const std::vector<float> mine{42.0F};
    upload(device, Lane::all_gather, mine, again + kBytes - 4);
    device.record(1, Lane::all_gather);
    device.wait(Lane::compute, 1);
    EXPECT_EQ(get<float>(device, again + kBytes - 4, 1), mine);
  });
}

TEST_F(EmulatedCudaDevice, EventStampsLieOnTheHostsClock) {
  options_.set<CudaOptions>().timer = Timer::events;
  run([](RankContext& rank) {
    Device& device = rank.device;
    for (int step = 0; step < 3; ++step) {
      Stamp first;
      Stamp second;
      const std::int64_t before = now_ns();
      delay(device, Lane::all_gather, 3 * kMillisecond, &first);
      delay(device, Lane::compute, 2 * kMillisecond, &second);
      device.synchronize();
      EXPECT_EQ(first.end_ns, 0) << "written before they are settled";
      device.settle_stamps();
      const std::int64_t settled = now_ns();
      for (const Stamp& stamp : {first, second}) {
        EXPECT_GE(stamp.begin_ns, before);
        EXPECT_LE(stamp.end_ns, settled);
      }
      // Single precision over the milliseconds.
      EXPECT_GE(first.end_ns - first.begin_ns, 3 * kMillisecond - 1000);
      EXPECT_GE(second.end_ns - second.begin_ns, 2 * kMillisecond - 1000);
    }
    EXPECT_THAT(fact(device.facts(), "timer"), HasSubstr("CUDA events around each op"));
    EXPECT_TRUE(device.take_activities().all.empty());
  });
}

TEST_F(EmulatedCudaDevice, CommunicationHasAGreaterPriorityThanCompute) {
  run([](RankContext& rank) {
    const auto priority = [&](Lane lane) {
      int value = 0;
      cudaStreamGetPriority(lanes_of(rank).stream(lane), &value);
      return value;
    };
    for (const Lane lane : kLanes) {
      if (lane == Lane::compute) continue;
      EXPECT_LT(priority(lane), priority(Lane::compute)) << to_string(lane);
    }
    EXPECT_EQ(fact(rank.device.facts(), "stream priorities"), "compute 0, others -5");
  });
}

TEST_F(EmulatedCudaDevice, TellsWhatTheMemoryOfTheGpuWentTo) {
  options_.pool_bytes = 64 << 20;
  run([](RankContext& rank) {
    std::byte* block = rank.device.allocate(2 << 20, MemoryCategory::gradients, Lane::compute);
    const Facts facts = rank.device.facts();
    EXPECT_EQ(fact(facts, "pool reserved at most"), "64.00 MiB, one region, all of it before the first op");
    EXPECT_EQ(fact(facts, "GPU memory: CUDA context, and other programs on this GPU"), "300.00 MiB");
    EXPECT_THAT(fact(facts, "GPU memory: in use on the whole device"), HasSubstr("of 8.00 GiB"));
    EXPECT_NE(fact(facts, "nccl"), "");
    rank.device.free(block, Lane::compute);
  });
}

TEST_F(EmulatedCudaDevice, BlocksOfOneRegionLieWhereTheBookkeepingPutsThem) {
  options_.pool_bytes = 1 << 20;
  run([](RankContext& rank) {
    Device& device = rank.device;
    std::byte* const a = device.allocate(1024, MemoryCategory::gradients, Lane::compute);
    std::byte* const b = device.allocate(512, MemoryCategory::activations, Lane::compute);
    EXPECT_EQ(b, a + 1024) << "one region for all categories";
    device.free(a, Lane::compute);
    EXPECT_EQ(device.allocate(512, MemoryCategory::optimizer, Lane::compute), a);
    EXPECT_THROW(device.allocate(1 << 20, MemoryCategory::optimizer, Lane::compute), ResourceError);
  });
}

TEST_F(EmulatedCudaDevice, ManyOpsInFlightAreForgottenAsTheyEnd) {
  run([](RankContext& rank) {
    for (int i = 0; i < 20'000; ++i) delay(rank.device, Lane::compute, 0);
    rank.device.synchronize();
  });
}

}  // namespace
}  // namespace fsdpbench::backend
