// Communicators between processes share emulated links: together they are never faster than what the bytes of a link
// take. How near they come to that is bench/link_processes.cpp's to say.

#include <gtest/gtest.h>

#include <array>

#include "backend/cpu_processes.h"
#include "backend/link_rounds.h"

namespace fsdpbench::backend {
namespace {

class SharedLinkBetweenProcesses : public testing::TestWithParam<LinkCase> {};

TEST_P(SharedLinkBetweenProcesses, IsNeverFasterThanItsBytes) {
  CpuProcesses processes;
  EXPECT_GE(time_of_rounds(processes, GetParam()), GetParam().least_ms * kMillisecond);
}

INSTANTIATE_TEST_SUITE_P(Cases, SharedLinkBetweenProcesses, testing::ValuesIn(link_cases()),
                         [](const auto& test) { return test.param.name; });

/// Where the transfer of the other two has begun before rank 1 comes to ours, rank 0 is told of it, and expects no end
/// before both are through. On a busy machine it may begin later: such a run says nothing.
TEST(LinkBetweenProcesses, WhatAMemberDoesElsewhereIsKnownWhenItComes) {
  constexpr int kAttempts = 20;
  bool said_something = false;
  for (int attempt = 0; attempt < kAttempts && !said_something; ++attempt) {
    std::array<StrangerStamps, kLinkRanks> of_rank;
    CpuProcesses().run(with_links({}), [&](RankContext& rank) {
      of_rank[static_cast<std::size_t>(rank.rank)] = stranger_transfers(rank);
    });
    const std::int64_t begin = of_rank[1].others.peers_arrived_ns;
    if (begin >= of_rank[1].ours.begin_ns) continue;
    said_something = true;
    EXPECT_GE(of_rank[0].ours.end_ns - begin, 2 * 40 * kMillisecond);
  }
  EXPECT_TRUE(said_something) << "in " << kAttempts << " runs the other transfer never began first";
}

}  // namespace
}  // namespace fsdpbench::backend
