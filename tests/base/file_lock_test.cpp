#include "base/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace fsdpbench {
namespace {

class FileLock : public ::testing::Test {
 protected:
  FileLock() : made_(mkstemp(name_.data())) {}
  ~FileLock() override {
    close(made_);
    unlink(name_.c_str());
  }
  /// As another process would: open files have locks, not names.
  int opened() const { return open(name_.c_str(), O_RDWR | O_CLOEXEC); }

 private:
  std::string name_ = ::testing::TempDir() + "file_lock_XXXXXX";
  int made_;
};

TEST_F(FileLock, IsOneProcesssUntilItClosesTheFile) {
  const int first = opened(), second = opened();
  EXPECT_TRUE(lock_for_this_process(first));
  EXPECT_FALSE(lock_for_this_process(second));
  close(first);
  EXPECT_TRUE(lock_for_this_process(second));
  close(second);
}

TEST_F(FileLock, OfAProcessThatEndsAtOnceIsNoLock) {
  const int file = opened();
  ASSERT_EQ(flock(file, LOCK_EX | LOCK_NB), 0);
  const pid_t child = fork();  // it has the open file, too, as a child has that is about to begin another program
  ASSERT_GE(child, 0);
  if (child == 0) {
    usleep(100'000);
    _exit(0);
  }
  close(file);
  const int next = opened();
  EXPECT_TRUE(lock_for_this_process(next));
  close(next);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace fsdpbench
