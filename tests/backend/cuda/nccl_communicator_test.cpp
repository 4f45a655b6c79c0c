#include "backend/cuda/nccl/nccl_communicator.h"
#include "backend/cuda/nccl_support.h"

namespace fsdpbench::backend::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NcclCommunicatorTest : public NcclTest {
 protected:
  void TearDown() override {
    EXPECT_EQ(fake::nccl::counts().aborted, 0) << "all ends in peace";
    NcclTest::TearDown();
  }
};

/// Checks what `reduce` makes of each rank's values_of<T>(rank, 0, ranks * count), at ranks in order.
template <class T>
void check_reductions(int ranks, std::int64_t count, float scale, float used_scale) {
  NcclRun{.ranks = ranks}.run([&](NcclRankContext& rank) {
    const std::int64_t all = ranks * count;
    std::vector<T> message = values_of<T>(rank.rank, 0, all);
    std::vector<T> shard(static_cast<std::size_t>(count));
    rank.world.reduce_scatter(Lane::reduce_scatter, bytes_of(message), bytes_of(shard), count, dtype_of<T>(), scale,
                              nullptr);
    rank.lanes.synchronize();
    EXPECT_EQ(shard, sum_of<T>(first_ranks(ranks), rank.rank * count, count, used_scale));
    rank.world.all_reduce(Lane::all_reduce, bytes_of(message), all, dtype_of<T>(), scale, nullptr);
    rank.lanes.synchronize();
    EXPECT_EQ(message, sum_of<T>(first_ranks(ranks), 0, all, used_scale));
  });
}

TEST_F(NcclCommunicatorTest, GathersAlsoInPlace) {
  NcclRun{.ranks = 3}.run([](NcclRankContext& rank) {
    std::vector<float> mine(5, static_cast<float>(rank.rank));
    std::vector<float> full(15, -1);
    std::vector<float> in_place(15, -1);
    std::copy(mine.begin(), mine.end(), in_place.begin() + rank.rank * 5);
    rank.world.all_gather(Lane::all_gather, bytes_of(mine), bytes_of(full), 5, DType::f32, nullptr);
    Stamp stamp;
    rank.world.all_gather(Lane::all_gather, bytes_of(in_place) + rank.rank * 20, bytes_of(in_place), 5, DType::f32,
                          &stamp);
    rank.lanes.synchronize();
    const std::vector<float> expected{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2};
    EXPECT_EQ(full, expected);
    EXPECT_EQ(in_place, expected);
    EXPECT_EQ(stamp.end_ns, 1) << "the lanes time the op";
    EXPECT_THAT(rank.lanes.ops, ElementsAre("all_gather", "all_gather"));
  });
}

TEST_F(NcclCommunicatorTest, SumsInFp32AndBf16) {
  check_reductions<float>(3, 7, 1.0F, 1.0F);
  check_reductions<std::uint16_t>(4, 7, 1.0F, 1.0F);
  EXPECT_EQ(fake::nccl::counts().operators, 0);
}

TEST_F(NcclCommunicatorTest, AveragesNeedNoOperator) {
  check_reductions<float>(3, 7, 1.0F / 3.0F, 1.0F / 3.0F);
  EXPECT_EQ(fake::nccl::counts().operators, 0);
}

TEST_F(NcclCommunicatorTest, OtherScalesAreOneOperatorEach) {
  check_reductions<float>(3, 7, 0.3F, 0.3F);
  EXPECT_EQ(fake::nccl::counts().operators, 3) << "one a rank, for two collectives";
}

TEST_F(NcclCommunicatorTest, ScalesOfBf16AreRoundedToBf16) {
  check_reductions<std::uint16_t>(2, 9, 0.3F, bf16_to_float(float_to_bf16(0.3F)));
}

TEST_F(NcclCommunicatorTest, SumsIntegersAndDoesNotScaleThem) {
  NcclRun{.ranks = 2}.run([](NcclRankContext& rank) {
    std::vector<std::int32_t> values{16'777'217, -3 + rank.rank};
    rank.world.all_reduce(Lane::all_reduce, bytes_of(values), 2, DType::i32, 1.0F, nullptr);
    rank.lanes.synchronize();
    EXPECT_THAT(values, ElementsAre(33'554'434, -5));
    EXPECT_THROW(rank.world.all_reduce(Lane::all_reduce, bytes_of(values), 2, DType::i32, 0.5F, nullptr),
                 std::logic_error);
  });
}

TEST_F(NcclCommunicatorTest, BroadcastsFromAnyRank) {
  NcclRun{.ranks = 3}.run([](NcclRankContext& rank) {
    std::vector<float> values(4, static_cast<float>(rank.rank));
    rank.world.broadcast(Lane::copy, bytes_of(values), 4, DType::f32, 2, nullptr);
    rank.lanes.synchronize();
    EXPECT_THAT(values, testing::Each(2.0F));
    EXPECT_THROW(rank.world.broadcast(Lane::copy, bytes_of(values), 4, DType::f32, 3, nullptr), BackendError);
  });
}

TEST_F(NcclCommunicatorTest, NothingIsAlsoAMessage) {
  NcclRun{.ranks = 2}.run([](NcclRankContext& rank) {
    Stamp stamp;
    rank.world.all_gather(Lane::all_gather, nullptr, nullptr, 0, DType::f32, &stamp);
    rank.world.reduce_scatter(Lane::reduce_scatter, nullptr, nullptr, 0, DType::bf16, 0.3F, nullptr);
    rank.world.all_reduce(Lane::all_reduce, nullptr, 0, DType::f32, 0.5F, nullptr);
    rank.lanes.synchronize();
    EXPECT_EQ(stamp.end_ns, 1);
    EXPECT_THAT(rank.world.wire_bytes(), testing::Each(0));
  });
}

TEST_F(NcclCommunicatorTest, WireBytesAreThoseOfARing) {
  NcclRun{.ranks = 4}.run([](NcclRankContext& rank) {
    std::vector<float> all(40);
    std::vector<float> mine(10);
    rank.world.all_gather(Lane::all_gather, bytes_of(mine), bytes_of(all), 10, DType::f32, nullptr);
    rank.world.reduce_scatter(Lane::reduce_scatter, bytes_of(all), bytes_of(mine), 10, DType::f32, 1.0F, nullptr);
    rank.world.all_reduce(Lane::all_reduce, bytes_of(all), 40, DType::f32, 1.0F, nullptr);
    rank.world.broadcast(Lane::copy, bytes_of(all), 40, DType::f32, 0, nullptr);
    rank.world.barrier();
    EXPECT_THAT(rank.world.wire_bytes(), ElementsAre(120, 120, 240, 120, 0, 0));
    rank.lanes.synchronize();
  });
}

TEST_F(NcclCommunicatorTest, CollectivesOfDifferentLanesKeepTheirOrder) {
  NcclRun{.ranks = 2}.run([](NcclRankContext& rank) {
    std::vector<float> values(8, 1);
    // The first lane is late: without order among the lanes the second op would come first.
    fake::run_on_stream(rank.lanes.stream(Lane::all_gather),
                        [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    rank.world.all_reduce(Lane::all_gather, bytes_of(values), 8, DType::f32, 1.0F, nullptr);
    rank.world.all_reduce(Lane::reduce_scatter, bytes_of(values), 8, DType::f32, 0.75F, nullptr);
    rank.lanes.synchronize();
    EXPECT_THAT(values, testing::Each(3.0F));
  });
}

TEST_F(NcclCommunicatorTest, SplitsByColorAndOrdersByKey) {
  NcclRun{.ranks = 6}.run([](NcclRankContext& rank) {
    const auto shard = rank.world.split(rank.rank / 3, rank.rank);
    const auto reversed = rank.world.split(rank.rank % 2, -rank.rank);
    EXPECT_EQ(shard->size(), 3);
    EXPECT_EQ(shard->rank(), rank.rank % 3);
    EXPECT_EQ(reversed->size(), 3);
    EXPECT_EQ(reversed->rank(), 2 - rank.rank / 2);
    std::vector<float> values(3, static_cast<float>(rank.rank));
    shard->all_reduce(Lane::all_reduce, bytes_of(values), 3, DType::f32, 1.0F, nullptr);
    shard->barrier();
    rank.lanes.synchronize();
    EXPECT_THAT(values, testing::Each(rank.rank < 3 ? 3.0F : 12.0F));
    const auto half = shard->split(shard->rank() == 0 ? 0 : 1, 0);
    EXPECT_EQ(half->size(), shard->rank() == 0 ? 1 : 2);
    rank.world.barrier();
  });
}

TEST_F(NcclCommunicatorTest, AParentIsUsedAgainOnlyWhenItsSplitIsOver) {
  fake::nccl::set_polls(50);  // the child is there long before
  NcclRun{.ranks = 2}.run([](NcclRankContext& rank) {
    const auto first = rank.world.split(0, rank.rank);
    const auto second = rank.world.split(0, -rank.rank);
    std::vector<float> values(2, 1);
    rank.world.all_reduce(Lane::all_reduce, bytes_of(values), 2, DType::f32, 1.0F, nullptr);
    rank.lanes.synchronize();
    EXPECT_THAT(values, testing::Each(2.0F));
  });
}

TEST_F(NcclCommunicatorTest, WhatIsPutBehindACollectiveComesAfterIt) {
  NcclRun{.ranks = 2}.run([](NcclRankContext& rank) {
    std::vector<float> values(4, 1);
    for (int i = 0; i < 50; ++i) {  // each is launched by a thread of NCCL's
      rank.world.all_reduce(Lane::all_reduce, bytes_of(values), 4, DType::f32, 1.0F, nullptr);
      fake::run_on_stream(rank.lanes.stream(Lane::all_reduce), [&] { std::ranges::fill(values, 1.0F); });
    }
    rank.lanes.synchronize();
    EXPECT_THAT(values, testing::Each(1.0F));
  });
}

TEST_F(NcclCommunicatorTest, WhatLaunchesTakeOfTheHostIsAFact) {
  NcclRun{.ranks = 2}.run([](NcclRankContext& rank) {
    std::vector<float> values(4, 1);
    for (int i = 0; i < 3; ++i) {
      rank.world.all_reduce(Lane::all_reduce, bytes_of(values), 4, DType::f32, 1.0F, nullptr);
    }
    rank.lanes.synchronize();
    EXPECT_THAT(communicator_facts(rank.world),
                testing::Contains(testing::Pair(
                    "nccl launches",
                    testing::MatchesRegex("3 collectives took [0-9]+ us of the host each, at most [0-9]+ us"))));
    rank.world.barrier();
  });
}

TEST_F(NcclCommunicatorTest, ASplitWaitsForItsParentsCollectives) {
  NcclRun{.ranks = 2}.run([](NcclRankContext& rank) {
    std::vector<float> values(8, 1);
    for (int i = 0; i < 20; ++i) {
      rank.world.all_reduce(Lane::all_reduce, bytes_of(values), 8, DType::f32, 0.5F, nullptr);
    }
    EXPECT_EQ(rank.world.split(0, rank.rank)->size(), 2);  // the fake objects if it is not idle
  });
}

TEST_F(NcclCommunicatorTest, ABarrierOfASplitHoldsUntilAllAreThere) {
  std::atomic<int> arrived{0};
  NcclRun{.ranks = 4}.run([&](NcclRankContext& rank) {
    const auto all = rank.world.split(0, rank.rank);
    std::this_thread::sleep_for(std::chrono::milliseconds(rank.rank));
    ++arrived;
    all->barrier();
    EXPECT_EQ(arrived.load(), 4);
    EXPECT_THAT(all->wire_bytes(), testing::Each(0));
  });
}

TEST_F(NcclCommunicatorTest, ManyCollectivesNeedFewEvents) {
  NcclRun{.ranks = 2}.run([](NcclRankContext& rank) {
    std::vector<float> values(1, 1);
    for (int i = 0; i < 3000; ++i) {
      rank.world.all_reduce(Lane::all_reduce, bytes_of(values), 1, DType::f32, 0.5F, nullptr);
    }
    rank.lanes.synchronize();
    EXPECT_EQ(values.front(), 1.0F);
  });
}

TEST_F(NcclCommunicatorTest, OneRankCopiesWithoutNccl) {
  NcclRun{.ranks = 1}.run([](NcclRankContext& rank) {
    std::vector<float> source{1, 2, 3};
    std::vector<float> target(3);
    rank.world.all_gather(Lane::all_gather, bytes_of(source), bytes_of(target), 3, DType::f32, nullptr);
    rank.world.all_gather(Lane::all_gather, bytes_of(target), bytes_of(target), 3, DType::f32, nullptr);
    rank.world.reduce_scatter(Lane::all_gather, bytes_of(target), bytes_of(source), 3, DType::f32, 0.5F, nullptr);
    rank.world.all_reduce(Lane::all_gather, bytes_of(source), 3, DType::f32, 4.0F, nullptr);
    rank.world.broadcast(Lane::all_gather, bytes_of(source), 3, DType::f32, 0, nullptr);
    rank.world.barrier();
    rank.lanes.synchronize();
    EXPECT_THAT(target, ElementsAre(1, 2, 3));
    EXPECT_THAT(source, ElementsAre(2, 4, 6));
    EXPECT_EQ(rank.world.split(3, 0)->size(), 1);
    EXPECT_THAT(rank.world.wire_bytes(), testing::Each(0));
    EXPECT_THAT(communicator_facts(rank.world), ElementsAre(testing::Pair("nccl", "not used: one rank")));
  });
  EXPECT_EQ(fake::nccl::counts().made, 0);
}

TEST_F(NcclCommunicatorTest, RegistersTheArenaOnEveryCommunicatorOnce) {
  NcclRun run{.ranks = 2, .arena_bytes = 1 << 16};
  run.options.registration = NcclOptions::Register::local;
  run.run([](NcclRankContext& rank) { rank.world.split(0, rank.rank); });
  EXPECT_EQ(fake::nccl::counts().registrations, 4);
  EXPECT_EQ(fake::nccl::counts().deregistrations, 4);
  EXPECT_EQ(fake::live_bytes(0), 0);
}

TEST_F(NcclCommunicatorTest, WindowsAreMadeOrSaidNotToBe) {
  NcclRun run{.ranks = 2, .arena_bytes = 1 << 16};
  run.options.registration = NcclOptions::Register::window;
  const auto windows = [](NcclRankContext& rank) {
    const auto part = rank.world.split(0, rank.rank);
    const Facts facts = communicator_facts(rank.world);
    const auto found =
        std::find_if(facts.begin(), facts.end(), [](const auto& f) { return f.first == "nccl windows"; });
    EXPECT_THAT(found->second,
                testing::StartsWith(fake::nccl::counts().windows > 0 ? "accepted on 2 of 2 communicators"
                                                                     : "accepted on 0 of 2 communicators"));
    rank.world.barrier();
  };
  run.run(windows);
  EXPECT_EQ(fake::nccl::counts().windows, 4);
  fake::nccl::reset();
  fake::nccl::refuse_windows();
  run.run(windows);
}

TEST_F(NcclCommunicatorTest, WishesReachNccl) {
  NcclRun run{.ranks = 2};
  run.options.cta_policy = NcclOptions::CtaPolicy::zero;
  run.options.max_ctas = 6;
  run.run([](NcclRankContext& rank) {
    EXPECT_THAT(communicator_facts(rank.world),
                testing::Contains(testing::Pair("nccl asked for", "cta_policy zero, max_ctas 6")));
    rank.world.barrier();
  });
  const ncclConfig_t config = fake::nccl::last_config();
  EXPECT_EQ(config.blocking, 0);
  EXPECT_EQ(config.CTAPolicy, NCCL_CTA_POLICY_ZERO);
  EXPECT_EQ(config.maxCTAs, 6);
}

TEST_F(NcclCommunicatorTest, WithoutWishesNcclChooses) {
  NcclRun{.ranks = 2}.run([](NcclRankContext&) {});
  const ncclConfig_t config = fake::nccl::last_config();
  EXPECT_EQ(config.CTAPolicy, NCCL_CONFIG_UNDEF_INT);
  EXPECT_EQ(config.minCTAs, NCCL_CONFIG_UNDEF_INT);
  EXPECT_EQ(config.maxCTAs, NCCL_CONFIG_UNDEF_INT);
}

TEST_F(NcclCommunicatorTest, TheVersionIsAFact) {
  NcclRun{.ranks = 2}.run([](NcclRankContext& rank) {
    EXPECT_THAT(communicator_facts(rank.world), testing::Contains(testing::Pair("nccl", "2.28.9 (built with 2.28.9)")));
    rank.world.barrier();
  });
}

TEST_F(NcclCommunicatorTest, VariablesThatComeBeforeTheOptionsAreFacts) {
  setenv("NCCL_MAX_CTAS", "4", 1);
  setenv("NCCL_CTA_POLICY", "2", 1);
  setenv("NCCL_SOCKET_IFNAME", "private0", 1);
  NcclRun{.ranks = 2}.run([](NcclRankContext& rank) {
    EXPECT_THAT(communicator_facts(rank.world),
                testing::Contains(testing::Pair("nccl environment", "NCCL_CTA_POLICY=2 NCCL_MAX_CTAS=4")));
    rank.world.barrier();
  });
  for (const char* const name : {"NCCL_MAX_CTAS", "NCCL_CTA_POLICY", "NCCL_SOCKET_IFNAME"}) unsetenv(name);
}

TEST_F(NcclCommunicatorTest, TheWatchEndsWithTheLastCommunicator) {
  NcclRun{.ranks = 1}.run([](NcclRankContext& rank) { EXPECT_FALSE(rank.lanes.watched()); });
  launch::Abort abort;
  TestLanes lanes(abort, 0);
  {
    const NcclRank rank(lanes, 0, {}, {});
    EXPECT_TRUE(lanes.watched());
  }
  EXPECT_FALSE(lanes.watched());
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
