#include "runs/result_folder.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "config/support.h"
#include "runs/trace_files.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

ExitCode code_of(const std::string& out) {
  try {
    const ResultFolder folder("p", out, OldResult::refuse);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(out));
    return error.code();
  }
  return ExitCode::ok;
}

class ResultFolderTest : public ::testing::Test {
 protected:
  void put(const std::string& name) {
    fs::create_directories((out_ / name).parent_path());
    std::ofstream(out_ / name) << "x\n";
  }
  bool has(const std::string& name) const { return fs::exists(out_ / name); }

  config::TemporaryFolder temporary_;
  fs::path out_ = temporary_.path() / "a/b";
};

TEST_F(ResultFolderTest, IsOneRunsAtATime) {
  const ResultFolder first("p", out_.string(), OldResult::refuse);
  EXPECT_EQ(code_of(out_.string()), ExitCode::cannot_write);
}

TEST_F(ResultFolderTest, MakesTheFolderWithItsParentsAndLeavesItEmpty) {
  const ResultFolder folder("p", out_.string(), OldResult::refuse);
  EXPECT_EQ(folder.path(), out_);
  EXPECT_TRUE(fs::is_directory(out_));
  EXPECT_TRUE(fs::is_empty(out_));
}

/// A process that is ended while it asks leaves nothing there.
TEST_F(ResultFolderTest, AsksWhetherItCanBeWrittenWithoutANameInIt) {
  fs::create_directories(out_);
  const int nameless = ::open(out_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (nameless < 0) GTEST_SKIP() << "files of this file system have names";
  ::close(nameless);
  const int events = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(events, 0);
  ASSERT_GE(::inotify_add_watch(events, out_.c_str(), IN_CREATE | IN_DELETE), 0);
  { const ResultFolder folder("p", out_.string(), OldResult::refuse); }
  char buffer[4096];
  EXPECT_LT(::read(events, buffer, sizeof buffer), 0) << "there was a file";
  ::close(events);
}

/// A run that was killed leaves the files that it was writing under hidden names.
TEST_F(ResultFolderTest, RemovesWhatAKilledRunWasWriting) {
  for (const char* name : {".trace.json.Xb3kPq", "trace/.rank_3.json.gz.Xb3kPq", ".mine.Xb3kPq", ".trace.json"})
    put(name);
  const ResultFolder folder("p", out_.string(), OldResult::refuse);
  EXPECT_FALSE(has(".trace.json.Xb3kPq"));
  EXPECT_FALSE(has("trace"));
  EXPECT_TRUE(has(".mine.Xb3kPq") && has(".trace.json")) << "which are not ours";
}

TEST_F(ResultFolderTest, GoesAgainWithItsParentsIfNothingWasWritten) {
  { const ResultFolder folder("p", out_.string(), OldResult::refuse); }
  EXPECT_FALSE(fs::exists(temporary_.path() / "a"));
  EXPECT_TRUE(fs::exists(temporary_.path()));
}

TEST_F(ResultFolderTest, StaysIfSomethingWasWrittenOrItWasThereBefore) {
  {
    const ResultFolder folder("p", out_.string(), OldResult::refuse);
    put("file");
  }
  EXPECT_TRUE(has("file"));
  fs::remove(out_ / "file");
  { const ResultFolder folder("p", out_.string(), OldResult::refuse); }
  EXPECT_TRUE(fs::is_directory(out_));
}

TEST_F(ResultFolderTest, ADefaultNameIsNewForEveryone) {
  const fs::path before = fs::current_path();
  fs::current_path(temporary_.path());
  std::vector<std::string> names(16);
  {
    std::vector<std::jthread> threads;
    for (std::string& name : names) {
      threads.emplace_back([&name] {
        const ResultFolder folder("quick", "", OldResult::refuse);
        std::ofstream(folder.path() / "mine") << "x";
        name = folder.path().string();
      });
    }
  }
  fs::current_path(before);
  EXPECT_THAT(names.front(), ::testing::StartsWith("runs/quick-20"));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST_F(ResultFolderTest, AnOldResultIsRefused) {
  for (const char* name : {"result.json", "compare.json"}) {
    put(name);
    const std::string error = config::config_error([&] { ResultFolder("p", out_.string(), OldResult::refuse); });
    EXPECT_THAT(error, HasSubstr(name));
    EXPECT_THAT(error, HasSubstr("--overwrite"));
    EXPECT_TRUE(has(name));
    fs::remove(out_ / name);
  }
}

TEST_F(ResultFolderTest, OverwritingTakesOurFilesOutAndNoOthers) {
  const char* ours[] = {"result.json", "trace.json", "config.toml", "trace/rank_2.json.gz", "report/report.html"};
  for (const char* name : ours) put(name);
  put("trace/notes.txt");
  put("notes.txt");
  const ResultFolder folder("p", out_.string(), OldResult::overwrite);
  for (const char* name : ours) EXPECT_FALSE(has(name)) << name;
  EXPECT_TRUE(has("trace/notes.txt") && has("notes.txt"));
}

TEST_F(ResultFolderTest, ASweepIsNeverOverwritten) {
  put("trials.jsonl");
  for (const OldResult old : {OldResult::refuse, OldResult::overwrite}) {
    EXPECT_THAT(config::config_error([&] { ResultFolder("p", out_.string(), old); }), HasSubstr("holds a sweep"));
  }
  const ResultFolder folder("p", out_.string(), OldResult::keep);
  EXPECT_TRUE(has("trials.jsonl"));
}

TEST_F(ResultFolderTest, AFileInTheWay) {
  const std::string file = temporary_.write("file", "x");
  EXPECT_EQ(code_of(file), ExitCode::cannot_write);
  EXPECT_EQ(code_of(file + "/below"), ExitCode::cannot_write);
}

TEST_F(ResultFolderTest, NoPermission) {
  // The kernel's own tree refuses new files even to root.
  EXPECT_EQ(code_of("/proc/fsdpbench"), ExitCode::cannot_write);
}

TEST(AllFiles, AMistakeInOneWriterCostsNoOtherFile) {
  AllFiles files;
  int written = 0;
  files.write([] { throw std::out_of_range("a table is too short"); });
  files.write([&] { ++written; });
  EXPECT_EQ(written, 1);
  EXPECT_THROW(files.finish(), std::out_of_range);
  files.write([] { throw OutputError("trace.json: the disk is full"); });
  EXPECT_THROW(files.finish(), OutputError);
}

}  // namespace
}  // namespace fsdpbench::app
