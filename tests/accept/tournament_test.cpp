#include "accept/robust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace fsdpbench::accept {
namespace {

std::map<std::pair<int, int>, int> meetings(const std::vector<Round>& rounds) {
  std::map<std::pair<int, int>, int> count;
  for (const Round& round : rounds) {
    std::set<int> busy;
    for (const Pairing& p : round) {
      EXPECT_LT(p.a, p.b);
      EXPECT_TRUE(busy.insert(p.a).second && busy.insert(p.b).second) << "an end is in two pairings of a round";
      ++count[{p.a, p.b}];
    }
  }
  return count;
}

TEST(TournamentTest, EverybodyMeetsEverybodyOnce) {
  for (int ends = 0; ends <= 20; ++ends) {
    const std::vector<Round> rounds = round_robin(ends);
    const auto count = meetings(rounds);
    EXPECT_EQ(count.size(), static_cast<std::size_t>(ends > 0 ? ends * (ends - 1) / 2 : 0)) << ends;
    for (const auto& [pair, times] : count) EXPECT_EQ(times, 1);
    EXPECT_EQ(rounds.size(), static_cast<std::size_t>(ends > 1 ? ends - 1 + ends % 2 : 0));
  }
}

TEST(TournamentTest, AThousandNodesNeedThirtyfiveRoundsInsteadOfAThousand) {
  const Cluster cluster{.nodes = 1024, .nodes_per_switch = 32};
  const std::vector<Round> rounds = first_rounds(cluster);
  EXPECT_EQ(rounds.size(), 4U + 31U);
  EXPECT_EQ(measurements(rounds), 35 * 512);
  EXPECT_EQ(measurements(round_robin(1024)), 523'776);
  std::map<int, int> of_end;
  std::set<std::pair<int, int>> paths;
  for (const auto& [pair, times] : meetings(rounds)) {
    EXPECT_EQ(times, 1);
    ++of_end[pair.first];
    ++of_end[pair.second];
    if (pair.first / 32 != pair.second / 32) paths.insert({pair.first / 32, pair.second / 32});
  }
  for (const auto& [end, partners] : of_end) EXPECT_EQ(partners, 35);
  EXPECT_EQ(paths.size(), 32U * 31 / 2) << "every path between two switches";
}

TEST(TournamentTest, RoundsOfFourAndOfThree) {
  using Rounds = std::vector<Round>;
  EXPECT_EQ(round_robin(4), (Rounds{{{0, 3}, {1, 2}}, {{1, 3}, {0, 2}}, {{2, 3}, {0, 1}}}));
  EXPECT_EQ(round_robin(3), (Rounds{{{1, 2}}, {{0, 2}}, {{0, 1}}}));
  EXPECT_EQ(first_rounds({.nodes = 64}).size(), 63U);
  EXPECT_EQ(measurements(first_rounds({.nodes = 64})), 32 * 63);
  EXPECT_EQ(first_rounds({.nodes = 66, .nodes_per_switch = 33}).size(), 4U + 1U);
}

/// Members of two groups meet by their numbers, moved on by one more in each round; of the larger group some rest.
TEST(TournamentTest, GroupsMeetMemberByMember) {
  const auto third = first_rounds({.nodes = 66, .nodes_per_switch = 22});
  ASSERT_EQ(third.size(), 4U + 3U);
  EXPECT_EQ(third[4].front(), (Pairing{22, 45}));
  EXPECT_EQ(third[4].back(), (Pairing{43, 44}));
  EXPECT_EQ(third[5].front(), (Pairing{0, 46}));
  EXPECT_EQ(third[6].front(), (Pairing{0, 25}));
  EXPECT_EQ(third[6].size(), 22U);
  const Round uneven = first_rounds({.nodes = 66, .nodes_per_switch = 40}).back();
  EXPECT_EQ(uneven.size(), 26U);
  EXPECT_EQ(uneven.back(), (Pairing{25, 40}));
}

TEST(TournamentTest, GroupsNeedNotBeEven) {
  for (const int nodes : {65, 100, 130, 1000}) {
    const Cluster cluster{.nodes = nodes, .nodes_per_switch = 0};
    std::set<int> seen;
    for (const auto& [pair, times] : meetings(first_rounds(cluster))) {
      EXPECT_LT(pair.second, nodes);
      seen.insert({pair.first, pair.second});
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(nodes));
  }
}

}  // namespace
}  // namespace fsdpbench::accept
