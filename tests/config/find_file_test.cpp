#include "config/find_file.h"

#include "config/load.h"
#include "config/support.h"
#include "config/sweep_file.h"

namespace fsdpbench::config {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::EndsWith;
using ::testing::HasSubstr;

/// In a folder of its own, where nothing is.
class FindFile : public testing::Test {
 protected:
  FindFile() { fs::current_path(folder_.path()); }
  ~FindFile() override { fs::current_path(before_); }

  static std::string profile_error(const std::string& given) {
    return config_error([&] { find_profile(given); });
  }
  static std::string sweep_error(const std::string& given) {
    return config_error([&] { find_sweep(given); });
  }

  fs::path before_ = fs::current_path();
  TemporaryFolder folder_;
  const fs::path quickstart_ = fs::path(FSDPBENCH_SOURCE_DIR) / "profiles/runs/quickstart.toml";
};

TEST_F(FindFile, NamesAreFoundFromAnyFolder) {
  for (const char* given :
       {"quickstart", "quickstart.toml", "profiles/runs/quickstart", "profiles/runs/quickstart.toml"})
    EXPECT_TRUE(fs::equivalent(find_profile(given), quickstart_)) << given;
  EXPECT_THAT(find_sweep("strategy-ranks"), EndsWith("profiles/sweeps/strategy-ranks.toml"));
}

TEST_F(FindFile, AFileComesBeforeAName) {
  folder_.write("quickstart.toml", "");
  EXPECT_EQ(find_profile("quickstart"), "quickstart.toml");
  folder_.write("profiles/runs/mine.toml", "");
  EXPECT_EQ(find_profile("mine"), "profiles/runs/mine.toml");
}

TEST_F(FindFile, AResultFolderIsItsConfiguration) {
  folder_.write("runs/first/config.toml", "");
  EXPECT_EQ(find_profile("runs/first"), "runs/first/config.toml");
  EXPECT_EQ(profile_name("runs/first/config.toml"), "first");
  EXPECT_EQ(profile_name("runs/first.toml"), "first");
  folder_.write("quickstart/notes.txt", "");
  EXPECT_TRUE(fs::equivalent(find_profile("quickstart"), quickstart_)) << "a folder that is no result";
}

TEST_F(FindFile, WhatIsNotThereSaysWhatWasTriedAndWhatIsNear) {
  EXPECT_THAT(profile_error("quikstart"),
              AllOf(HasSubstr("quikstart: there is no such file, and no run profile of that name in profiles/runs, "),
                    HasSubstr(quickstart_.parent_path().string()), HasSubstr("; the nearest is 'quickstart' of ")));
  EXPECT_THAT(profile_error("somewhere/fsdp2.toml"), HasSubstr("the nearest is 'fsdp1' of "));
  EXPECT_THAT(sweep_error("open-limits"), HasSubstr("the nearest is 'open-limit' of "));
  EXPECT_THAT(profile_error(""), HasSubstr("there is no such file"));
}

TEST_F(FindFile, NamesOfAnotherKindAreSaidToBe) {
  EXPECT_THAT(profile_error("strategy-ranks"),
              HasSubstr("is a sweep, and a run profile is expected; `fsdpbench sweep strategy-ranks` runs it."));
  EXPECT_THAT(sweep_error("quickstart"),
              HasSubstr("is a run profile, and a sweep is expected; `fsdpbench run quickstart` runs it."));
  EXPECT_THAT(sweep_error("llama3-8b"), HasSubstr("is a model, and a sweep is expected"));
}

TEST_F(FindFile, FoldersThatAreNoResultSaySo) {
  fs::create_directory("empty");
  EXPECT_THAT(profile_error("empty"), HasSubstr("empty: is a folder without config.toml; expected a run profile"));
  folder_.write("swept/sweep.json", "{}");
  EXPECT_THAT(profile_error("swept"), HasSubstr("is the folder of a sweep"));
  EXPECT_THAT(sweep_error("swept"), HasSubstr("--out swept continues"));
}

TEST_F(FindFile, FilesOfAnotherKindAreSaidToBe) {
  const std::string sweep = folder_.write("s.toml", "base = 'b.toml'\n[axes]\n'mesh.ranks' = [1, 2]\n");
  EXPECT_THAT(config_error([&] { load_profile(sweep); }), HasSubstr("is a sweep file, and a run profile is expected"));
  const std::string run = folder_.write("r.toml", "[mesh]\nranks = 2\n");
  EXPECT_THAT(config_error([&] { load_sweep(run); }), HasSubstr("is a run profile, and a sweep file is expected"));
  const std::string result = folder_.write("out/result.json", "{\"schema_version\": 1}");
  EXPECT_THAT(config_error([&] { load_profile(result); }),
              AllOf(HasSubstr("is JSON"), HasSubstr("name its folder, " + fs::path(result).parent_path().string())));
  const std::string trace = folder_.write("trace.json.gz", "\x1F\x8B\x08");
  EXPECT_THAT(config_error([&] { load_profile(trace); }), HasSubstr("is compressed data"));
}

TEST_F(FindFile, TheBaseOfASweepMayBeAName) {
  const std::string axes = "\n[axes]\n'mesh.ranks' = [1, 2]\n";
  EXPECT_TRUE(fs::equivalent(load_sweep(folder_.write("s.toml", "base = 'quickstart'" + axes)).base, quickstart_));
  EXPECT_THAT(config_error([&] { load_sweep(folder_.write("s.toml", "base = 'quikstart'" + axes)); }),
              AllOf(HasSubstr("s.toml:1: base = \"quikstart\""), HasSubstr("the nearest is 'quickstart'")));
}

}  // namespace
}  // namespace fsdpbench::config
