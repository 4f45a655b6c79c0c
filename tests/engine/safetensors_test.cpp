#include "engine/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "support/temporary_folder.h"

namespace fsdpbench::engine {
namespace {

using ::testing::HasSubstr;

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), -3.5F);
  return values;
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// As the format's page describes it, byte by byte.
std::string file_of(std::string header, std::size_t data_bytes) {
  std::uint64_t length = header.size();
  std::string text(sizeof length, ' ');
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + std::string(data_bytes, '\1');
}

/// Digest as a manifest would have it.
FileDigest digest_of(std::string_view text) {
  FileDigest digest{static_cast<std::int64_t>(text.size()), {}};
  for (; !text.empty(); text.remove_prefix(std::min<std::size_t>(text.size(), FileDigest::kBlockBytes))) {
    const std::string_view block = text.substr(0, FileDigest::kBlockBytes);
    digest.blocks.push_back(XXH3_64bits(block.data(), block.size()));
  }
  return digest;
}

std::string refused(const std::filesystem::path& path, const FileDigest& digest) {
  try {
    SafetensorsReader reader(path, digest);
    reader.verify();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(path.string()));
    return error.what();
  }
  return "not refused";
}

TEST(Safetensors, AreWrittenAsOthersReadThem) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  SafetensorsWriter writer(path, {{"w", {2, 3}, 0}, {"a", {1}, 0}}, {{"key", "value"}});
  EXPECT_FALSE(std::filesystem::exists(path));  // not before it is whole
  writer.write(numbers(6));
  writer.write(std::vector{7.0F});
  writer.finish();
  const std::string text = content_of(path);
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof length);
  EXPECT_EQ(length % 8, 0U);
  const std::string header = text.substr(8, length);
  EXPECT_THAT(header, HasSubstr(R"("w":{"data_offsets":[0,24],"dtype":"F32","shape":[2,3]})"));
  EXPECT_THAT(header, HasSubstr(R"("a":{"data_offsets":[24,28],"dtype":"F32","shape":[1]})"));
  EXPECT_THAT(header, HasSubstr(R"("__metadata__":{"key":"value"})"));
  ASSERT_EQ(text.size(), 8 + length + 28);
  float last = 0;
  std::memcpy(&last, text.data() + text.size() - 4, 4);
  EXPECT_EQ(last, 7.0F);
}

TEST(Safetensors, ComeBackInAnyPieces) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const std::vector<float> values = numbers(1'000'003);  // several blocks, and a part of one
  SafetensorsWriter writer(path, {{"w", {1'000'003}, 0}}, {});
  for (std::size_t at = 0; at < values.size(); at += 70'001) {
    writer.write(std::span(values).subspan(at, std::min<std::size_t>(70'001, values.size() - at)));
  }
  const FileDigest digest = writer.finish();
  EXPECT_EQ(digest.blocks.size(), 4U);
  const SafetensorsReader reader(path, digest);
  ASSERT_EQ(reader.tensors().size(), 1U);
  for (const std::int64_t first : {0, 1, 262'120, 999'990}) {
    std::vector<float> some(13);
    reader.read(reader.tensors().front(), first, some);
    EXPECT_EQ(some.front(), values[static_cast<std::size_t>(first)]);
    EXPECT_EQ(some.back(), values[static_cast<std::size_t>(first) + 12]);
  }
  reader.verify();
}

TEST(Safetensors, AFlippedBitIsFoundWhereItIsRead) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const std::vector<float> values = numbers(700'000);
  SafetensorsWriter writer(path, {{"w", {700'000}, 0}}, {});
  writer.write(values);
  const FileDigest digest = writer.finish();
  std::string text = content_of(path);
  text[2'000'000] = static_cast<char>(text[2'000'000] ^ 4);
  std::ofstream(path, std::ios::binary) << text;
  const SafetensorsReader reader(path, digest);
  std::vector<float> some(10);
  reader.read(reader.tensors().front(), 0, some);  // another block
  EXPECT_EQ(some[9], values[9]);
  EXPECT_THROW(reader.read(reader.tensors().front(), 499'000, some), ConfigError);
  EXPECT_THAT(refused(path, digest), HasSubstr("is damaged: bytes 1048576 to 2097151 are not those that were saved"));
  std::filesystem::resize_file(path, 1000);
  EXPECT_THAT(refused(path, digest), HasSubstr("has 1000 bytes and was saved with"));
}

TEST(Safetensors, HostileFilesAreRefusedInASentence) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.safetensors";
  const auto said = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    return refused(path, digest_of(text));
  };
  const auto tensor = [&](const std::string& entry) { return said(file_of("{\"w\":" + entry + "}", 16)); };
  EXPECT_EQ(tensor(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})"), "not refused");
  EXPECT_THAT(said("abc"), HasSubstr("too short"));
  EXPECT_THAT(said(std::string(8, '\xff') + "{}"), HasSubstr("its header has 18446744073709551615 bytes"));
  EXPECT_THAT(said(file_of("[1]", 0)), HasSubstr("does not begin with {"));
  EXPECT_THAT(said(file_of("{\"w\":", 0)), HasSubstr("no JSON object"));
  EXPECT_THAT(tensor("3"), HasSubstr("otherwise than by dtype"));
  EXPECT_THAT(tensor(R"({"dtype":"F16","shape":[8],"data_offsets":[0,16]})"), HasSubstr("holds w as \"F16\""));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[5],"data_offsets":[0,20]})"), HasSubstr("does not hold all of w"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[4],"data_offsets":[-4,12]})"), HasSubstr("does not hold all of w"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})"),
              HasSubstr("impossible shape"));
  EXPECT_THAT(tensor(R"({"dtype":"F32","shape":[-1,-4],"data_offsets":[0,16]})"), HasSubstr("impossible shape"));
  EXPECT_THAT(said(file_of(R"( {"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 16)),
              HasSubstr("does not begin with {"));
  EXPECT_THAT(
      said(file_of(R"({"__metadata__":{"steps":3},"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 16)),
      HasSubstr("steps in its metadata is no text"));
  EXPECT_THAT(refused(folder.path() / "none", {}), HasSubstr("No such file"));
  EXPECT_THAT(refused(folder.path(), {}), HasSubstr("is no regular file"));
}

}  // namespace
}  // namespace fsdpbench::engine
