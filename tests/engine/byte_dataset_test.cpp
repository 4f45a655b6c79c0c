#include "engine/byte_dataset.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <tuple>

#include "base/random.h"
#include "config/support.h"
#include "support/without_root.h"

namespace fsdpbench::engine {
namespace {

using config::config_error;
using config::TemporaryFolder;
using ::testing::EndsWith;

std::string as_text(std::span<const std::uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

TEST(ByteDataset, ReadsAFile) {
  const TemporaryFolder folder;
  const ByteDataset data(folder.write("a.txt", "abcdef"), 6);
  EXPECT_EQ(data.size(), 6);
  EXPECT_EQ(data.files(), 1);
  EXPECT_EQ(as_text(data.sample(0, 6)), "abcdef");
}

TEST(ByteDataset, ReadsAFolderInTheOrderOfPathsWithoutBinaryHiddenAndBuiltFiles) {
  const TemporaryFolder folder;
  folder.write("b.txt", "B");
  folder.write("a/z.txt", "A");
  folder.write("c/d/e.txt", "C");
  folder.write("empty.txt", "");
  folder.write("binary", std::string("x\0y", 3));
  folder.write(".git/config", "hidden");
  folder.write(".hidden", "hidden");
  folder.write("build-asan/x.txt", "built");
  folder.write("runs/x/result.json", "{}");
  folder.write("x/__pycache__/y.pyc", "cached");
  folder.write("d/build.txt", "D");  // a file may be called so
  folder.write("e/runs", "E");
  folder.write("f/__pycache__", "F");
  std::filesystem::create_symlink(folder / "a/z.txt", folder / "link.txt");
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  const ByteDataset data(folder.path(), 1);
  EXPECT_EQ(as_text(data.sample(0, data.size())), "ABCDEF");
  EXPECT_EQ(data.files(), 6);
}

TEST(ByteDataset, OfTooMuchTextTheFirstBytesAreRead) {
  const TemporaryFolder folder;
  folder.write("a", "abc");
  folder.write("b", "def");
  folder.write("c", "ghi");
  for (const auto& [most, text, files] :
       {std::tuple{2, "ab", 1}, {3, "abc", 1}, {5, "abcde", 2}, {6, "abcdef", 2}, {9, "abcdefghi", 3}}) {
    const ByteDataset data(folder.path(), 1, most);
    EXPECT_EQ(as_text(data.sample(0, data.size())), text);
    EXPECT_EQ(data.files(), files);
  }
  EXPECT_EQ(ByteDataset(folder / "a", 1, 2).size(), 2);
  EXPECT_EQ(ByteDataset::kMostBytes, 268435456);
}

TEST(ByteDataset, APlaceIsTheHashOfTheIndexAmongAllThatFit) {
  const TemporaryFolder folder;
  const ByteDataset data(folder.write("a.txt", "abcdefghij"), 1);
  std::set<std::string> seen;
  for (int i = 0; i < 200; ++i) {
    seen.insert(as_text(data.sample(i, 8)));
    EXPECT_EQ(as_text(data.sample(i, 8)),
              std::string("abcdefghij").substr(split_mixed(static_cast<std::uint64_t>(i)) % 3, 8));
    EXPECT_EQ(as_text(data.sample(i, 10)), "abcdefghij");
  }
  EXPECT_THAT(seen, ::testing::ElementsAre("abcdefgh", "bcdefghi", "cdefghij"));
}

TEST(ByteDataset, SamplesDependOnTheIndexAloneAndSpreadOverTheText) {
  const TemporaryFolder folder;
  std::string bytes(10'000, ' ');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>('a' + i % 26);
  const ByteDataset data(folder.write("a.txt", bytes), 1);
  const ByteDataset again(folder.path(), 1);
  const std::uint8_t* begin = data.sample(0, 10'000).data();
  std::array<int, 10> tenths{};
  for (int i = 0; i < 1000; ++i) {
    const auto sample = data.sample(i, 101);
    EXPECT_TRUE(std::ranges::equal(sample, again.sample(i, 101)));
    ++tenths[static_cast<std::size_t>((sample.data() - begin) / 1000)];
  }
  for (const int count : tenths) EXPECT_NEAR(count, 100, 40);
}

TEST(ByteDataset, WhatCannotBeLookedUpIsNotCalledMissing) {
  const TemporaryFolder folder;
  const std::filesystem::path circle = folder.path() / "circle";
  std::filesystem::create_symlink(circle, circle);
  EXPECT_THAT(config_error([&] { ByteDataset(circle / "text", 1); }),
              EndsWith("circle/text\": cannot be read: Too many levels of symbolic links."));
}

/// One that was left out would make it another training's data.
TEST(ByteDataset, WhatCannotBeReadBelowAFolderIsNamed) {
  const TemporaryFolder folder;
  folder.write("a.txt", "abc");
  const std::filesystem::path text = folder.write("c/b.txt", "text that nobody may read");
  const WithoutRoot permissions_count;
  EXPECT_EQ(ByteDataset(folder.path(), 1).files(), 2);
  for (const std::filesystem::path& locked : {text, text.parent_path()}) {
    std::filesystem::permissions(locked, std::filesystem::perms::none);
    const std::string said = config_error([&] { ByteDataset(folder.path(), 1); });
    std::filesystem::permissions(locked, std::filesystem::perms::owner_all);
    EXPECT_THAT(said, EndsWith("\": " + locked.string() + ": cannot be read: Permission denied."));
  }
  std::filesystem::permissions(text, std::filesystem::perms::none);
  EXPECT_EQ(config_error([&] { ByteDataset(text, 1); }),
            "data.path = \"" + text.string() + "\": cannot be read: Permission denied.");
  std::filesystem::permissions(text, std::filesystem::perms::owner_all);
}

TEST(ByteDataset, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  EXPECT_THAT(config_error([] { ByteDataset("/dev/null", 1); }),
              EndsWith("\"/dev/null\": is a pipe or a device; expected a regular file or a folder."));
  EXPECT_THAT(config_error([] { ByteDataset("/nowhere", 1); }),
              EndsWith("data.path = \"/nowhere\": there is no such file or folder."));
  EXPECT_THAT(config_error([&] { ByteDataset(folder.path(), 1); }),
              EndsWith("there is no text (empty and binary files do not count)."));
  folder.write("a.txt", "abc");
  EXPECT_THAT(
      config_error([&] { ByteDataset(folder.path(), 129); }),
      EndsWith("3 bytes of text are too few: one sample (train.seq_len tokens and the last one's target; mlp: inputs "
               "and targets) needs 129."));
  const ByteDataset data(folder.path(), 3);
  EXPECT_THROW(data.sample(0, 4), std::out_of_range);
  EXPECT_THROW(data.sample(0, 0), std::out_of_range);
  EXPECT_EQ(data.sample(0, 1).size(), 1U);
}

TEST(ByteDataset, IsASourceOfBatches) {
  const TemporaryFolder folder;
  const ByteDataset data(folder.write("a.txt", std::string("\xff\x01z", 3)), 3);
  std::array<std::int32_t, 3> tokens{};
  data.tokens(7, tokens);
  EXPECT_THAT(tokens, ::testing::ElementsAre(255, 1, 'z'));
  std::array<float, 1> inputs{};
  std::array<float, 2> targets{};
  data.features(7, inputs, targets);
  EXPECT_EQ(inputs[0], 1.0F);
  EXPECT_FLOAT_EQ(targets[0], 1.0F / 127.5F - 1.0F);
}

}  // namespace
}  // namespace fsdpbench::engine
