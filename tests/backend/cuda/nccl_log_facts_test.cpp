// Lines as NCCL 2.10 to 2.28 wrote them on other people's machines (hosts renamed), and as 2.28.9 would.

#include "backend/cuda/nccl/nccl_log_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "backend/cuda/nccl/nccl_log.h"
#include "backend/cuda/nccl/users_nccl_log.h"

namespace fsdpbench::backend::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::Pair;

constexpr std::string_view kTwoHosts = R"(
node-6:4015539:4015652 [0] NCCL INFO Using network IB
node-6:4015539:4015652 [0] NCCL INFO NVLS multicast support is available on dev 0
node-6:4015539:4015652 [0] NCCL INFO Channel 00/08 :    0   1   3   2
node-6:4015539:4015652 [0] NCCL INFO Channel 05/0 : 0[0] -> 2[0] [receive] via NET/IB/3/GDRDMA
node-6:4015539:4015652 [0] NCCL INFO Channel 07/0 : 0[0] -> 2[0] [receive] via NET/IB/3/GDRDMA
node-6:4015540:4015653 [1] NCCL INFO Channel 00/0 : 1[1] -> 3[1] [receive] via NET/IB/2/GDRDMA
node-6:4015540:4015653 [1] NCCL INFO Channel 02/0 : 1[1] -> 3[1] [receive] via NET/IB/2/GDRDMA
node-6:4015540:4015653 [1] NCCL INFO Channel 01/0 : 3[1] -> 1[1] [send] via NET/IB/2/GDRDMA
node-6:4015540:4015653 [1] NCCL INFO Channel 00/0 : 3[1] -> 2[0] via P2P/CUMEM
node-6:4015540:4015653 [1] NCCL INFO Channel 02/0 : 3[1] -> 2[0] via P2P/CUMEM
node-6:4015539:4015652 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1
node-6:4015539:4015652 [0] NCCL INFO 16 coll channels, 16 collnet channels, 8 nvls channels, 16 p2p channels, 2 p2p channels per peer
)";

TEST(NcclLogFactsTest, CountsEachConnectionOnceWhateverItsChannels) {
  const NcclLogFacts facts = parse_nccl_log(kTwoHosts);
  EXPECT_THAT(facts.transports, ElementsAre(Pair("NET/IB/2/GDRDMA", ElementsAre(Pair(1, 3), Pair(3, 1))),
                                            Pair("NET/IB/3/GDRDMA", ElementsAre(Pair(0, 2))),
                                            Pair("P2P/CUMEM", ElementsAre(Pair(3, 2)))));
  EXPECT_THAT(facts.networks, ElementsAre("IB"));
  EXPECT_EQ(facts.multicast, true);
  EXPECT_EQ(facts.channels, 16);
  EXPECT_EQ(facts.nvls_channels, 8);
  EXPECT_THAT(
      describe(facts),
      ElementsAre(Pair("nccl transport",
                       "NET/IB/2/GDRDMA (2 connections), NET/IB/3/GDRDMA (1 connection), P2P/CUMEM (1 connection)"),
                  Pair("nccl network", "IB"), Pair("nccl nvls", "available, 8 channels"), Pair("nccl channels", "16")));
}

TEST(NcclLogFactsTest, KnowsTheOtherWaysOfWriting) {
  const NcclLogFacts facts = parse_nccl_log(
      "como:60725:60750 [2] NCCL INFO Channel 00 : 2[a000] -> 3[b000] via P2P/direct pointer\n"
      "node:106:121 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/direct pointer/read comm 0x55cd1a0bf930 nRanks "
      "02\n"
      "node:1:2 [0] NCCL INFO Channel 01 : 0[0] -> 1[1] via SHM/direct/direct\n"
      "node:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
      "node:1:2 [0] NCCL INFO CollNet 00/1 : 3 [send] via COLLNET/SHARP/0/GDRDMA\n"
      "[2026-05-05 06:16:47] node:1:2 [0] NCCL INFO Channel 00/0 : 4[4] -> 5[5] via P2P/IPC/read");
  EXPECT_THAT(facts.transports,
              ElementsAre(Pair("COLLNET/SHARP/0/GDRDMA", ElementsAre(Pair(3, -1))),
                          Pair("NET/Socket/0", ElementsAre(Pair(0, 1))), Pair("P2P/IPC/read", ElementsAre(Pair(4, 5))),
                          Pair("P2P/direct pointer", ElementsAre(Pair(2, 3))),
                          Pair("P2P/direct pointer/read", ElementsAre(Pair(1, 0))),
                          Pair("SHM/direct/direct", ElementsAre(Pair(0, 1)))));
}

TEST(NcclLogFactsTest, OneGpuWithoutMulticastIsEnoughForNone) {
  EXPECT_EQ(parse_nccl_log("user:1:2 [7] NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)\n"
                           "user:1:3 [6] NCCL INFO NVLS multicast support is not available on dev 6\n"
                           "user:1:3 [5] NCCL INFO NVLS multicast support is available on dev 5\n")
                .multicast,
            false);
  EXPECT_THAT(describe(parse_nccl_log("x NCCL INFO NVLS multicast support is not available on dev 6")),
              ElementsAre(Pair("nccl nvls", "not available")));
}

TEST(NcclLogFactsTest, AlgorithmsAreToldByTheTuningLines) {
  const NcclLogFacts facts = parse_nccl_log(
      "n:1:1 [0] NCCL INFO AllGather: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..3}\n"
      "n:1:1 [0] NCCL INFO AllGather: 67108864 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}\n"
      "n:1:1 [0] NCCL INFO ReduceScatter [Symmetric]: 4096 Bytes -> Kernel ReduceScatter_LD nchannels 8 nthreads 512 "
      "nWorks 1\n"
      "n:1:1 [0] NCCL INFO 805306368 Bytes -> Algo 1 proto 2 time 3970.683594\n");
  EXPECT_THAT(describe(facts), ElementsAre(Pair("nccl algorithms",
                                                "AllGather: NVLS/SIMPLE, RING/LL128; ReduceScatter: "
                                                "symmetric kernel ReduceScatter_LD")));
}

TEST(NcclLogFactsTest, WhatIsNotToldIsAbsent) {
  EXPECT_THAT(describe(parse_nccl_log("")), IsEmpty());
  EXPECT_THAT(describe(parse_nccl_log("node:1:2 [0] NCCL INFO cudaDriverVersion 13000\nNCCL version 2.28.9+cuda13.0\n"
                                      "node:1:2 [0] NCCL INFO Channel 00/02 :    0   1\n via \nUsing network \n"
                                      "Channel 0 : 99999999999999[0] -> 1[1] via P2P/CUMEM\n")),
              IsEmpty());
  EXPECT_THAT(describe(parse_nccl_log(std::string(1 << 20, 'x') + " via ")), IsEmpty());
}

/// In a process of its own: NCCL writes `lines` to its log under the user's variables. Tells on stderr what the user
/// gets, between brackets, and what is read.
void log_as_nccl(const char* level, const char* subsystems, const std::string& lines) {
  const auto set = [](const char* name, const char* value) {
    value != nullptr ? setenv(name, value, 1) : unsetenv(name);
  };
  const std::string users = std::string(testing::TempDir()) + "/users-nccl-log-%p-%%";
  set("NCCL_DEBUG", level);
  set("NCCL_DEBUG_SUBSYS", subsystems);
  set("NCCL_DEBUG_FILE", users.c_str());
  open_nccl_log();
  open_nccl_log();
  std::FILE* const file = std::fopen(getenv("NCCL_DEBUG_FILE"), "w");  // as NCCL does
  std::fputs(lines.c_str(), file);
  std::fclose(file);
  const NcclLog log = read_nccl_log();
  const std::string name = expand_log_name(users);
  std::ifstream shown(name);
  std::fprintf(stderr, "%s %s [%s] read: %s%s", getenv("NCCL_DEBUG"), getenv("NCCL_DEBUG_SUBSYS"),
               std::string(std::istreambuf_iterator<char>(shown), {}).c_str(), log.text.c_str(), log.why_not.c_str());
  std::remove(name.c_str());
  std::exit(0);
}

constexpr const char* kLines =
    "NCCL version 2.28.9\n"
    "n:1:1 [0] NCCL INFO Using network IB\n"
    "n:1:1 [0] NCCL INFO AllGather: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}\n"
    "\nn:1:1 [0] init.cc:7 NCCL WARN oh\n";

class NcclLogDeathTest : public testing::Test {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(NcclLogDeathTest, WithoutAWishNothingIsShownAndAllIsRead) {
  EXPECT_EXIT(log_as_nccl(nullptr, nullptr, kLines), testing::ExitedWithCode(0),
              "^INFO INIT,BOOTSTRAP,ENV,TUNING \\[\\] read: NCCL version .*Using network.*Algo RING.*NCCL WARN oh");
}

TEST_F(NcclLogDeathTest, AUserOfWarningsGetsThoseAndTheFactsAreReadAllTheSame) {
  EXPECT_EXIT(log_as_nccl("warn", nullptr, kLines), testing::ExitedWithCode(0),
              "^INFO INIT,BOOTSTRAP,ENV,TUNING \\[NCCL version 2.28.9\nn:1:1 .0. init.cc:7 NCCL WARN oh\n\\] read: "
              "NCCL version .*Using network.*Algo RING");
}

TEST_F(NcclLogDeathTest, AUserOfInfosGetsNoLineForEachCollectiveUnlessAskedFor) {
  EXPECT_EXIT(log_as_nccl("INFO", nullptr, kLines), testing::ExitedWithCode(0),
              "^INFO INIT,BOOTSTRAP,ENV,TUNING \\[NCCL version 2.28.9\nn:1:1 .0. NCCL INFO Using network "
              "IB\n\nn:1:1 .0. init.cc:7 NCCL WARN oh\n\\] read: .*Algo RING");
  EXPECT_EXIT(log_as_nccl("TRACE", "NET", kLines), testing::ExitedWithCode(0),
              "^TRACE NET,INIT,TUNING \\[NCCL version .*Algo RING.*NCCL WARN oh\n\\] read: ");
  EXPECT_EXIT(log_as_nccl("INFO", "^NET", kLines), testing::ExitedWithCode(0), "^INFO \\^NET ");
}

TEST_F(NcclLogDeathTest, ChoicesAreKeptOnceHoweverManyCollectivesThereAre) {
  std::string lines;
  for (int i = 0; i < 20'000; ++i) {  // more than a pipe holds
    lines += "n:1:1 [0] NCCL INFO AllGather: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}\n";
  }
  EXPECT_EXIT(log_as_nccl(nullptr, nullptr, lines), testing::ExitedWithCode(0), "read: [^\n]*Algo RING[^\n]*\n$");
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
