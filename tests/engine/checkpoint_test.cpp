// A training that goes on is the training that never stopped.
#include "engine/checkpoint.h"
#include "engine/checkpoint_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/spelling.h"
#include "config/validate.h"
#include "support/changed_manifest.h"
#include "support/resumed_run.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using config::Layout;
using config::Optimizer;
using config::RunConfig;
using config::Strategy;
using ::testing::HasSubstr;

constexpr std::int64_t kBefore = 3, kAll = 7;

/// Steps, none of them warm-up, so that what is left is easily said.
RunConfig training(std::int64_t steps, std::int64_t ranks = 4) {
  RunConfig c = testing::tiny_decoder();
  c.mesh.ranks = ranks;
  c.train.warmup = 0;
  c.train.steps = steps;
  return c;
}

RunConfig saving(RunConfig c, const TemporaryFolder& folder) {
  c.checkpoint.folder = folder.path().string();
  return c;
}

std::filesystem::path newest(const TemporaryFolder& folder) { return newest_checkpoint(folder.path()).value(); }

plan::ModelShapes shapes_of(const RunConfig& c) { return plan::model_shapes(c.model); }

/// The steps after the newest checkpoint in `folder`.
Measurement gone_on(RunConfig c, const TemporaryFolder& folder) {
  return testing::resumed(std::move(c), newest(folder));
}

struct Sharding {
  const char* name;
  void (*apply)(RunConfig&);
};
const std::vector<Sharding> kShardings{
    {"full_shard per_param", [](RunConfig&) {}},
    {"full_shard flat", [](RunConfig& c) { c.fsdp.layout = Layout::flat; }},
    {"shard_grad_op", [](RunConfig& c) { c.fsdp.strategy = Strategy::shard_grad_op; }},
    {"no_shard", [](RunConfig& c) { c.fsdp.strategy = Strategy::no_shard; }},
    {"whole model", [](RunConfig& c) { c.fsdp.wrap.mode = config::Wrap::Mode::model; }},
    {"replicated biases and norms", [](RunConfig& c) { c.fsdp.shard_threshold = 100; }},
    {"persistent units", [](RunConfig& c) { c.fsdp.persistence_threshold = 1 << 20; }},
};

TEST(Checkpoint, AnyShardingGoesOnToTheSameBits) {
  const Measurement whole = testing::run_tiny(training(kAll));
  for (const Sharding& saved : kShardings) {
    const TemporaryFolder folder;
    RunConfig before = saving(training(kBefore), folder);
    saved.apply(before);
    EXPECT_EQ(testing::run_tiny(before).checkpoints.size(), 1U);
    for (const Sharding& resumed : kShardings) {
      RunConfig after = training(kAll);
      resumed.apply(after);
      const Measurement rest = gone_on(after, folder);
      EXPECT_EQ(rest.parameters_digest, whole.parameters_digest) << saved.name << ", then " << resumed.name;
      EXPECT_EQ(rest.began_at, (TrainingPosition{kBefore, kBefore * 4 * 2}));
      ASSERT_EQ(rest.losses.size(), static_cast<std::size_t>(kAll - kBefore));
      for (std::size_t i = 0; i < rest.losses.size(); ++i) {
        EXPECT_EQ(rest.losses[i], whole.losses[i + kBefore])
            << saved.name << ", then " << resumed.name << ", step " << i;
      }
    }
  }
}

/// On other ranks with the same global batch only the order of sums differs.
TEST(Checkpoint, OtherRanksGoOnWithinRounding) {
  const TemporaryFolder folder;
  (void)testing::run_tiny(saving(training(kBefore), folder));
  const Measurement whole = testing::run_tiny(training(kAll));
  for (const std::int64_t ranks : {1, 2, 8}) {
    RunConfig after = training(kAll, ranks);
    after.train.batch_per_rank = 8 / ranks;
    const Measurement rest = gone_on(after, folder);
    EXPECT_EQ(rest.began_at.samples, kBefore * 8);
    for (std::size_t i = 0; i < rest.losses.size(); ++i) {
      EXPECT_NEAR(rest.losses[i], whole.losses[i + kBefore], 1e-5 * whole.losses[i + kBefore]) << ranks << " ranks";
    }
  }
  // As a run on these ranks that never stopped, if its own checkpoint is taken: bit by bit.
  for (const std::int64_t ranks : {1, 3, 8}) {
    const TemporaryFolder own;
    (void)testing::run_tiny(saving(training(kBefore, ranks), own));
    EXPECT_EQ(gone_on(training(kAll, ranks), own).parameters_digest,
              testing::run_tiny(training(kAll, ranks)).parameters_digest)
        << ranks;
  }
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

/// train.batch_global: fewer ranks take larger batches, and each step the samples that it would have had.
TEST(Checkpoint, OtherRanksKeepTheGlobalBatch) {
  const auto with_global_batch = [](std::int64_t ranks, std::int64_t accumulate = 1) {
    RunConfig c = training(kBefore + 2, ranks);
    c.model.vocab = 256;  // what validate() asks for
    c.train.batch_global = 8;
    c.train.accumulate = accumulate;
    config::validate(c);
    return c;
  };
  const TemporaryFolder folder;
  RunConfig before = saving(with_global_batch(4), folder);
  before.train.steps = kBefore;
  (void)testing::run_tiny(before);
  const Measurement whole = testing::run_tiny(with_global_batch(4));
  const Checkpoint checkpoint(newest(folder), shapes_of(before), before.train.optimizer);
  RunHooks hooks;
  hooks.resume = &checkpoint;
  for (const RunConfig& after :
       {with_global_batch(1), with_global_batch(2), with_global_batch(2, 2), with_global_batch(8)}) {
    for (std::int64_t steps = 1; steps <= 2; ++steps) {
      RunConfig c = after;
      c.train.steps = steps;
      const SeenBatches batches(static_cast<std::int32_t>(c.model.vocab));
      const Measurement rest = run(*backend::cpu::make_cpu_backend(), set_up(c), batches, hooks);
      std::map<std::int64_t, int> expected;
      for (std::int64_t i = 0; i < steps * 8; ++i) expected[kBefore * 8 + i] = 1;
      EXPECT_EQ(batches.seen(), expected) << c.mesh.ranks << " ranks, " << steps << " steps";
      const double loss = whole.losses[static_cast<std::size_t>(kBefore + steps - 1)];
      EXPECT_NEAR(rest.losses.back(), loss, 1e-5 * loss) << c.mesh.ranks << " ranks";
    }
  }
}

/// Every rank writes as much as the others, and every element is written once.
TEST(Checkpoint, ReplicasShareTheWriting) {
  const auto check = [](RunConfig c, std::int64_t slack) {
    const TemporaryFolder folder;
    c = saving(c, folder);
    (void)testing::run_tiny(c);
    const Manifest manifest = read_manifest(newest(folder));
    ASSERT_EQ(manifest.files.size(), 4U);
    std::int64_t all = 0, least = std::numeric_limits<std::int64_t>::max(), most = 0;
    for (const ShardFile& file : manifest.files) {
      std::int64_t numel = 0;
      const SafetensorsReader reader(newest(folder) / file.name, file.digest);
      for (const SafeTensor& tensor : reader.tensors()) numel += tensor.numel();
      all += numel;
      least = std::min(least, numel);
      most = std::max(most, numel);
    }
    EXPECT_EQ(all, 3 * shapes_of(c).parameter_count());
    EXPECT_LE(most - least, slack);
    c.checkpoint = {};
    c.train.steps = kAll;
    EXPECT_EQ(gone_on(c, folder).parameters_digest, testing::run_tiny(c).parameters_digest);
  };
  RunConfig c = training(kBefore);
  c.fsdp.strategy = Strategy::no_shard;
  check(c, 1);
  c.fsdp.strategy = Strategy::hybrid_shard;
  c.mesh.shard = 2;
  c.fsdp.layout = Layout::flat;
  c.fsdp.wrap.mode = config::Wrap::Mode::model;
  check(c, 4);  // and what one unit is padded with, in each of three states
  c.fsdp.layout = Layout::per_param;
  c.fsdp.shard_threshold = 100;
  check(c, shapes_of(c).parameter_count());  // whole rows: shards differ, their halves do not
}

TEST(Checkpoint, WhereTheStateLiesIsNoneOfItsBusiness) {
  using enum config::CpuOffload;
  RunConfig c = training(kAll);
  c.fsdp.param_dtype = DType::bf16;
  c.fsdp.shard_threshold = 100;  // replicas stay on the device
  const auto expected = testing::run_tiny(c).parameters_digest;
  for (const auto& [before, after] : {std::pair(none, all), {all, optimizer}, {optimizer, none}}) {
    const TemporaryFolder folder;
    RunConfig first = c;
    first.train.steps = kBefore;
    first.fsdp.cpu_offload = before;
    (void)testing::run_tiny(saving(first, folder));
    RunConfig second = c;
    second.fsdp.cpu_offload = after;
    EXPECT_EQ(gone_on(second, folder).parameters_digest, expected)
        << config::to_string(before) << ' ' << config::to_string(after);
  }
}

TEST(Checkpoint, EverySecondStepCountsFromTheTrainingsBeginning) {
  const TemporaryFolder folder;
  (void)testing::run_tiny(saving(training(3), folder));
  RunConfig c = saving(training(8), folder);
  c.checkpoint.every = 4;
  std::vector<std::int64_t> steps;
  for (const SavedCheckpoint& saved : gone_on(c, folder).checkpoints) steps.push_back(saved.steps);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{4, 8}));
}

TEST(Checkpoint, WhatIsWrongIsSaidInASentence) {
  const TemporaryFolder folder;
  RunConfig c = saving(training(kBefore), folder);
  (void)testing::run_tiny(c);
  const std::filesystem::path saved = newest(folder);
  const auto said = [&](const plan::ModelShapes& shapes, Optimizer optimizer = Optimizer::adamw) -> std::string {
    try {
      Checkpoint(saved, shapes, optimizer).verify();
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  const plan::ModelShapes shapes = shapes_of(c);
  EXPECT_EQ(said(shapes), "");
  EXPECT_EQ(said(shapes, Optimizer::sgd), "");  // moments that are not needed do no harm

  RunConfig other = c;
  other.model.ffn_width = 40;
  EXPECT_THAT(said(shapes_of(other)), HasSubstr("is of another model: its parameter"));
  other = c;
  other.model.layers = 2;
  EXPECT_THAT(said(shapes_of(other)), HasSubstr("is of another model"));

  const std::filesystem::path shard = saved / shard_file_name(2, 4);
  std::filesystem::rename(shard, saved / "aside");
  EXPECT_THAT(said(shapes), HasSubstr("shard-00002-of-00004.safetensors: is missing"));
  std::filesystem::copy_file(saved / shard_file_name(1, 4), shard);
  EXPECT_THAT(said(shapes), HasSubstr("shard-00002-of-00004.safetensors: "));  // another shard in its place
  std::filesystem::remove(shard);
  std::filesystem::rename(saved / "aside", shard);
  EXPECT_EQ(said(shapes), "");

  std::fstream file(shard, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-1, std::ios::end);
  const int last = file.peek();
  file.seekp(-1, std::ios::end);
  file.put(static_cast<char>(last ^ 1));
  file.close();
  EXPECT_THAT(said(shapes), HasSubstr("is damaged: bytes 0 to "));
}

TEST(Checkpoint, TheManifestKnowsTheDataWhereTheyAreKnown) {
  const TemporaryFolder folder;
  const RunConfig c = saving(training(1, 2), folder);
  (void)testing::run_tiny(c);
  Manifest manifest = read_manifest(newest(folder));
  EXPECT_FALSE(manifest.data) << "made up";
  manifest.data = {123, 0xFEDCBA9876543210U};
  write_manifest(newest(folder), manifest);
  EXPECT_EQ(read_manifest(newest(folder)).data, manifest.data);
}

TEST(Checkpoint, ADamagedManifestIsSaidInASentence) {
  const TemporaryFolder folder;
  RunConfig c = saving(training(1, 2), folder);
  (void)testing::run_tiny(c);
  const std::filesystem::path saved = newest(folder), path = saved / "manifest.json";
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto said = [&](const std::string& from, const std::string& to) -> std::string {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    std::ofstream(path) << testing::with_its_digest(changed);
    try {
      Checkpoint(saved, shapes_of(c), c.train.optimizer).verify();
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(said("\"version\"", "\"version\""), "");
  EXPECT_THAT(said("fsdpbench checkpoint", "another"), HasSubstr("is no manifest of a checkpoint"));
  EXPECT_THAT(said("\"version\": 5", "\"version\": 9"), HasSubstr("has version 9, and this program reads version 5"));
  EXPECT_THAT(said("\"samples\"", "\"simples\""), HasSubstr("is damaged"));
  EXPECT_THAT(said("\"steps\": 1", "\"steps\": -1"), HasSubstr("is damaged"));
  EXPECT_THAT(said("\"adamw\"", "\"adam\""), HasSubstr("is damaged"));
  EXPECT_THAT(said("shard-00001", "../shard-1"), HasSubstr("another folder"));
  EXPECT_THAT(said("\"bytes\": ", "\"bytes\": 1"), HasSubstr("was saved with"));
  EXPECT_THAT(said("{", "["), HasSubstr("is no manifest"));
  nlohmann::json emptied = nlohmann::json::parse(text);
  emptied["parameters"] = nlohmann::json::array();
  std::ofstream(path) << testing::with_its_digest(emptied.dump());
  EXPECT_THROW(Checkpoint{saved}, ConfigError);
  std::filesystem::remove(path);
  EXPECT_THROW(read_manifest(saved), ConfigError);
  EXPECT_FALSE(newest_checkpoint(folder.path()));
  EXPECT_FALSE(newest_checkpoint(folder.path() / "nowhere"));
}

TEST(Checkpoint, MomentsThatWereNotSavedAreMissed) {
  const TemporaryFolder folder;
  RunConfig c = saving(training(kBefore), folder);
  c.train.optimizer = Optimizer::sgd;
  (void)testing::run_tiny(c);
  EXPECT_THROW(Checkpoint(newest(folder), shapes_of(c), Optimizer::adamw), ConfigError);
  c.train.steps = kAll;
  c.checkpoint = {};
  EXPECT_EQ(gone_on(c, folder).parameters_digest, testing::run_tiny(c).parameters_digest);
}

}  // namespace
}  // namespace fsdpbench::engine
