// The modelled link: exact times of the model itself, and what collectives make of it.

#include "backend/cpu/link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <random>

#include "backend/copy_backend.h"
#include "backend/cpu/collective_rules.h"
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

TEST_F(LinksTest, EachMembersLinkHasAnEndOfItsOwn) {
  auto l = links({1.0, 4.0});
  const auto a = l.begin(kBoth, 1'000'000, 1, 0);
  EXPECT_EQ(l.end_of(*a, 0), 1'010'000);
  EXPECT_EQ(l.end_of(*a, 1), 4'010'000);
  const auto b = l.begin(kFirst, 1'000'000, 0, 500'000);  // shares rank 0's link, and moves its end
  EXPECT_EQ(l.end_of(*a, 0), 1'520'000);
  EXPECT_EQ(l.end_of(*a, 1), 4'010'000);
  EXPECT_EQ(l.end_of(*b, 0), 2'010'000);
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

/// Each process keeps the links of all ranks as far as it knows them, and is told of its peers' when a transfer begins.
/// Its own rank's link it knows whole; so the slowest member's own process knows when a transfer ends, to the
/// nanosecond, and nobody expects it later than that.
TEST_F(LinksTest, BetweenProcessesTheSlowestMemberKnowsTheEndThatOneTableWouldGive) {
  constexpr int kRanks = 4;
  std::mt19937 random(7);
  const auto below = [&](int limit) { return std::uniform_int_distribution<>(0, limit - 1)(random); };
  for (int round = 0; round < 100; ++round) {
    const std::vector<double> slowdown{1.0, 2.0, 1.0, 3.0};
    cpu::Links one_table(abort_, kLink, kRanks, slowdown);
    std::deque<cpu::Links> processes;
    for (int rank = 0; rank < kRanks; ++rank) processes.emplace_back(abort_, kLink, kRanks, slowdown);
    struct Begun {
      std::shared_ptr<cpu::Transfer> in_one_table;
      std::vector<std::shared_ptr<cpu::Transfer>> at_members;
    };
    std::vector<Begun> all;
    std::int64_t now = 0;
    for (std::uint64_t id = 1; id <= 30; ++id) {
      const int first = below(kRanks);
      const int other = (first + 1 + below(kRanks - 1)) % kRanks;
      const std::vector<int> members = below(3) == 0 ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{first, other};
      std::vector<std::int64_t> arrived;
      for (std::size_t m = 0; m < members.size(); ++m) arrived.push_back(now += below(300'000));
      const std::int64_t bytes = 1 + below(1'000'000);
      const int hops = below(4);
      std::vector<std::vector<cpu::FlowState>> told;
      for (std::size_t m = 0; m < members.size(); ++m) {
        told.push_back(processes[static_cast<std::size_t>(members[m])].flows_of(members[m], arrived[m]));
      }
      Begun begun{one_table.begin(members, bytes, hops, now, id), {}};
      for (const int member : members) {
        cpu::Links& mine = processes[static_cast<std::size_t>(member)];
        for (std::size_t m = 0; m < members.size(); ++m) {
          if (members[m] != member) mine.learn(members[m], told[m], arrived[m]);
        }
        begun.at_members.push_back(mine.begin(members, bytes, hops, now, id));
      }
      all.push_back(std::move(begun));
    }
    for (const Begun& begun : all) {
      std::int64_t latest = 0;
      for (const auto& transfer : begun.at_members) latest = std::max(latest, transfer->end_ns.load());
      EXPECT_NEAR(static_cast<double>(latest), static_cast<double>(begun.in_one_table->end_ns), 2);  // of rounding
    }
  }
}

BackendOptions linked(int ranks, double bytes_per_second, double latency_seconds) {
  BackendOptions options;
  options.ranks = ranks;
  options.set<CpuOptions>().link = LinkModel{.bytes_per_second = bytes_per_second, .latency_seconds = latency_seconds};
  return options;
}

TEST(ModelledLink, CollectivesPayTheLatencyOfEachStepOfTheRing) {
  EXPECT_EQ(cpu::hops(Collective::all_gather, 4), 3);
  EXPECT_EQ(cpu::hops(Collective::reduce_scatter, 4), 3);
  EXPECT_EQ(cpu::hops(Collective::all_reduce, 4), 6);
  EXPECT_EQ(cpu::hops(Collective::broadcast, 4), 3);
  EXPECT_EQ(cpu::hops(Collective::send_recv, 4), 1) << "all send at once";
  EXPECT_EQ(cpu::hops(Collective::all_reduce, 1), 0);
  EXPECT_EQ(cpu::hops(Collective::send_recv, 1), 0);
}

TEST(ModelledLink, CollectivesAreNeverFasterThanTheirBytesFromWhenAllHaveArrived) {
  constexpr std::int64_t kCount = 25'000;  // 100 kB
  make_copy_backend()->run(linked(4, 1e8, 100e-6), [](RankContext& rank) {
    std::byte* full = put(rank.device, values_of<float>(rank.rank, 0, 4 * kCount));
    std::byte* shard = reserve<float>(rank.device, kCount);
    const std::array<std::int64_t, 4> least{300'000 + 3'000'000, 300'000 + 3'000'000, 600'000 + 6'000'000,
                                            300'000 + 4'000'000};
    std::array<Stamp, 4> stamps;
    rank.world.all_gather(Lane::all_gather, shard, full, kCount, DType::f32, &stamps[0]);
    rank.world.reduce_scatter(Lane::all_gather, full, shard, kCount, DType::f32, 1.0F, &stamps[1]);
    rank.world.all_reduce(Lane::all_gather, full, 4 * kCount, DType::f32, 1.0F, &stamps[2]);
    rank.world.broadcast(Lane::all_gather, full, 4 * kCount, DType::f32, 0, &stamps[3]);
    rank.device.synchronize();
    for (std::size_t i = 0; i < 4; ++i) EXPECT_GE(stamps[i].end_ns - stamps[i].peers_arrived_ns, least[i]) << i;
  });
}

/// A message of 100 kB at 100 MB/s: whoever sends or receives it needs 1 ms, however many take part.
TEST(ModelledLink, ABroadcastPassesEachLinkAsAWhole) {
  for (const int ranks : {2, 3}) {
    make_copy_backend()->run(linked(ranks, 1e8, 0), [](RankContext& rank) {
      constexpr std::int64_t kCount = 25'000;
      std::byte* message = put(rank.device, values_of<float>(0, 0, kCount));
      Stamp stamp;
      rank.world.broadcast(Lane::all_gather, message, kCount, DType::f32, 0, &stamp);
      rank.device.synchronize();
      EXPECT_EQ(stamp.link_ns, kMillisecond);
    });
  }
  EXPECT_EQ(cpu::link_bytes({.kind = Collective::broadcast, .count = 7}, 1), 0) << "nobody to send to";
}

TEST(ModelledLink, MovesTheSameBytesAsARealOne) {
  make_copy_backend()->run(linked(3, 1e10, 1e-6), [](RankContext& rank) { check_collectives<float>(rank, 1000); });
}

TEST(ModelledLink, TwoCommunicatorsShareARanksLink) {
  constexpr std::int64_t kCount = 500'000;
  make_copy_backend()->run(linked(2, 1e8, 0), [](RankContext& rank) {  // 2 MB at 100 MB/s: 20 ms alone
    const auto second = rank.world.split(0, rank.rank);
    std::byte* shard = reserve<float>(rank.device, kCount);
    std::byte* a = reserve<float>(rank.device, 2 * kCount);
    std::byte* b = reserve<float>(rank.device, 2 * kCount);
    Stamp first;
    Stamp other;
    rank.world.barrier();
    rank.world.all_gather(Lane::all_gather, shard, a, kCount, DType::f32, &first);
    second->all_gather(Lane::reduce_scatter, shard, b, kCount, DType::f32, &other);
    rank.device.synchronize();
    const std::int64_t begin = std::min(first.peers_arrived_ns, other.peers_arrived_ns);
    EXPECT_GE(std::max(first.end_ns, other.end_ns) - begin, 40 * kMillisecond)
        << "4 MB cannot pass a 100 MB/s link sooner";
  });
}

TEST(ModelledLink, ASlowLinkSlowsTheWholeGroup) {
  BackendOptions options = linked(2, 1e8, 0);
  options.set<CpuOptions>().link_slowdown = {1.0, 5.0};
  make_copy_backend()->run(options, [](RankContext& rank) {
    std::byte* shard = reserve<float>(rank.device, 25'000);
    std::byte* full = reserve<float>(rank.device, 50'000);
    Stamp stamp;
    rank.world.all_gather(Lane::all_gather, shard, full, 25'000, DType::f32, &stamp);
    rank.device.synchronize();
    EXPECT_GE(stamp.end_ns - stamp.peers_arrived_ns, 5 * kMillisecond);
    EXPECT_EQ(stamp.link_ns, (rank.rank == 1 ? 5 : 1) * kMillisecond) << "whose link it was";
  });
}

TEST(ModelledLink, AFailureWakesASleepingTransfer) {
  EXPECT_EQ(failure_of(&make_copy_backend, linked(2, 1.0, 0),
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
