#include "plan/plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace fsdpbench::plan {
namespace {

using ::testing::ElementsAre;

constexpr Group kAll[] = {
    Group::none,   Group::shard,   Group::shard_separate, Group::reshard,      Group::replicate,
    Group::tensor, Group::context, Group::expert,         Group::expert_shard, Group::expert_shard_separate};

TEST(Groups, HaveTheirNamesInMessages) {
  std::string names;
  for (const Group group : kAll) names += std::string(to_string(group)) + ' ';
  EXPECT_EQ(names,
            "none shard shard_separate reshard replicate tensor context expert expert_shard expert_shard_separate ");
}

TEST(Groups, ShardGroupsAreRunsAndReplicateGroupsAreStrides) {
  const Groups groups(Mesh{4, 3}, 2);
  EXPECT_THAT(groups.members(Group::shard, 6).ranks(), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(groups.members(Group::shard_separate, 6).ranks(), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(groups.members(Group::reshard, 6).ranks(), ElementsAre(6, 7));
  EXPECT_THAT(groups.members(Group::replicate, 6).ranks(), ElementsAre(2, 6, 10));
  EXPECT_THAT(groups.members(Group::none, 6).ranks(), ElementsAre(6));
  EXPECT_EQ(groups.index(Group::replicate, 6), 1);
  EXPECT_EQ(groups.index(Group::shard, 6), 2);
  EXPECT_EQ(groups.index(Group::reshard, 6), 0);
}

TEST(Groups, RanksThatSplitALayerAreNeighboursAndAllOthersStrides) {
  const Groups groups(Mesh{4, 2, 2}, 2, false);
  EXPECT_EQ(groups.ranks(), 16);
  EXPECT_THAT(groups.members(Group::tensor, 13).ranks(), ElementsAre(12, 13));
  EXPECT_THAT(groups.members(Group::shard, 13).ranks(), ElementsAre(9, 11, 13, 15));
  EXPECT_THAT(groups.members(Group::reshard, 13).ranks(), ElementsAre(13, 15));
  EXPECT_THAT(groups.members(Group::replicate, 13).ranks(), ElementsAre(5, 13));
}

TEST(Groups, OfSequencesAndExpertsAreNeighboursOfAShardGroup) {
  const Groups groups(Mesh{8, 1, 2, 2, 4}, 1, true);  // rank 13 is the seventh of its shard group
  EXPECT_THAT(groups.members(Group::context, 13).ranks(), ElementsAre(13, 15));
  EXPECT_THAT(groups.members(Group::expert, 13).ranks(), ElementsAre(9, 11, 13, 15));
  EXPECT_THAT(groups.members(Group::expert_shard, 13).ranks(), ElementsAre(5, 13));
  EXPECT_THAT(groups.members(Group::expert_shard_separate, 13).ranks(), ElementsAre(5, 13));
  EXPECT_FALSE(Groups(Mesh{8, 1}).exists(Group::expert_shard)) << "nobody splits experts";
}

/// Every group of every axis: the members partition the ranks, and all questions agree with them.
TEST(Groups, PartitionTheRanksAlongEveryAxis) {
  for (const Mesh mesh : {Mesh{1, 1}, Mesh{6, 1}, Mesh{1, 5}, Mesh{4, 3}, Mesh{8, 2}, Mesh{1, 1, 4}, Mesh{2, 3, 2},
                          Mesh{8, 1, 2, 2, 4}}) {
    const Groups groups(mesh, mesh.shard % 2 == 0 ? 2 : 1);
    for (const Group group : kAll) {
      std::map<int, std::vector<int>> by_number;
      for (int rank = 0; rank < mesh.ranks(); ++rank) by_number[groups.number(group, rank)].push_back(rank);
      EXPECT_EQ(static_cast<int>(by_number.size()), groups.count(group));
      EXPECT_EQ(by_number.rbegin()->first, groups.count(group) - 1);
      for (const auto& [number, ranks] : by_number) {
        EXPECT_EQ(static_cast<int>(ranks.size()), groups.size(group));
        for (std::size_t i = 0; i < ranks.size(); ++i) {
          EXPECT_EQ(groups.members(group, ranks[i]).ranks(), ranks) << to_string(group);
          EXPECT_EQ(groups.index(group, ranks[i]), static_cast<int>(i)) << to_string(group);
          EXPECT_TRUE(groups.together(group, ranks.front(), ranks[i]));
        }
        EXPECT_FALSE(number > 0 && groups.together(group, ranks.front(), by_number[number - 1].front()));
      }
    }
  }
}

TEST(Groups, HoldNothingByRank) {
  const Groups groups(Mesh{8, 12500});
  EXPECT_EQ(groups.ranks(), 100'000);
  EXPECT_EQ(groups.members(Group::replicate, 99'999), (Members{7, 8, 12500}));
  EXPECT_EQ(groups.members(Group::shard, 99'999), (Members{99'992, 1, 8}));
  EXPECT_LE(sizeof(Groups), 8U * (plan::kGroupCount + 1));  // two numbers an axis
}

TEST(Groups, OfAPlanExistWhereThereIsSomethingToSend) {
  config::RunConfig c;
  c.mesh = {8, 4, 2};
  c.fsdp.strategy = config::Strategy::hybrid_shard;
  const auto existing = [](const config::RunConfig& config) {
    std::vector<Group> result;
    const Groups groups = make_plan(config).groups;
    std::ranges::copy_if(kAll, std::back_inserter(result), [&](Group g) { return groups.exists(g); });
    return result;
  };
  EXPECT_THAT(existing(c), ElementsAre(Group::shard, Group::replicate));
  c.fsdp.separate_reduce_scatter_comm = true;
  EXPECT_THAT(existing(c), ElementsAre(Group::shard, Group::shard_separate, Group::replicate));
  c.fsdp.separate_reduce_scatter_comm = false;
  c.fsdp.reshard_after_forward = {config::ReshardAfterForward::Mode::group, 2};
  EXPECT_THAT(existing(c), ElementsAre(Group::shard, Group::reshard, Group::replicate));
  // A group of one keeps everything, one of all is the shard group itself.
  for (const int group : {1, 4}) {
    c.fsdp.reshard_after_forward.group = group;
    EXPECT_THAT(existing(c), ElementsAre(Group::shard, Group::replicate)) << group;
  }
  c.fsdp.strategy = config::Strategy::no_shard;
  c.mesh = {4, 1, 4};
  EXPECT_THAT(existing(c), ElementsAre(Group::replicate));
  c.mesh = {1, 1, 1};
  EXPECT_TRUE(existing(c).empty());
}

}  // namespace
}  // namespace fsdpbench::plan
