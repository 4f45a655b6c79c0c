#include "launch/rendezvous_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

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

/// Environment of ranks that share nothing but `folder`.
Environment sharing(const std::string& folder) {
  return [folder](const char* name) { return std::string_view(name) == kRendezvousFolder ? folder.c_str() : nullptr; };
}

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
      const Joined joined =
          meet(placement, introduce(placement, {.version = "v"}), deadline_in(deadline_s), sharing(folder_.string()));
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
  {
    const launch::RendezvousFile left(path() + "x", {{"127.0.0.1"}, free_port(), random_token()});
    fs::copy(path() + "x", path());
  }
  auto one = joining(1, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(80));
  std::string error;
  Socket listener = listen_at("127.0.0.1", 0, error);
  const launch::RendezvousFile other(path(), {{"127.0.0.1"}, listener.local_port(), random_token()});
  const Placement stranger = place(0, 2, 0, "job");
  EXPECT_THROW(
      take_in_all(std::move(listener), introduce(stranger, {.version = "v"}), random_token(), deadline_in(0.5)),
      BackendError);
  EXPECT_EQ(join_text(0, 2), "joined 2");
  EXPECT_EQ(one.get(), "joined 2");
}

TEST_F(RendezvousFile, NobodyThereIsSaidWithThePath) {
  EXPECT_THAT(join_text(1, 2, 0.1), HasSubstr("there is no rendezvous file '" + path() + "'"));
  EXPECT_THAT(join_text(0, 2, 0.1), HasSubstr("rank 1 of 2 did not join in time"));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(RendezvousFile, AFolderThatCannotBeWrittenIsNamed) {
  Placement placement = place(0, 2, 0, "job");
  placement.root_host.clear();
  try {
    (void)meet(placement, introduce(placement, {}), deadline_in(1), sharing("/dev/null/x"));
    FAIL() << "nothing was thrown";
  } catch (const BackendError& e) {
    EXPECT_THAT(e.what(),
                AllOf(HasSubstr("'/dev/null/x/fsdpbench-job-rendezvous'"), HasSubstr("FSDPBENCH_RENDEZVOUS")));
  }
}

TEST_F(RendezvousFile, OnlyItsUserMayReadIt) {
  const launch::RendezvousFile file(path(), {{"127.0.0.1"}, 1234, random_token()});
  EXPECT_EQ(fs::status(path()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  std::string reason;
  EXPECT_TRUE(read_rendezvous(path(), reason));
  for (const fs::perms more : {fs::perms::group_read, fs::perms::others_write}) {
    fs::permissions(path(), fs::perms::owner_read | fs::perms::owner_write | more);
    EXPECT_FALSE(read_rendezvous(path(), reason));
    EXPECT_THAT(reason, AllOf(HasSubstr(path()), HasSubstr("is not trusted")));
  }
}

TEST_F(RendezvousFile, NoLinkPipeOrFolderIsRead) {
  std::string reason;
  const std::string real = path() + "-real";
  const launch::RendezvousFile file(real, {{"127.0.0.1"}, 1234, random_token()});
  fs::create_symlink(real, path());
  EXPECT_FALSE(read_rendezvous(path(), reason));
  fs::remove(path());
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_FALSE(read_rendezvous(path(), reason));  // and does not wait for a writer
  EXPECT_THAT(reason, HasSubstr("is not trusted"));
  fs::remove(path());
  fs::create_directory(path());
  EXPECT_FALSE(read_rendezvous(path(), reason));
}

TEST_F(RendezvousFile, APlantedLinkIsReplacedAndNotFollowed) {
  const std::string victim = (folder_ / "victim").string();
  std::ofstream(victim) << "untouched";
  fs::create_symlink(victim, path());
  {
    const launch::RendezvousFile file(path(), {{"127.0.0.1"}, 1234, random_token()});
    std::string reason;
    EXPECT_TRUE(read_rendezvous(path(), reason)) << reason;
  }
  std::string left;
  std::getline(std::ifstream(victim), left);
  EXPECT_EQ(left, "untouched");
}

TEST(RendezvousText, IsReadBackAndDamageIsRefused) {
  const std::string secret = random_token();
  const std::string good = "fsdpbench-rendezvous-3 " + secret + " 1234 10.0.0.1 fd00::1\n";
  const std::optional<Meeting> meeting = parse_rendezvous(good);
  ASSERT_TRUE(meeting);
  EXPECT_EQ(meeting->port, 1234);
  EXPECT_EQ(meeting->hosts, (std::vector<std::string>{"10.0.0.1", "fd00::1"}));
  EXPECT_EQ(meeting->secret, secret);
  for (std::size_t cut = 0; cut < good.size(); ++cut) EXPECT_FALSE(parse_rendezvous(good.substr(0, cut))) << cut;
  EXPECT_FALSE(parse_rendezvous("fsdpbench-rendezvous-2 " + secret + " 1234 h\n"));
  EXPECT_FALSE(parse_rendezvous("fsdpbench-rendezvous-3 " + secret + " 65536 h\n"));
  EXPECT_FALSE(parse_rendezvous("fsdpbench-rendezvous-3 " + secret + " x1234 h\n"));
  EXPECT_FALSE(parse_rendezvous("fsdpbench-rendezvous-3 " + secret + " 1234\n"));
}

TEST(RendezvousPath, HasNoStrangeCharacters) {
  EXPECT_EQ(rendezvous_path("/a b", "slurm 7.3/x"), "/a b/fsdpbench-slurm-7.3-x-rendezvous");
  EXPECT_EQ(rendezvous_path("/a", ""), "/a/fsdpbench-job-rendezvous");
}

}  // namespace
}  // namespace fsdpbench::launch
