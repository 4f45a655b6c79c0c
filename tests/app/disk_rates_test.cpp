// What a folder's disk takes and gives: bytes, parts and reasons, never how fast.

#include "app/machine/disk_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include "support/temporary_folder.h"

namespace fsdpbench::app {
namespace {

using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t kSmall = std::int64_t{kPartsOfADisk} << 20;

TEST(DiskRatesTest, EachPartIsWrittenAndReadAndNothingStays) {
  const TemporaryFolder folder;
  const DiskRates rates = measure_disk(folder.path(), kSmall, 1000);
  EXPECT_EQ(rates.unknown_because, "");
  EXPECT_EQ(rates.folder, folder.path().string());
  EXPECT_THAT(rates.write_bytes_per_s, SizeIs(kPartsOfADisk));
  EXPECT_THAT(rates.read_bytes_per_s, SizeIs(kPartsOfADisk));
  EXPECT_THAT(rates.write_bytes_per_s, Each(Gt(0)));
  EXPECT_THAT(rates.read_bytes_per_s, Each(Gt(0)));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

void write_until_killed(const std::filesystem::path& folder) {
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = 4 << 20;  // whole blocks: the next write has no room at all
  (void)setrlimit(RLIMIT_FSIZE, &limit);
  (void)signal(SIGXFSZ, SIG_DFL);
  measure_disk(folder, kSmall, 1000);
}

TEST(DiskRatesDeathTest, AProcessThatIsKilledWhileItWritesLeavesNothing) {
  const TemporaryFolder folder;
  EXPECT_EXIT(write_until_killed(folder.path()), ::testing::KilledBySignal(SIGXFSZ), "");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(DiskRatesTest, WhatTimeAllowsIsMeasuredAndNoMore) {
  const TemporaryFolder folder;
  const DiskRates rates = measure_disk(folder.path(), kSmall, 0);
  EXPECT_THAT(rates.write_bytes_per_s, SizeIs(1)) << "a block, whatever time it takes";
  EXPECT_THAT(rates.read_bytes_per_s, SizeIs(1));
}

TEST(DiskRatesTest, AFolderThatIsNotThereYetIsThatAboveIt) {
  const TemporaryFolder folder;
  EXPECT_EQ(measure_disk(folder.path() / "runs" / "first", kSmall, 0).folder, folder.path().string());
  EXPECT_THAT(measure_disk("/nowhere/at/all", kSmall, 0).unknown_because, HasSubstr("no part of its path"));
}

TEST(DiskRatesTest, WhatCannotBeMeasuredSaysWhyAndHasNoRate) {
  const TemporaryFolder folder;
  const DiskRates full = measure_disk(folder.path(), std::int64_t{1} << 60, 0);
  EXPECT_THAT(full.unknown_because, HasSubstr("left"));
  EXPECT_THAT(full.write_bytes_per_s, IsEmpty());
  const DiskRates refused = measure_disk("/proc/self", kSmall, 0);
  EXPECT_THAT(refused.unknown_because, HasSubstr("a file cannot be made there: "));
  EXPECT_THAT(refused.write_bytes_per_s, IsEmpty());
  EXPECT_THAT(refused.read_bytes_per_s, IsEmpty());
}

}  // namespace
}  // namespace fsdpbench::app
