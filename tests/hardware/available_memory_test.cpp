#include "hardware/other_work.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kMiB = 1 << 20;

/// A system as its files say it is.
class AvailableMemoryTest : public ::testing::Test {
 protected:
  AvailableMemoryTest()
      : root_(fs::path(::testing::TempDir()) /
              (std::string("available-") + ::testing::UnitTest::GetInstance()->current_test_info()->name() +
               std::to_string(getpid()))) {
    put("proc/meminfo", "MemTotal: 4194304 kB\nMemAvailable: 1048576 kB\n");
  }
  ~AvailableMemoryTest() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  fs::path root_;
};

TEST_F(AvailableMemoryTest, WithoutLimitsIsTheMachines) {
  put("proc/self/cgroup", "0::/user.slice\n");
  put("sys/fs/cgroup/user.slice/memory.max", "max\n");
  put("sys/fs/cgroup/user.slice/memory.current", "123\n");
  const AvailableMemory memory = available_memory(root_);
  EXPECT_EQ(memory.bytes, 1024 * kMiB);
  EXPECT_EQ(memory.limit, "this machine has");
}

TEST_F(AvailableMemoryTest, AGroupOfVersionTwoLimitsAndItsOldFilePagesAreFree) {
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/b/memory.max", std::to_string(500 * kMiB));
  put("sys/fs/cgroup/a/b/memory.current", std::to_string(300 * kMiB));
  put("sys/fs/cgroup/a/b/memory.stat", "anon 1\ninactive_file " + std::to_string(100 * kMiB) + "\n");
  const AvailableMemory memory = available_memory(root_);
  EXPECT_EQ(memory.bytes, 300 * kMiB);
  EXPECT_EQ(memory.limit, "its control group (/a/b) has");
}

TEST_F(AvailableMemoryTest, TheTightestGroupAboveCounts) {
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/b/memory.max", std::to_string(500 * kMiB));
  put("sys/fs/cgroup/a/b/memory.current", "0");
  put("sys/fs/cgroup/a/memory.max", std::to_string(400 * kMiB));
  put("sys/fs/cgroup/a/memory.current", std::to_string(350 * kMiB));
  const AvailableMemory memory = available_memory(root_);
  EXPECT_EQ(memory.bytes, 50 * kMiB);
  EXPECT_EQ(memory.limit, "its control group (/a) has");
}

TEST_F(AvailableMemoryTest, AContainerSeesItsOwnLimitWhereTheHierarchyBegins) {
  put("proc/self/cgroup", "0::/../../hosts/name\n");
  put("sys/fs/cgroup/memory.max", std::to_string(64 * kMiB));
  put("sys/fs/cgroup/memory.current", std::to_string(4 * kMiB));
  EXPECT_EQ(available_memory(root_).bytes, 60 * kMiB);
}

TEST_F(AvailableMemoryTest, AGroupOfVersionOneLimits) {
  put("proc/self/cgroup", "7:cpu,cpuacct:/x\n5:hugetlb,memory:/x\n");
  put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", std::to_string(200 * kMiB));
  put("sys/fs/cgroup/memory/x/memory.usage_in_bytes", std::to_string(50 * kMiB));
  put("sys/fs/cgroup/memory/x/memory.stat", "total_inactive_file 1048576\n");
  EXPECT_EQ(available_memory(root_).bytes, 151 * kMiB);
}

TEST_F(AvailableMemoryTest, FilledUpIsZeroAndNotNegative) {
  put("proc/self/cgroup", "0::/a\n");
  put("sys/fs/cgroup/a/memory.max", "1000");
  put("sys/fs/cgroup/a/memory.current", "2000");
  EXPECT_EQ(available_memory(root_).bytes, 0);
}

TEST_F(AvailableMemoryTest, OddFilesSayNothing) {
  put("proc/self/cgroup", "nonsense\n0:\n5:memory:\n0::/a\n");
  put("sys/fs/cgroup/a/memory.max", "12x");
  put("sys/fs/cgroup/a/memory.current", "");
  EXPECT_EQ(available_memory(root_).bytes, 1024 * kMiB);
}

}  // namespace
}  // namespace fsdpbench::app
