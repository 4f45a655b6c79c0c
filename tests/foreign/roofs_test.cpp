#include "foreign/traced_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace fsdpbench::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

foreign::ExplainedCollective collective_of(const char* kind, std::vector<int> group, double busbw_gb_s) {
  foreign::ExplainedCollective one;
  one.kind = kind;
  one.group = std::move(group);
  one.busbw_gb_s = busbw_gb_s;
  return one;
}

std::vector<int> ranks_from(int first, int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

TEST(RoofsTest, TheLinkIsTheNodesOrThatOfItsNics) {
  const config::Cluster h100 = config::load_cluster("dgx-h100");
  const auto roof = [&](const char* kind, std::vector<int> group) {
    return link_roof_gb_per_s(h100, collective_of(kind, std::move(group), 1));
  };
  EXPECT_EQ(roof("all_gather", ranks_from(8, 8)), h100.intra.peak_gb_per_s);
  EXPECT_EQ(roof("all_reduce", ranks_from(8, 8)), std::max(h100.intra.peak_gb_per_s, h100.intra.nvls_gb_per_s));
  EXPECT_EQ(roof("all_gather", ranks_from(0, 16)), h100.inter.nics_per_node * h100.inter.nic_gb_per_s);
  EXPECT_EQ(roof("all_reduce", {3, 11, 19}), h100.inter.nics_per_node / 8 * h100.inter.nic_gb_per_s);  // replicas
  EXPECT_FALSE(roof("all_gather", {}));
}

TEST(RoofsTest, AShareAbove100IsLeftOutAndSaysWhatIsWrong) {
  const config::Cluster h100 = config::load_cluster("dgx-h100");
  foreign::JobTrace job;
  job.ranks.emplace_back().device_model = "NVIDIA H100 80GB HBM3";
  foreign::Explanation explanation;
  explanation.collectives = {collective_of("all_gather", ranks_from(0, 8), h100.intra.peak_gb_per_s / 2),
                             collective_of("all_gather", ranks_from(0, 8), h100.intra.peak_gb_per_s * 2)};
  add_roofs(h100, job, explanation);
  EXPECT_DOUBLE_EQ(explanation.collectives[0].link_share_pct.value(), 50);
  EXPECT_FALSE(explanation.collectives[1].link_share_pct);
  EXPECT_THAT(explanation.notes, ElementsAre(HasSubstr("so the sizes or the times in the trace are not those")));
  explanation.notes.clear();
  job.ranks[0].device_model = "NVIDIA B200";
  add_roofs(h100, job, explanation);
  EXPECT_THAT(explanation.notes, ElementsAre(HasSubstr("the trace is of NVIDIA B200, and dgx-h100 has H100")));
  explanation.collectives.pop_back();
  explanation.notes.clear();
  add_roofs(h100, job, explanation);
  EXPECT_THAT(explanation.notes, IsEmpty());
}

}  // namespace
}  // namespace fsdpbench::app
