// Which way join() takes.
#include "launch/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "launch/addresses.h"
#include "launch/local_job.h"
#include "launch/processes.h"

namespace fsdpbench::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::place;
using testing::run_job;
using testing::run_processes;

TEST(Session, SaysWhoItIsAndHowBytesTravel) {
  run_job(2, [](Session& session, int rank) {
    EXPECT_EQ(session.placement().rank, rank);
    EXPECT_EQ(session.placement().source, "a test");
    EXPECT_EQ(session.transport(), "TCP sockets");
  });
}

TEST(Session, WithoutAnAddressThereIsTheFolderOfTheEnvironment) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("session-test-" + random_token());
  fs::create_directories(folder);
  const auto outcomes = run_processes(3, [&](int rank) -> std::string {
    setenv("FSDPBENCH_RENDEZVOUS", folder.c_str(), 1);
    Placement placement = place(rank, 3, 0);
    placement.root_host.clear();
    const auto session = join(placement);
    return broadcast(session->control(), "word", rank == 0 ? "found" : "");
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.text, "found");
  EXPECT_TRUE(fs::is_empty(folder));
  fs::remove(folder);
}

TEST(Session, WithoutAnyWayItSaysWhatToSet) {
  const auto outcomes = run_processes(1, [](int) -> std::string {
    unsetenv("FSDPBENCH_RENDEZVOUS");
    Placement placement = place(1, 3, 0);
    placement.root_host.clear();
    join(placement);
    return "joined";
  });
  EXPECT_EQ(
      outcomes[0].text,
      "a test says no address, so rank 1 of 3 does not know where rank 0 is; set FSDPBENCH_RENDEZVOUS to a folder that "
      "all ranks share, or MASTER_ADDR to rank 0's host and FSDPBENCH_SECRET to the same random text on all hosts, as "
      "`openssl rand -hex 32` makes one (mpirun -x NAME passes a variable on)");
}

TEST(Session, RanksMayMeetAtAnAddressThatIsNotLoopback) {
  const std::vector<std::string> addresses = interface_addresses();
  if (addresses.empty()) GTEST_SKIP() << "this host has no address but loopback";
  const int port = testing::free_port();
  run_ranks(3, [&](int rank) {
    Placement placement = place(rank, 3, port);
    placement.root_host = addresses.front();
    const auto session = join(placement);
    const auto group = session->peers();
    int got = -1;
    const PeerGroup::Send send{(rank + 1) % 3, std::as_bytes(std::span(&rank, 1))};
    const PeerGroup::Receive receive{(rank + 2) % 3, std::as_writable_bytes(std::span(&got, 1))};
    group->exchange({&send, 1}, {&receive, 1}, {});
    EXPECT_EQ(got, (rank + 2) % 3);
  });
}

}  // namespace
}  // namespace fsdpbench::launch
