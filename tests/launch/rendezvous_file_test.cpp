#include "launch/rendezvous_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "launch/local_job.h"

namespace fsdpbench::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::free_port;
using ::testing::HasSubstr;
using testing::place;

class RendezvousFile : public ::testing::Test {
 protected:
  RendezvousFile() {
    const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = fs::path(::testing::TempDir()) / ("rendezvous-" + test + "-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  ~RendezvousFile() override { fs::remove_all(folder_); }

  std::string path() const { return rendezvous_path(folder_.string(), "job"); }

  std::string join_text(int rank, int ranks, double deadline_s = 60) const {
    Placement placement = place(rank, ranks, 0, "job");
    placement.root_host.clear();
    try {
      const Joined joined = join_through_file(folder_.string(), placement, introduce(placement, {.version = "v"}),
                                              deadline_in(deadline_s));
      return "joined " + std::to_string(joined.members.size());
    } catch (const BackendError& e) {
      return e.what();
    }
  }
  std::future<std::string> joining(int rank, int ranks) const {
    return std::async(std::launch::async, [=, this] { return join_text(rank, ranks); });
  }

  fs::path folder_;
};

TEST_F(RendezvousFile, RanksFindEachOtherAndLeaveNothingBehind) {
  auto two = joining(2, 3);
  auto one = joining(1, 3);
  std::this_thread::sleep_for(std::chrono::milliseconds(80));
  EXPECT_EQ(join_text(0, 3), "joined 3");
  EXPECT_EQ(one.get(), "joined 3");
  EXPECT_EQ(two.get(), "joined 3");
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(RendezvousFile, AStaleFileIsNotTrusted) {
  // Its port is dead; then the port of another job of fsdpbench; at last rank 0 writes a new one.
  std::ofstream(path()) << "fsdpbench-rendezvous-1 0123456789abcdef " << free_port() << " 1 127.0.0.1\n";
  auto one = joining(1, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(80));
  std::string error;
  Socket listener = listen_at("127.0.0.1", 0, error);
  std::ofstream(path()) << "fsdpbench-rendezvous-1 0123456789abcdef " << listener.local_port() << " 1 127.0.0.1\n";
  const Placement stranger = place(0, 2, 0, "job");
  EXPECT_THROW(take_in_all(std::move(listener), introduce(stranger, {.version = "v"}), deadline_in(0.5)), BackendError);
  EXPECT_EQ(join_text(0, 2), "joined 2");
  EXPECT_EQ(one.get(), "joined 2");
}

TEST_F(RendezvousFile, NobodyThereIsSaidWithThePath) {
  EXPECT_THAT(join_text(1, 2, 0.1), HasSubstr("there is no rendezvous file '" + path() + "'"));
  EXPECT_THAT(join_text(0, 2, 0.1), HasSubstr("rank 1 of 2 did not join in time"));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(RendezvousFile, AFolderThatCannotBeWrittenIsNamed) {
  const Placement placement = place(0, 2, 0, "job");
  try {
    join_through_file("/dev/null/x", placement, introduce(placement, {}), deadline_in(1));
    FAIL() << "nothing was thrown";
  } catch (const BackendError& e) {
    EXPECT_THAT(e.what(),
                AllOf(HasSubstr("'/dev/null/x/fsdpbench-job-rendezvous'"), HasSubstr("FSDPBENCH_RENDEZVOUS")));
  }
}

TEST(RendezvousPath, HasNoStrangeCharacters) {
  EXPECT_EQ(rendezvous_path("/a b", "slurm 7.3/x"), "/a b/fsdpbench-slurm-7.3-x-rendezvous");
  EXPECT_EQ(rendezvous_path("/a", ""), "/a/fsdpbench-job-rendezvous");
}

}  // namespace
}  // namespace fsdpbench::launch
