#include "accept/lateness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accept/simulated_cluster.h"

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
  EXPECT_EQ(blame_lateness(kCluster, {}).sentence, "no collective was measured");
}

}  // namespace
}  // namespace fsdpbench::accept
