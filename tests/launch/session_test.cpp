// Which way join() takes.
#include "launch/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch/local_job.h"
#include "launch/processes.h"

namespace fsdpbench::launch {
namespace {

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

TEST(Session, WithoutAnyWayItSaysWhatToSet) {
  const auto outcomes = run_processes(1, [](int) -> std::string {
    Placement placement = place(1, 3, 0);
    placement.root_host.clear();
    join(placement);
    return "joined";
  });
  EXPECT_EQ(
      outcomes[0].text,
      "a test says no address, so rank 1 of 3 does not know where rank 0 is; set MASTER_ADDR to rank 0's host and "
      "FSDPBENCH_SECRET to the same random text on all hosts, as `openssl rand -hex 32` makes one (mpirun -x NAME "
      "passes "
      "a variable on)");
}

}  // namespace
}  // namespace fsdpbench::launch
