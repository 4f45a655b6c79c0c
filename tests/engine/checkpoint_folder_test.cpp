// Whose a folder of checkpoints is, which of them is the newest, and which may go.
#include "engine/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "support/resumed_run.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"

namespace {
std::function<void(const std::filesystem::path&)> on_fsync;  // null: nobody listens
}

/// The C library's, and tells which path it is of.
extern "C" int fsync(int file) {
  if (on_fsync) on_fsync(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file)));
  return static_cast<int>(::syscall(SYS_fsync, file));
}

namespace fsdpbench::engine {
namespace {

using config::RunConfig;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Two ranks whose training is saved in `folder` after the last of these steps.
RunConfig saved_after(std::int64_t steps, const TemporaryFolder& folder) {
  RunConfig c = testing::tiny_decoder();
  c.mesh.ranks = 2;
  c.train.warmup = 0;
  c.train.steps = steps;
  c.checkpoint.folder = folder.path().string();
  return c;
}

std::filesystem::path newest_in(const TemporaryFolder& folder) { return newest_checkpoint(folder.path()).value(); }

template <class Action>
std::string refusal(const Action& action) {
  try {
    action();
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

TEST(CheckpointFolder, TheOldestGoesOnceTheNewestIsComplete) {
  const TemporaryFolder folder;
  RunConfig c = saved_after(7, folder);
  c.checkpoint.every = 2;
  c.checkpoint.keep = 2;
  std::filesystem::create_directories(step_folder(folder.path(), 1));  // what a killed run has left
  const Measurement m = testing::run_tiny(c);
  ASSERT_EQ(m.checkpoints.size(), 4U);  // after 2, 4, 6 and, the last one, 7 steps
  EXPECT_GT(m.checkpoints[0].bytes, 0);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000000006", "step-000000007"));
  EXPECT_EQ(newest_in(folder), step_folder(folder.path(), 7));
  remove_manifest(step_folder(folder.path(), 7));
  EXPECT_EQ(newest_in(folder), step_folder(folder.path(), 6));
}

TEST(CheckpointFolder, TheDiskHasTheNewStepBeforeTheOldOneGoes) {
  const TemporaryFolder folder;
  CheckpointFolder own(folder.path(), 1);
  const auto complete = [&](std::int64_t steps) {
    std::filesystem::create_directories(step_folder(folder.path(), steps));
    Manifest manifest;
    manifest.position.steps = steps;
    own.complete(std::move(manifest));
  };
  complete(1);
  std::vector<std::vector<std::string>> seen;  // steps that are there when the folder itself is synced
  on_fsync = [&](const std::filesystem::path& path) {
    if (path == std::filesystem::canonical(folder.path())) seen.push_back(names_in(folder.path()));
  };
  complete(2);
  on_fsync = nullptr;
  EXPECT_THAT(seen, ElementsAre(ElementsAre("step-000000001", "step-000000002")));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000000002"));
}

/// The step saved last is the newest, however many steps an earlier training in this folder had done.
TEST(CheckpointFolder, AnEarlierTrainingWithMoreStepsIsOlder) {
  const TemporaryFolder folder;
  RunConfig c = saved_after(6, folder);
  c.checkpoint.every = 2;
  (void)testing::run_tiny(c);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000000004", "step-000000006"));
  c.train.steps = 3;
  c.train.seed += 1;
  EXPECT_EQ(testing::run_tiny(c).checkpoints.size(), 2U);
  EXPECT_EQ(newest_in(folder), step_folder(folder.path(), 3));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000000002", "step-000000003"));
}

/// Going back to an earlier step and on from there, also over the steps that were saved before.
TEST(CheckpointFolder, WhoGoesBackKeepsWhatIsSavedFromThenOn) {
  const TemporaryFolder folder;
  RunConfig c = saved_after(8, folder);
  c.checkpoint.every = 1;
  c.checkpoint.keep = 6;
  (void)testing::run_tiny(c);  // 3 to 8
  c.checkpoint.keep = 2;
  c.train.steps = 6;
  (void)testing::resumed(c, step_folder(folder.path(), 3));
  EXPECT_EQ(newest_in(folder), step_folder(folder.path(), 6));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000000005", "step-000000006"));
  for (const std::int64_t step : {5, 6}) EXPECT_NO_THROW(Checkpoint(step_folder(folder.path(), step)).verify());
}

/// Each training has an identity that goes on with it.
/// Nobody reads them, they are as large as the state, and a copy of the folder would carry them along.
TEST(CheckpointFolder, AStepSavedAgainOnOtherRanksKeepsNoOldShards) {
  const TemporaryFolder folder;
  RunConfig c = saved_after(4, folder);
  c.checkpoint.every = 1;
  c.checkpoint.keep = 6;
  (void)testing::run_tiny(c);
  const std::filesystem::path again = step_folder(folder.path(), 4);
  for (const char* left : {".shard-00001-of-00002.safetensors.a1B2c3", "notes.txt"}) std::ofstream(again / left) << "x";
  c.mesh.ranks = 1;
  c.train.batch_per_rank *= 2;
  (void)testing::resumed(c, step_folder(folder.path(), 3));
  EXPECT_THAT(names_in(again), ElementsAre("manifest.json", "notes.txt", "shard-00000-of-00001.safetensors"));
  EXPECT_NO_THROW(Checkpoint(again).verify());
  EXPECT_THAT(names_in(step_folder(folder.path(), 3)),
              ElementsAre("manifest.json", "shard-00000-of-00002.safetensors", "shard-00001-of-00002.safetensors"));
}

TEST(CheckpointFolder, TheManifestSaysWhichTrainingItIsOf) {
  const auto training_of = [](const std::filesystem::path& checkpoint) {
    std::ifstream in(checkpoint / "manifest.json");
    return nlohmann::json::parse(in).value("training", "");
  };
  const TemporaryFolder first, second;
  (void)testing::run_tiny(saved_after(2, first));
  (void)testing::run_tiny(saved_after(2, second));
  EXPECT_EQ(training_of(newest_in(first)).size(), 32U);
  EXPECT_NE(training_of(newest_in(first)), training_of(newest_in(second)));
  (void)testing::resumed(saved_after(4, second), newest_in(first));
  EXPECT_EQ(training_of(newest_in(second)), training_of(newest_in(first)));
}

std::string read_whole(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Any value that is changed by hand, in whatever layout of the text.
TEST(CheckpointFolder, AManifestThatWasChangedIsRefused) {
  const TemporaryFolder folder;
  (void)testing::run_tiny(saved_after(3, folder));
  const std::filesystem::path path = newest_in(folder) / "manifest.json";
  const nlohmann::json before = nlohmann::json::parse(read_whole(path));
  const auto said = [&](const nlohmann::json& after, int indent = 1) -> std::string {
    std::ofstream(path) << after.dump(indent);
    return refusal([&] { (void)Checkpoint(path.parent_path()); });
  };
  EXPECT_EQ(said(before), "");
  EXPECT_EQ(said(before, -1), "") << "the same, on one line";
  for (const char* key :
       {"/samples", "/training", "/saved", "/files/0/xxh3_64_of_1_mib/0", "/parameters/0/name", "/digest"}) {
    nlohmann::json after = before;
    nlohmann::json& value = after[nlohmann::json::json_pointer(key)];
    value = value.is_number() ? nlohmann::json(value.get<std::int64_t>() + 1) : nlohmann::json("0123456789abcdef");
    EXPECT_THAT(said(after), HasSubstr("is not as it was saved")) << key;
  }
  nlohmann::json after = before;
  after.erase("digest");
  EXPECT_THAT(said(after), HasSubstr("is damaged"));
}

TEST(CheckpointFolder, TheFolderTheManifestAndTheShardsSayTheSameSteps) {
  const TemporaryFolder folder;
  (void)testing::run_tiny(saved_after(3, folder));
  const std::filesystem::path saved = newest_in(folder);
  const auto said = [](const std::filesystem::path& checkpoint) {
    return refusal([&] { (void)Checkpoint(checkpoint); });
  };
  std::filesystem::copy(saved, folder.path() / "best");
  EXPECT_EQ(said(folder.path() / "best"), "") << "a name of one's own";
  std::filesystem::copy(saved, step_folder(folder.path(), 7));
  EXPECT_THAT(said(step_folder(folder.path(), 7)), HasSubstr("is of a training after 3 steps, and its name says 7"));
  Manifest manifest = read_manifest(saved);
  manifest.position.steps = 7;
  write_manifest(step_folder(folder.path(), 7), manifest);
  EXPECT_THAT(said(step_folder(folder.path(), 7)),
              HasSubstr("shard-00000-of-00002.safetensors: was saved after 3 steps, and the manifest says 7"));
}

/// Question that `run` asks before it saves.
TEST(CheckpointFolder, IsOfOneTraining) {
  const TemporaryFolder ours, theirs;
  (void)testing::run_tiny(saved_after(2, ours));
  (void)testing::run_tiny(saved_after(2, theirs));
  const auto said = [](const TemporaryFolder& folder, const std::optional<std::filesystem::path>& resume) {
    return refusal([&] { check_one_training(folder.path(), resume); });
  };
  EXPECT_EQ(said(ours, newest_in(ours)), "");
  EXPECT_EQ(said(TemporaryFolder(), newest_in(ours)), "");
  EXPECT_EQ(said(TemporaryFolder(), std::nullopt), "");
  EXPECT_THAT(said(ours, std::nullopt), HasSubstr("step-000000002: is of another training"));
  EXPECT_THAT(said(theirs, newest_in(ours)), HasSubstr("expected --resume " + theirs.path().string()));
}

TEST(CheckpointFolder, ADamagedManifestMightBeTheNewest) {
  const TemporaryFolder folder;
  RunConfig c = saved_after(3, folder);
  c.checkpoint.every = 2;
  (void)testing::run_tiny(c);
  std::ofstream(step_folder(folder.path(), 2) / "manifest.json") << "{";
  EXPECT_THAT(refusal([&] { (void)newest_checkpoint(folder.path()); }), HasSubstr("step-000000002/manifest.json"));
}

TEST(CheckpointFolder, IsLockedWhileATrainingSavesThereAndNotLeftEmpty) {
  const TemporaryFolder parent;
  const std::filesystem::path folder = parent.path() / "a" / "saved";
  {
    const OwnCheckpoints own(folder);
    try {
      const OwnCheckpoints other(folder);
      ADD_FAILURE() << "two trainings in one folder";
    } catch (const OutputError& error) {
      EXPECT_THAT(error.what(), HasSubstr("saved is in use: another training is being saved there"));
    }
    EXPECT_TRUE(std::filesystem::exists(folder));
  }
  EXPECT_THAT(names_in(parent.path()), IsEmpty());
  {
    const OwnCheckpoints own(folder);
    std::ofstream(folder / "kept") << "something";
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "kept"));
  EXPECT_THROW(OwnCheckpoints(folder / "kept"), OutputError);
}

/// Two ranks, two samples each, in each of three microbatches.
TEST(CheckpointFolder, TheManifestCountsTheSamplesOfEveryMicrobatch) {
  const TemporaryFolder folder;
  RunConfig c = saved_after(2, folder);
  c.train.batch_per_rank = 2;
  c.train.accumulate = 3;
  (void)testing::run_tiny(c);
  EXPECT_EQ(read_manifest(newest_in(folder)).position.samples, 2 * 3 * 2 * 2);
}

TEST(CheckpointFolder, TheNewestIsTheOneThatWasSavedLast) {
  const TemporaryFolder folder;
  RunConfig c = saved_after(6, folder);
  c.checkpoint.every = 3;
  (void)testing::run_tiny(c);
  EXPECT_EQ(newest_in(folder), step_folder(folder.path(), 6));
  Manifest last = read_manifest(step_folder(folder.path(), 3));
  EXPECT_GT(last.saved, 0);
  EXPECT_GT(read_manifest(step_folder(folder.path(), 6)).saved, last.saved);
  last.saved = read_manifest(step_folder(folder.path(), 6)).saved + 1;
  write_manifest(step_folder(folder.path(), 3), last);
  EXPECT_EQ(newest_in(folder), step_folder(folder.path(), 3));
}

/// A shard whose place is taken by a folder cannot be written.
TEST(CheckpointFolder, WhatIsWrittenAnewIsNoCheckpointMeanwhile) {
  const TemporaryFolder folder;
  const RunConfig c = saved_after(2, folder);
  (void)testing::run_tiny(c);
  const std::filesystem::path again = newest_in(folder), shard = again / "shard-00000-of-00002.safetensors";
  std::filesystem::remove(shard);
  std::filesystem::create_directories(shard / "taken");
  EXPECT_ANY_THROW((void)testing::run_tiny(c));
  EXPECT_FALSE(has_manifest(again));
}

TEST(CheckpointFolder, ATrainingMayHaveBeenSavedBeforeItsFirstStep) {
  const TemporaryFolder folder;
  (void)testing::run_tiny(saved_after(2, folder));
  Manifest none = read_manifest(newest_in(folder));
  none.position = {};
  std::filesystem::create_directories(folder.path() / "begun");
  write_manifest(folder.path() / "begun", none);
  EXPECT_EQ(read_manifest(folder.path() / "begun").position.steps, 0);
}

}  // namespace
}  // namespace fsdpbench::engine
