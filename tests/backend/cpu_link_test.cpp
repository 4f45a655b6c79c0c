// The modelled link: exact times of the model itself, and what collectives make of it.

#include "backend/cpu/link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>

#include "backend/copy_kernels.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/support.h"

namespace fsdpbench::backend {
namespace {

constexpr LinkModel kLink{.bytes_per_second = 1e9, .latency_seconds = 10e-6};  // a byte a nanosecond
constexpr std::array<int, 2> kBoth{0, 1};
constexpr std::array<int, 1> kFirst{0};

class LinksTest : public testing::Test {
 protected:
  cpu::Links links(const std::vector<double>& slowdown = {}) { return {abort_, kLink, 2, slowdown}; }
  launch::Abort abort_;
};

TEST_F(LinksTest, ATransferTakesLatencyTimesHopsPlusBytesOverBandwidth) {
  auto l = links();
  EXPECT_EQ(l.begin(kBoth, 1'000'000, 3, 500)->end_ns, 500 + 30'000 + 1'000'000);
  EXPECT_EQ(l.begin(kBoth, 0, 2, 9'000'000)->end_ns, 9'020'000);
  EXPECT_EQ(l.begin(kBoth, 0, 0, 9'500'000)->end_ns, 9'500'000);
}

TEST_F(LinksTest, TheSlowestMembersLinkDecides) {
  auto l = links({1.0, 4.0});
  EXPECT_EQ(l.begin(kBoth, 1'000'000, 0, 0)->end_ns, 4'000'000);
  EXPECT_EQ(l.begin(kFirst, 1'000'000, 0, 10'000'000)->end_ns, 11'000'000);
}

TEST_F(LinksTest, TwoTransfersAtOnceGetHalfTheBandwidthEach) {
  auto l = links();
  const auto a = l.begin(kBoth, 1'000'000, 0, 0);
  const auto b = l.begin(kBoth, 1'000'000, 0, 0);
  EXPECT_EQ(a->end_ns, 2'000'000);
  EXPECT_EQ(b->end_ns, 2'000'000);
}

TEST_F(LinksTest, ALaterTransferSharesOnlyWhileTheEarlierLasts) {
  auto l = links();
  const auto a = l.begin(kBoth, 1'000'000, 0, 0);
  const auto b = l.begin(kBoth, 1'000'000, 0, 500'000);
  EXPECT_EQ(a->end_ns, 1'500'000);  // 0.5 alone, 0.5 at half speed
  EXPECT_EQ(b->end_ns, 2'000'000);  // 0.5 of its bytes go at half speed, 0.5 alone
}

TEST_F(LinksTest, ThreeTransfersGetAThirdEach) {
  auto l = links();
  const auto a = l.begin(kFirst, 300'000, 0, 0);
  const auto b = l.begin(kFirst, 600'000, 0, 0);
  const auto c = l.begin(kFirst, 900'000, 0, 0);
  EXPECT_EQ(a->end_ns, 900'000);
  EXPECT_EQ(b->end_ns, 1'500'000);
  EXPECT_EQ(c->end_ns, 1'800'000);
}

TEST_F(LinksTest, LatencyIsNotShared) {
  auto l = links();
  const auto a = l.begin(kFirst, 5'000, 1, 0);    // bytes flow from 10 us to 15 us
  const auto b = l.begin(kFirst, 100'000, 2, 0);  // from 20 us
  EXPECT_EQ(a->end_ns, 15'000);
  EXPECT_EQ(b->end_ns, 120'000);
}

TEST_F(LinksTest, OtherRanksLinksDoNotMatter) {
  auto l = links();
  const auto a = l.begin(kFirst, 1'000'000, 0, 0);
  const std::array<int, 1> second{1};
  const auto b = l.begin(second, 1'000'000, 0, 0);
  EXPECT_EQ(a->end_ns, 1'000'000);
  EXPECT_EQ(b->end_ns, 1'000'000);
}

TEST_F(LinksTest, BytesAreConserved) {
  auto l = links();
  std::vector<std::shared_ptr<cpu::Transfer>> transfers;
  for (int i = 0; i < 50; ++i) transfers.push_back(l.begin(kFirst, 100'000 + 1'000 * i, 0, 10'000 * i));
  // The link is never idle: the last end is the sum of all bytes, rounding aside.
  std::int64_t last = 0;
  for (const auto& t : transfers) last = std::max(last, t->end_ns.load());
  EXPECT_NEAR(static_cast<double>(last), 50 * 100'000 + 1'000 * 49 * 25, 100);
}

TEST_F(LinksTest, WhatAnotherProcessTellsOfItsLinkTakesItsShare) {
  auto l = links();
  const std::array<cpu::FlowState, 1> told{{{.id = 7, .active_ns = 0, .bytes_left = 1'000'000}}};
  l.learn(1, told, 0);
  EXPECT_EQ(l.begin(kFirst, 1'000'000, 0, 0)->end_ns, 1'000'000) << "rank 0's link is its own";
  EXPECT_EQ(l.begin(kBoth, 1'000'000, 0, 1'500'000)->end_ns, 2'500'000) << "it has ended by then";
  l.learn(1, told, 5'000'000);
  EXPECT_EQ(l.begin(kBoth, 1'000'000, 0, 5'000'000)->end_ns, 7'000'000);
}

TEST_F(LinksTest, ATransferThatIsKnownIsNotCountedTwice) {
  auto l = links();
  const auto a = l.begin(kBoth, 1'000'000, 0, 0, 3);
  const std::vector<cpu::FlowState> told = l.flows_of(1, 500'000);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].id, 3U);
  EXPECT_EQ(told[0].bytes_left, 500'000);
  l.learn(1, told, 500'000);
  EXPECT_EQ(l.begin(kBoth, 250'000, 0, 500'000, 4)->end_ns, 1'000'000);
  EXPECT_EQ(a->end_ns, 1'250'000);
}

TEST_F(LinksTest, OldNewsOfATransferThatHasEndedSinceCountsForNothing) {
  auto l = links();
  l.flows_of(1, 2'000'000);  // the link's time is now 2 ms
  const std::array<cpu::FlowState, 1> told{{{.id = 7, .active_ns = 0, .bytes_left = 1'000'000}}};
  l.learn(1, told, 900'000);
  EXPECT_EQ(l.begin(kBoth, 1'000'000, 0, 2'000'000)->end_ns, 3'000'000);
}

std::unique_ptr<Backend> make_cpu() {
  return std::make_unique<cpu::CpuBackend>([] { return std::make_unique<CopyKernels>(); });
}

BackendOptions linked(int ranks, double bytes_per_second, double latency_seconds) {
  BackendOptions options;
  options.ranks = ranks;
  options.set<CpuOptions>().link = LinkModel{.bytes_per_second = bytes_per_second, .latency_seconds = latency_seconds};
  return options;
}

TEST(ModelledLink, CollectivesTakeTheirTimeFromWhenAllHaveArrived) {
  constexpr std::int64_t kCount = 25'000;  // 100 kB
  make_cpu()->run(linked(4, 1e8, 100e-6), [](RankContext& rank) {
    std::byte* full = put(rank.device, values_of<float>(rank.rank, 0, 4 * kCount));
    std::byte* shard = reserve<float>(rank.device, kCount);
    const std::array<std::int64_t, 4> expected{300'000 + 3'000'000, 300'000 + 3'000'000, 600'000 + 6'000'000,
                                               300'000 + 3'000'000};
    std::array<std::int64_t, 4> least;  // other work may share the machine, and only prolongs
    least.fill(std::numeric_limits<std::int64_t>::max());
    for (int attempt = 0; attempt < 20; ++attempt) {
      std::array<Stamp, 4> stamps;
      rank.world.all_gather(Lane::all_gather, shard, full, kCount, DType::f32, &stamps[0]);
      rank.world.reduce_scatter(Lane::all_gather, full, shard, kCount, DType::f32, 1.0F, &stamps[1]);
      rank.world.all_reduce(Lane::all_gather, full, 4 * kCount, DType::f32, 1.0F, &stamps[2]);
      rank.world.broadcast(Lane::all_gather, full, 4 * kCount, DType::f32, 0, &stamps[3]);
      rank.device.synchronize();
      for (std::size_t i = 0; i < 4; ++i) {
        least[i] = std::min(least[i], stamps[i].end_ns - stamps[i].peers_arrived_ns);
      }
    }
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_GE(least[i], expected[i]);
      EXPECT_LT(least[i], expected[i] + 40 * kMillisecond);
    }
  });
}

TEST(ModelledLink, MovesTheSameBytesAsARealOne) {
  make_cpu()->run(linked(3, 1e10, 1e-6), [](RankContext& rank) { check_collectives<float>(rank, 1000); });
}

TEST(ModelledLink, TwoCommunicatorsShareARanksLink) {
  constexpr std::int64_t kCount = 500'000;
  make_cpu()->run(linked(2, 1e8, 0), [](RankContext& rank) {  // 2 MB at 100 MB/s: 20 ms alone
    const auto second = rank.world.split(0, rank.rank);
    std::byte* shard = reserve<float>(rank.device, kCount);
    std::byte* a = reserve<float>(rank.device, 2 * kCount);
    std::byte* b = reserve<float>(rank.device, 2 * kCount);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (int attempt = 0; attempt < 20; ++attempt) {
      Stamp first_stamp;
      Stamp second_stamp;
      rank.world.barrier();
      rank.world.all_gather(Lane::all_gather, shard, a, kCount, DType::f32, &first_stamp);
      second->all_gather(Lane::reduce_scatter, shard, b, kCount, DType::f32, &second_stamp);
      rank.device.synchronize();
      const std::int64_t begin = std::min(first_stamp.peers_arrived_ns, second_stamp.peers_arrived_ns);
      least = std::min(least, std::max(first_stamp.end_ns, second_stamp.end_ns) - begin);
    }
    EXPECT_GE(least, 40 * kMillisecond) << "4 MB cannot pass a 100 MB/s link sooner";
    EXPECT_LT(least, 90 * kMillisecond);
  });
}

TEST(ModelledLink, ASlowLinkSlowsTheWholeGroup) {
  BackendOptions options = linked(2, 1e8, 0);
  options.set<CpuOptions>().link_slowdown = {1.0, 5.0};
  make_cpu()->run(options, [](RankContext& rank) {
    std::byte* shard = reserve<float>(rank.device, 25'000);
    std::byte* full = reserve<float>(rank.device, 50'000);
    Stamp stamp;
    rank.world.all_gather(Lane::all_gather, shard, full, 25'000, DType::f32, &stamp);
    rank.device.synchronize();
    EXPECT_GE(stamp.end_ns - stamp.peers_arrived_ns, 5 * kMillisecond);
  });
}

TEST(ModelledLink, AFailureWakesASleepingTransfer) {
  EXPECT_EQ(failure_of(&make_cpu, linked(2, 1.0, 0),
                       [](RankContext& rank) {
                         std::byte* shard = reserve<float>(rank.device, 1000);
                         std::byte* full = reserve<float>(rank.device, 2000);
                         rank.world.all_gather(Lane::all_gather, shard, full, 1000, DType::f32, nullptr);
                         rank.world.barrier();
                         if (rank.rank == 0) throw std::runtime_error("enough");
                         rank.device.synchronize();
                       }),
            "enough");
}

}  // namespace
}  // namespace fsdpbench::backend
