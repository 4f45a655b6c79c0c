// A training that goes on is the training that never stopped; whose a folder of checkpoints is, which of them is the
// newest, and which may go.
#include "engine/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/error.h"
#include "support/resumed_run.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"
#include "support/without_root.h"

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

using config::Layout;
using config::Mesh;
using config::RunConfig;
using config::Strategy;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kBefore = 3, kAll = 7;

/// Steps, none of them warm-up, so that what is left is easily said.
RunConfig training(std::int64_t steps, std::int64_t ranks = 4) {
  RunConfig c = testing::tiny_decoder();
  c.mesh.ranks = ranks;
  c.train.warmup = 0;
  c.train.steps = steps;
  return c;
}

/// Two ranks whose training is saved in `folder` after the last of these steps.
RunConfig saved_after(std::int64_t steps, const TemporaryFolder& folder) {
  RunConfig c = training(steps, 2);
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

std::string read_whole(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A training that stops after kBefore steps and goes on is the one that never stopped, to the bit.
void expect_the_same_bits(RunConfig c) {
  c.train.steps = kAll;
  const Measurement whole = testing::run_tiny(c);
  const TemporaryFolder folder;
  const Measurement rest = testing::resumed(c, testing::checkpoint_after(kBefore, c, folder));
  EXPECT_EQ(rest.parameters_digest, whole.parameters_digest);
  const std::int64_t samples = c.train.accumulate * c.train.batch_per_rank * c.mesh.data_ranks();
  EXPECT_EQ(rest.began_at, (TrainingPosition{kBefore, kBefore * samples}));
  ASSERT_EQ(rest.losses.size(), static_cast<std::size_t>(kAll - kBefore));
  for (std::size_t i = 0; i < rest.losses.size(); ++i) EXPECT_EQ(rest.losses[i], whole.losses[i + kBefore]) << i;
}

TEST(Checkpoint, EveryShardingGoesOnToTheSameBits) {
  const std::map<std::string, std::function<void(RunConfig&)>> shardings{
      {"full_shard per_param", [](RunConfig&) {}},
      {"full_shard flat", [](RunConfig& c) { c.fsdp.layout = Layout::flat; }},
      {"shard_grad_op", [](RunConfig& c) { c.fsdp.strategy = Strategy::shard_grad_op; }},
      {"no_shard", [](RunConfig& c) { c.fsdp.strategy = Strategy::no_shard; }},
      {"hybrid", [](RunConfig& c) { c.fsdp.strategy = Strategy::hybrid_shard, c.mesh.shard = 2; }},
      {"one rank", [](RunConfig& c) { c.mesh.ranks = 1; }},
      {"whole model", [](RunConfig& c) { c.fsdp.wrap.mode = config::Wrap::Mode::model; }},
      {"replicated biases and norms", [](RunConfig& c) { c.fsdp.shard_threshold = 100; }},
      {"persistent units", [](RunConfig& c) { c.fsdp.persistence_threshold = 1 << 20; }},
      {"microbatches", [](RunConfig& c) { c.train.accumulate = 3; }},
      {"sgd", [](RunConfig& c) { c.train.optimizer = config::Optimizer::sgd; }},
      {"shards in bf16", [](RunConfig& c) { c.fsdp.param_dtype = DType::bf16, c.fsdp.cast_in_optimizer = true; }},
      {"optimizer on the host",
       [](RunConfig& c) {
         c.fsdp.param_dtype = DType::bf16, c.fsdp.cpu_offload = config::CpuOffload::optimizer;
         c.fsdp.shard_threshold = 100;  // replicas stay on the device
       }},
      {"all on the host", [](RunConfig& c) { c.fsdp.cpu_offload = config::CpuOffload::all; }},
  };
  for (const auto& [name, apply] : shardings) {
    SCOPED_TRACE(name);
    RunConfig c = training(kAll);
    apply(c);
    expect_the_same_bits(c);
  }
}

TEST(Checkpoint, EveryMeshGoesOnToTheSameBits) {
  for (const Mesh& mesh : {Mesh{2, 1, 1, 2}, Mesh{8, 2, 1, 4}, Mesh{8, 2, 2, 2}, Mesh{4, 2, 1, 2, true}}) {
    SCOPED_TRACE(::testing::Message() << mesh.ranks << " ranks, " << mesh.tensor << " split a layer");
    RunConfig c = testing::splittable_decoder();
    c.mesh = mesh;
    c.train.warmup = 0;
    if (mesh.replicate > 1) c.fsdp.strategy = Strategy::hybrid_shard;
    expect_the_same_bits(c);
  }
}

/// Moments count: a training that loses them goes elsewhere. A larger piece than the host stages comes whole.
TEST(Checkpoint, ALayerOfManyPiecesComesBackWhole) {
  RunConfig c;
  c.model.kind = config::ModelKind::mlp;
  c.model.layers = 2;
  c.model.width = c.model.in_features = c.model.out_features = 1101;
  c.mesh.ranks = 1;
  c.train.warmup = 0;
  ASSERT_GT(c.model.width * c.model.width, Masters::kPieceNumel);
  expect_the_same_bits(c);
}

/// Which samples were asked for, and how often.
class SeenBatches : public testing::HashedBatches {
 public:
  using HashedBatches::HashedBatches;
  void tokens(std::int64_t sample, std::span<std::int32_t> out) const override {
    HashedBatches::tokens(sample, out);
    const std::lock_guard lock(mutex_);
    ++seen_[sample];
  }
  std::map<std::int64_t, int> seen() const { return seen_; }

 private:
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, int> seen_;
};

TEST(Checkpoint, OtherMicrobatchesGoOnWithTheNextSample) {
  const TemporaryFolder folder;
  const Checkpoint checkpoint(testing::checkpoint_after(kBefore, training(kBefore), folder));
  RunHooks hooks;
  hooks.resume = &checkpoint;
  RunConfig c = testing::settled(training(2));
  c.train.batch_per_rank = 1;
  c.train.accumulate = 2;
  checkpoint.check(c);
  const SeenBatches batches(static_cast<std::int32_t>(c.model.vocab));
  (void)run(*backend::cpu::make_cpu_backend(), set_up(c), batches, hooks);
  std::map<std::int64_t, int> expected;
  for (std::int64_t i = 0; i < 2 * 8; ++i) expected[kBefore * 8 + i] = 1;
  EXPECT_EQ(batches.seen(), expected);
}

TEST(Checkpoint, EveryFourthStepCountsFromTheTrainingsBeginning) {
  const TemporaryFolder folder;
  RunConfig c = saved_after(8, folder);
  c.checkpoint.every = 4;
  std::vector<std::int64_t> steps;
  for (const SavedCheckpoint& saved : testing::resumed(c, testing::checkpoint_after(3, c, folder)).checkpoints) {
    steps.push_back(saved.steps);
    std::int64_t bytes = 0;
    for (const char* name : {"rank-00000.bin", "rank-00001.bin"}) {
      bytes += static_cast<std::int64_t>(std::filesystem::file_size(std::filesystem::path(saved.folder) / name));
    }
    EXPECT_EQ(saved.bytes, bytes);
    EXPECT_GT(saved.ms, 0);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{4, 8}));
  EXPECT_EQ(Checkpoint(newest_in(folder)).position(), (TrainingPosition{8, 8 * 4}));
}

/// Replicas hold the same, which one of them writes.
TEST(Checkpoint, EveryShardIsWrittenOnce) {
  const auto files = [](RunConfig c) {
    const TemporaryFolder folder;
    return names_in(testing::checkpoint_after(1, c, folder));
  };
  RunConfig c = training(1);
  EXPECT_THAT(files(c),
              ElementsAre("manifest.json", "rank-00000.bin", "rank-00001.bin", "rank-00002.bin", "rank-00003.bin"));
  c.fsdp.strategy = Strategy::hybrid_shard;
  c.mesh.shard = 2;
  EXPECT_THAT(files(c), ElementsAre("manifest.json", "rank-00000.bin", "rank-00001.bin"));
  c.fsdp.strategy = Strategy::no_shard;
  c.mesh.shard = 0;
  EXPECT_THAT(files(c), ElementsAre("manifest.json", "rank-00000.bin"));
}

TEST(Checkpoint, AnotherPlanIsRefusedWithItsKey) {
  const TemporaryFolder folder;
  const RunConfig c = training(kBefore);
  const std::filesystem::path saved = testing::checkpoint_after(kBefore, c, folder);
  const auto said = [&](const std::function<void(RunConfig&)>& change) {
    RunConfig other = c;
    change(other);
    return refusal([&] { Checkpoint(saved).check(testing::settled(other)); });
  };
  EXPECT_EQ(said([](RunConfig& o) { o.train.steps = 90, o.train.accumulate = 2, o.checkpoint.every = 7; }), "");
  EXPECT_EQ(said([](RunConfig& o) { o.mesh.ranks = 8; }),
            saved.string() +
                ": was saved with mesh.ranks = 4, and this run has 8; expected the model, mesh, FSDP settings, "
                "data.path and train.optimizer that it was saved with.");
  EXPECT_THAT(said([](RunConfig& o) { o.fsdp.layout = Layout::flat; }), HasSubstr("fsdp.layout = \"per_param\""));
  EXPECT_THAT(said([](RunConfig& o) { o.fsdp.param_dtype = DType::bf16; }), HasSubstr("fsdp.param_dtype = \"fp32\""));
  EXPECT_THAT(said([](RunConfig& o) { o.model.ffn_width = 40; }),
              HasSubstr("model.ffn_width = 37, and this run has 40"));
  EXPECT_THAT(said([](RunConfig& o) { o.data.path = "text"; }),
              HasSubstr("data.path = \"\", and this run has \"text\""));
  EXPECT_THAT(said([](RunConfig& o) { o.train.optimizer = config::Optimizer::sgd; }),
              HasSubstr("train.optimizer = \"adamw\", and this run has \"sgd\""));
}

TEST(Checkpoint, ADamagedFileIsNamed) {
  const TemporaryFolder folder;
  const RunConfig c = training(kAll);
  const std::filesystem::path saved = testing::checkpoint_after(kBefore, c, folder), file = saved / "rank-00002.bin";
  const auto said = [&] { return refusal([&] { (void)testing::resumed(c, saved); }); };
  EXPECT_EQ(said(), "");
  const std::string whole = read_whole(file);
  for (const std::size_t at : {std::size_t{0}, whole.size() / 2, whole.size() - 1}) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    std::ofstream(file, std::ios::binary) << changed;
    EXPECT_THAT(said(), HasSubstr("rank-00002.bin: is damaged: its bytes are not those that were saved")) << at;
  }
  std::ofstream(file, std::ios::binary) << whole.substr(1);
  EXPECT_THAT(said(),
              HasSubstr("rank-00002.bin: has " + std::to_string(whole.size() - 1) + " bytes and was saved with"));
  std::filesystem::copy_file(saved / "rank-00001.bin", file, std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(said(), HasSubstr("rank-00002.bin: "));  // another rank's in its place
  std::filesystem::remove(file);
  EXPECT_THAT(said(), HasSubstr("rank-00002.bin: is missing"));
  std::ofstream(file, std::ios::binary) << whole;
  EXPECT_EQ(said(), "");
}

TEST(Checkpoint, AFileThatCannotBeReadOrIsNotInTheManifestIsNamed) {
  const TemporaryFolder folder;
  const RunConfig c = training(kAll, 2);
  const std::filesystem::path saved = testing::checkpoint_after(kBefore, c, folder), file = saved / "rank-00001.bin";
  const auto said = [&] { return refusal([&] { (void)testing::resumed(c, saved); }); };
  {
    const WithoutRoot permissions_count;
    std::filesystem::permissions(file, std::filesystem::perms::none);
    EXPECT_THAT(said(), HasSubstr("rank-00001.bin: cannot be read, or is too short; expected a checkpoint"));
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  nlohmann::json manifest = nlohmann::json::parse(read_whole(saved / "manifest.json"));
  manifest["files"].erase("rank-00001.bin");
  manifest["digest"] = json_digest(manifest);
  std::ofstream(saved / "manifest.json") << manifest.dump();
  EXPECT_THAT(said(), HasSubstr("rank-00001.bin: is not in the manifest"));
}

TEST(Checkpoint, RanksThatDoNotSeeOneFolderAreTold) {
  const TemporaryFolder folder;
  on_fsync = [&](const std::filesystem::path& path) {
    if (path == std::filesystem::canonical(folder.path()) / "step-000000002") {
      std::filesystem::remove(path / "rank-00001.bin");
    }
  };
  try {
    (void)testing::run_tiny(saved_after(2, folder));
    ADD_FAILURE() << "a checkpoint without the state of rank 1";
  } catch (const OutputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank-00001.bin: is not there; all ranks must see one folder."));
  }
  on_fsync = nullptr;
  EXPECT_FALSE(newest_checkpoint(folder.path()));
}

TEST(Checkpoint, ADamagedManifestIsSaidInASentence) {
  const TemporaryFolder folder;
  const std::filesystem::path saved = testing::checkpoint_after(kBefore, training(kBefore, 2), folder),
                              path = saved / "manifest.json";
  const nlohmann::json whole = nlohmann::json::parse(read_whole(path));
  const auto said = [&](const std::string& text) {
    std::ofstream(path) << text;
    return refusal([&] { (void)Checkpoint(saved); });
  };
  EXPECT_EQ(said(whole.dump()), "") << "the same, on one line";
  for (const char* key : {"/samples", "/steps", "/plan/mesh.ranks", "/files/rank-00001.bin/xxh3_128", "/digest"}) {
    nlohmann::json after = whole;
    nlohmann::json& value = after[nlohmann::json::json_pointer(key)];
    value = value.is_number() ? nlohmann::json(value.get<std::int64_t>() + 1) : nlohmann::json("0123456789abcdef");
    EXPECT_THAT(said(after.dump()), HasSubstr("is not as it was saved")) << key;
  }
  for (const char* key : {"steps", "samples", "plan", "files"}) {
    nlohmann::json after = whole;
    after.erase(key);
    after["digest"] = json_digest(after);
    EXPECT_THAT(said(after.dump()), HasSubstr("is damaged: a part is missing")) << key;
  }
  nlohmann::json other = whole;
  other["version"] = 5;
  EXPECT_THAT(said(other.dump()), HasSubstr("has version 5, and this program reads version 6"));
  other["format"] = "another";
  EXPECT_THAT(said(other.dump()), HasSubstr("is no manifest of a checkpoint"));
  EXPECT_THAT(said("[]"), HasSubstr("is no manifest of a checkpoint"));
  EXPECT_THAT(said("{"), HasSubstr("step-000000003/manifest.json: is no manifest of a checkpoint"));
  std::filesystem::remove(path);
  EXPECT_THAT(refusal([&] { (void)Checkpoint(saved); }), HasSubstr("there is no such file; expected a complete"));
  EXPECT_FALSE(newest_checkpoint(folder.path()));
  EXPECT_FALSE(newest_checkpoint(folder.path() / "nowhere"));
}

TEST(Checkpoint, TheOldestGoesOnceTheNewestIsComplete) {
  const TemporaryFolder folder;
  RunConfig c = saved_after(7, folder);
  c.checkpoint.every = 2;
  c.checkpoint.keep = 2;
  std::filesystem::create_directories(step_folder(folder.path(), 1));   // what a killed run has left
  std::filesystem::create_directories(step_folder(folder.path(), 99));  // another training's
  std::filesystem::create_directories(folder.path() / "step-12");       // not ours
  std::filesystem::create_directories(folder.path() / "s");
  ASSERT_EQ(testing::run_tiny(c).checkpoints.size(), 4U);  // after 2, 4, 6 and, the last one, 7 steps
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre("s", "step-000000006", "step-000000007", "step-000000099", "step-12"));
  EXPECT_EQ(newest_in(folder), step_folder(folder.path(), 7));
  std::filesystem::remove(step_folder(folder.path(), 7) / "manifest.json");
  EXPECT_EQ(newest_in(folder), step_folder(folder.path(), 6));
  EXPECT_EQ(newest_checkpoint(step_folder(folder.path(), 6)), step_folder(folder.path(), 6));
}

TEST(Checkpoint, TheDiskHasTheNewStepBeforeTheOldOneGoes) {
  const TemporaryFolder folder;
  RunConfig c = saved_after(2, folder);
  c.mesh.ranks = 1;
  c.checkpoint.every = c.checkpoint.keep = 1;
  std::vector<std::vector<std::string>> seen;  // steps that are there when the folder itself is synced
  on_fsync = [&](const std::filesystem::path& path) {
    if (path == std::filesystem::canonical(folder.path())) seen.push_back(names_in(folder.path()));
  };
  (void)testing::run_tiny(c);
  on_fsync = nullptr;
  EXPECT_THAT(seen, ElementsAre(ElementsAre("step-000000001"), ElementsAre("step-000000001", "step-000000002")));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("step-000000002"));
}

/// A file whose place is taken by a folder of another user's cannot be written; what was there before is none.
TEST(Checkpoint, WhatIsWrittenAnewIsNoCheckpointMeanwhile) {
  const TemporaryFolder folder;
  const RunConfig c = saved_after(2, folder);
  (void)testing::run_tiny(c);
  const std::filesystem::path again = newest_in(folder);
  std::ofstream(again / ".rank-00001.bin.a1B2c3") << "what a killed run has left";
  bool complete = true;
  on_fsync = [&](const std::filesystem::path& path) {
    if (path.string().ends_with("manifest.json")) return;
    complete = complete && std::filesystem::exists(again / "manifest.json");
  };
  RunConfig one = c;
  one.mesh.ranks = 1;
  (void)testing::run_tiny(one);
  on_fsync = nullptr;
  EXPECT_FALSE(complete);
  EXPECT_THAT(names_in(again), ElementsAre("manifest.json", "rank-00000.bin"));
}

/// Question that `run` asks before it saves.
TEST(Checkpoint, AFolderIsOfOneTraining) {
  const TemporaryFolder ours, theirs;
  RunConfig c = saved_after(2, ours);
  c.checkpoint.every = 1;
  (void)testing::run_tiny(c);
  (void)testing::run_tiny(saved_after(2, theirs));
  const auto said = [](const TemporaryFolder& folder, const std::optional<std::filesystem::path>& resume) {
    return refusal([&] { check_one_training(folder.path(), resume); });
  };
  EXPECT_EQ(said(ours, newest_in(ours)), "");
  EXPECT_EQ(said(TemporaryFolder(), newest_in(ours)), "");
  EXPECT_EQ(said(TemporaryFolder(), std::nullopt), "");
  EXPECT_THAT(said(ours, std::nullopt), HasSubstr("step-000000002: a training has been saved there"));
  EXPECT_THAT(said(ours, step_folder(ours.path(), 1)), HasSubstr("expected --resume " + ours.path().string()));
  EXPECT_THAT(said(theirs, newest_in(ours)), HasSubstr("expected --resume " + theirs.path().string()));
}

TEST(Checkpoint, AFolderIsLockedWhileATrainingSavesThere) {
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
  }
  EXPECT_NO_THROW(OwnCheckpoints{folder});
  EXPECT_THAT(names_in(folder), IsEmpty());
  std::ofstream(folder / "taken") << "something";
  const auto output_error = [](const std::filesystem::path& at) {
    try {
      const OwnCheckpoints own(at);
      return std::string();
    } catch (const OutputError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(output_error(folder / "taken"), (folder / "taken").string() + ": cannot make the folder: Not a directory.");
  const WithoutRoot permissions_count;
  std::filesystem::permissions(folder, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  EXPECT_EQ(output_error(folder),
            folder.string() + ": this user may not write there; choose another checkpoint.folder.");
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
}

}  // namespace
}  // namespace fsdpbench::engine
