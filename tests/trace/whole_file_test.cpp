#include "trace/whole_file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "trace/support.h"

namespace {

std::vector<std::string> synced;  // what fsync was asked for

}  // namespace

/// Takes the place of the C library's.
extern "C" int fsync(int file) {
  struct stat now {};
  ::fstat(file, &now);
  if (S_ISDIR(now.st_mode)) {
    const auto folder = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file));
    synced.push_back(std::filesystem::exists(folder / "a.json") ? "a folder with a.json" : "a folder without it");
  } else {
    synced.push_back("a file of " + std::to_string(now.st_size) + " bytes");
  }
  return static_cast<int>(::syscall(SYS_fsync, file));
}

namespace fsdpbench::trace {
namespace {

using ::testing::HasSubstr;

TEST(WholeFile, IsNotThereBeforeItIsWhole) {
  const TemporaryFolder folder;
  {
    WholeFile file(folder / "a.json");
    file.write("half");
    EXPECT_FALSE(std::filesystem::exists(folder / "a.json"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  WholeFile file(folder / "a.json");
  file.write("whole");
  file.commit();
  EXPECT_EQ(read_text(folder / "a.json"), "whole");
}

TEST(WholeFile, FollowsNoLinkAndTwoWritersDoNotMix) {
  const TemporaryFolder folder;
  const std::string victim = folder / "victim";
  { std::ofstream(victim) << "untouched"; }
  std::filesystem::create_symlink(victim, folder / "a.json.part");
  std::filesystem::create_symlink(victim, folder / "a.json");
  WholeFile one(folder / "a.json"), two(folder / "a.json");
  one.write("one one");
  two.write("two");
  one.write(" one");
  two.commit();
  EXPECT_EQ(read_text(folder / "a.json"), "two");
  one.commit();
  EXPECT_EQ(read_text(folder / "a.json"), "one one one");
  EXPECT_EQ(read_text(victim), "untouched");
}

/// Nobody can say that it belongs there, and nothing else would ever take it away.
TEST(WholeFile, LeavesNothingInAFolderThatIsRenamedMeanwhile) {
  const TemporaryFolder folder;
  const std::filesystem::path before = folder / "before", after = folder / "after";
  std::filesystem::create_directory(before);
  for (const char* name : {"a.json", "a.json.gz"}) {
    WholeFile file((before / name).string());
    file.write("half");
    std::filesystem::rename(before, after);
    EXPECT_THROW(file.commit(), OutputError);
    std::filesystem::create_directory(before);
  }
  EXPECT_TRUE(std::filesystem::is_empty(after));
  EXPECT_TRUE(std::filesystem::is_empty(before));
}

std::string output_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const OutputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(WholeFile, AMissingFolderNamesTheFile) {
  EXPECT_THAT(output_error([] { WholeFile("/nowhere/at/all.json"); }), HasSubstr("/nowhere/at/all.json"));
}

TEST(WholeFile, AFullDiskNamesTheFileAndLeavesNothing) {
  const TemporaryFolder folder;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string noise;
  for (unsigned i = 0; i < 1'000'000; ++i) noise += static_cast<char>((i * 2654435761U) >> 24U);
  for (const char* name : {"full.json", "full.json.gz"}) {
    EXPECT_THAT(output_error([&] {
                  WholeFile file(folder / name);
                  file.write(noise);
                  file.commit();
                }),
                HasSubstr(folder / name));
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(WholeFile, IsSyncedBeforeItHasItsNameAndItsFolderAfterwards) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.json";
  for (const auto fate : {WholeFile::Fate::kept, WholeFile::Fate::synced}) {
    synced.clear();
    WholeFile file(path, fate);
    file.write("whole");
    file.commit();
    if (fate == WholeFile::Fate::kept) {
      EXPECT_TRUE(synced.empty());
    } else {
      EXPECT_THAT(synced, ::testing::ElementsAre("a file of 5 bytes", "a folder with a.json"));
    }
    std::filesystem::remove(path);
  }
}

}  // namespace
}  // namespace fsdpbench::trace
