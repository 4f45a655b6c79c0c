#include "accept/finding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "support/hand_run.h"
#include "support/simulated_cluster.h"

namespace fsdpbench::accept {
namespace {

using ::testing::HasSubstr;

const Cluster kCluster{.nodes = 4};

LatenessReport report_of(std::vector<Fault> faults, std::uint64_t seed = 3) {
  SimulatedCluster simulated(kCluster, std::move(faults), seed);
  std::vector<Arrivals> samples;
  for (int i = 0; i < 200; ++i) samples.push_back(simulated.step(10'000, 4'000));
  return blame_lateness(kCluster, samples);
}

TEST(LatenessTest, ASlowGpuIsWhoTheOthersWaitFor) {
  const LatenessReport report = report_of({{{Element::Kind::gpu, 19, 0}, Fault::Kind::slow, 0.8}});
  ASSERT_TRUE(report.late);
  EXPECT_EQ(report.late->element, (Element{Element::Kind::gpu, 19, 0}));
  EXPECT_THAT(report.sentence, HasSubstr("rank 19 (device 3 of node 2) comes last"));
}

TEST(LatenessTest, ASlowLinkMakesNobodyLate) {
  const LatenessReport healthy = report_of({});
  const LatenessReport slow = report_of({{{Element::Kind::nic, 2, 0}, Fault::Kind::slow, 0.5}});
  EXPECT_FALSE(slow.late);
  EXPECT_GT(slow.transfer_us.median, 1.8 * healthy.transfer_us.median);
  EXPECT_THAT(slow.sentence, HasSubstr("nobody in particular is late"));
}

TEST(LatenessTest, AHealthyClusterAccusesNobody) {
  // The slowest of healthy GPUs is last most of the time, but not by much.
  int accused = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) accused += report_of({}, seed).late ? 1 : 0;
  EXPECT_EQ(accused, 0);
  EXPECT_EQ(blame_lateness(kCluster, {}).sentence, "no step was measured");
}

TEST(LatenessTest, RanksThatAreLateInTurnAreToldAndNotAccused) {
  SimulatedCluster simulated(kCluster, {}, 3);
  std::vector<Arrivals> samples;
  for (std::size_t i = 0; i < 200; ++i) {
    samples.push_back(simulated.step(10'000, 4'000));
    samples.back().arrival_us[i * 7 % samples.back().arrival_us.size()] += 3000;
  }
  const LatenessReport report = blame_lateness(kCluster, samples);
  EXPECT_FALSE(report.late);
  EXPECT_TRUE(report.in_turn);
  EXPECT_THAT(report.sentence, HasSubstr("all ranks are late in turn"));
  EXPECT_FALSE(report_of({}).in_turn) << "healthy ranks hardly wait for each other";
}

TEST(LatenessTest, AFewSamplesAccuseNobody) {
  const Cluster four{.nodes = 1, .gpus_per_node = 4};
  const Arrivals late{{1000, 1000, 1000, 2000}, 100};
  EXPECT_FALSE(blame_lateness(four, std::vector<Arrivals>(5, late)).late) << "3 % of coins fall so";
  EXPECT_TRUE(blame_lateness(four, std::vector<Arrivals>(8, late)).late);
  const Cluster two{.nodes = 1, .gpus_per_node = 2}, three{.nodes = 1, .gpus_per_node = 3};
  EXPECT_FALSE(blame_lateness(two, std::vector<Arrivals>(8, {{1000, 2000}, 100})).late);
  EXPECT_TRUE(blame_lateness(three, std::vector<Arrivals>(8, {{1000, 1000, 2000}, 100})).late);
}

/// Ranks come at 1000 and 1500 us, the last one of them at 2000; moving bytes takes 500 us.
TEST(LatenessTest, EachFigureIsOfTheArrivals) {
  const Cluster four{.nodes = 1, .gpus_per_node = 4};
  std::vector<Arrivals> samples(10, Arrivals{{1000, 1500, 1000, 2000}, 500});
  samples.push_back({{2000, 1000, 1000, 1000}, 500});
  const LatenessReport report = blame_lateness(four, samples);
  ASSERT_TRUE(report.late);
  EXPECT_EQ(report.late->element, (Element{Element::Kind::gpu, 3, 0}));
  EXPECT_DOUBLE_EQ(report.late->shortfall, 750.0 / 2500) << "beyond the median of 1250, over the whole";
  EXPECT_EQ(report.late->relative.median, 750);
  EXPECT_EQ(report.late->relative.n, 10);
  EXPECT_EQ(report.late->check, next_check(report.late->element, four, SlowAt::work));
  EXPECT_NEAR(report.last_share[3], 10.0 / 11, 1e-12);
  EXPECT_NEAR(report.last_share[0], 1.0 / 11, 1e-12);
  EXPECT_EQ(report.waiting_us.median, 750);
  EXPECT_EQ(report.transfer_us.median, 500);
  EXPECT_EQ(report.sentence,
            "rank 3 (device 3 of node 0) comes last in 91 % of 11 steps; the others wait 750 us a step for it, and the "
            "transfers take 500 us");
  EXPECT_FALSE(blame_lateness(four, samples, 0.31).late) << "by less than is asked for";
  EXPECT_FALSE(blame_lateness(four, samples, 0.3).late) << "by just as much";
  EXPECT_TRUE(blame_lateness(four, samples, 0.29).late);
  EXPECT_TRUE(blame_lateness(four, samples, 0.31)
                  .sentence.starts_with("nobody in particular is late: the collectives "
                                        "of a step wait 750 us for their last rank and "
                                        "move bytes for 500 us"));
  EXPECT_THROW(blame_lateness({.nodes = 1, .gpus_per_node = 5}, samples), std::invalid_argument);
}

TEST(LatenessTest, RanksThatComeLastInTurnMakeAllWait) {
  const Cluster four{.nodes = 1, .gpus_per_node = 4};
  std::vector<Arrivals> samples;
  for (std::size_t i = 0; i < 12; ++i) {
    Arrivals& sample = samples.emplace_back(Arrivals{{500, 500, 500, 500}, 500});
    sample.arrival_us[i % 4] = 2000;
  }
  const LatenessReport report = blame_lateness(four, samples);
  EXPECT_FALSE(report.late);
  EXPECT_TRUE(report.in_turn);
  EXPECT_THAT(report.sentence, HasSubstr("wait 1.50 ms for their last rank, 60 % of the time until they end, and move "
                                         "bytes for 500 us"));
  EXPECT_FALSE(blame_lateness(four, samples, 0.6).in_turn);
}

TEST(LatenessTest, ArrivalsCountFromTheReductionBefore) {
  using schedule::OpKind;
  using testing::Times;
  testing::HandRun run(3);
  run.step(0, 400'000);
  const auto reduce = [&](std::vector<Times> times) {
    run.collective(OpKind::reduce_scatter, Lane::reduce_scatter, times);
  };
  run.collective(OpKind::all_gather, Lane::all_gather, Times{.begin = 1'000, .end = 5'000});
  run.forward({.begin = 5'000, .end = 90'000});
  reduce({{.begin = 100'000, .end = 150'000}, {.begin = 120'000, .end = 150'000}, {.begin = 110'000, .end = 150'000}});
  reduce({{.begin = 200'000, .end = 261'000},
          {.begin = 250'000, .end = 260'000, .core_wait = 70'000},
          {.begin = 210'000, .end = 260'000}});
  reduce({{}, {.begin = 300'000, .end = 310'000}, {.begin = 300'000, .end = 310'000}});  // not timed on rank 0
  run.step({{400'000, 600'000}, {405'000, 600'000}, {405'000, 600'000}});
  run.collective(OpKind::all_reduce, Lane::all_reduce, Times{.begin = 500'000, .end = 510'000});
  run.forward({.begin = 405'000, .end = 450'000});
  run.step(600'000, 700'000);
  run.forward({.begin = 600'000, .end = 650'000});
  run.step(400'000, 600'000);
  reduce({{.begin = 400'000, .end = 500'000}, {.begin = 450'000, .end = 500'000}, {.begin = 400'000, .end = 500'000}});
  const std::vector<Arrivals> samples = arrivals_of(run.view());
  ASSERT_EQ(samples.size(), 2U) << "a step without computation, or a reduction, says nothing of who is late";
  // 100, 120 and 110 us, then 50, 30 and 60 us: waiting for a core is no lateness.
  EXPECT_EQ(samples[0].arrival_us, (std::vector<double>{150, 150, 170}));
  EXPECT_DOUBLE_EQ(samples[0].transfer_us, 30 + 51);
  EXPECT_EQ(samples[1].arrival_us, (std::vector<double>(3, 100))) << "since the first rank began the step";
  EXPECT_DOUBLE_EQ(samples[1].transfer_us, 10);
}

}  // namespace
}  // namespace fsdpbench::accept
