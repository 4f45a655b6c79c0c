// Which way join() takes.
#include "launch/join.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "launch/addresses.h"
#include "launch/host_identity.h"
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
      "a test says no address, so rank 1 of 3 does not know where rank 0 is; set FSDPBENCH_RENDEZVOUS to a folder "
      "that all ranks share");
}

TEST(Session, WithoutThePluginForMpiItSaysWhatIsMissingOrMeetsInTheFolder) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("session-test-" + random_token());
  fs::create_directories(folder);
  setenv("FSDPBENCH_MPI_PLUGIN", "/nowhere/fsdpbench_mpi.so", 1);
  for (const bool with_folder : {false, true}) {
    const auto outcomes = run_processes(2, [&](int rank) -> std::string {
      if (with_folder) setenv("FSDPBENCH_RENDEZVOUS", folder.c_str(), 1);
      Placement placement = place(rank, 2, 0);
      placement.launcher = Launcher::mpi;
      placement.source = "mpirun";
      placement.root_host.clear();
      return join(placement)->transport();
    });
    for (int rank = 0; rank < 2; ++rank) {
      const std::string missing = fmt::format(
          "mpirun started this process, but the plugin for MPI is missing (/nowhere/fsdpbench_mpi.so does not exist; a "
          "build from source makes it where mpicc is), so rank {} of 2 does not know where rank 0 is; set "
          "FSDPBENCH_RENDEZVOUS to a folder that all ranks share",
          rank);
      EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].text, with_folder ? "TCP sockets" : missing);
    }
  }
  unsetenv("FSDPBENCH_MPI_PLUGIN");
  fs::remove(folder);
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
