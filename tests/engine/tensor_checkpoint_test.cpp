// Checkpoints of ranks that split layers: any mesh goes on with any, and files hold what they say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/checkpoint.h"
#include "support/changed_manifest.h"
#include "support/resumed_run.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using config::Layout;
using config::Mesh;
using config::Optimizer;
using config::RunConfig;
using config::Strategy;
using ::testing::HasSubstr;

constexpr std::int64_t kSplitBefore = 2, kSplitAll = 5, kGlobalBatch = 8;

/// Equal global batches on every mesh, and no step is warm-up.
RunConfig split_training(const Mesh& mesh, std::int64_t steps = kSplitAll) {
  RunConfig c = testing::splittable_decoder();
  c.mesh = mesh;
  c.train.warmup = 0;
  c.train.steps = steps;
  c.train.batch_per_rank = kGlobalBatch / mesh.data_ranks();
  if (mesh.replicate > 1) c.fsdp.strategy = Strategy::hybrid_shard;
  return c;
}

plan::ModelShapes shapes() { return plan::model_shapes(testing::splittable_decoder().model); }

/// Everything that is saved, whole.
std::vector<float> state_of(const std::filesystem::path& step) {
  const Checkpoint checkpoint(step, shapes(), Optimizer::adamw);
  std::vector<float> all;
  for (const State state : states_of(Optimizer::adamw)) {
    for (std::size_t i = 0; i < shapes().parameters.size(); ++i) {
      std::vector<float> values(static_cast<std::size_t>(shapes().parameters[i].numel()));
      checkpoint.read(state, static_cast<int>(i), 0, values);
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

const std::vector<Mesh> kMeshes{{1},          {2, 2},       {4, 2, 1, 2}, {2, 1, 1, 2},
                                {4, 1, 1, 4}, {8, 2, 1, 4}, {8, 2, 2, 2}, {4, 2, 1, 2, true}};

TEST(TensorCheckpoint, AnyMeshGoesOnWithAny) {
  std::vector<Measurement> whole;
  for (const Mesh& mesh : kMeshes) whole.push_back(testing::run_tiny(split_training(mesh)));
  for (std::size_t a = 0; a < kMeshes.size(); ++a) {
    const TemporaryFolder folder;
    const std::filesystem::path step = testing::checkpoint_after(kSplitBefore, split_training(kMeshes[a]), folder);
    for (std::size_t b = 0; b < kMeshes.size(); ++b) {
      SCOPED_TRACE(::testing::Message() << "mesh " << a << ", then " << b);
      const Measurement rest = testing::resumed(split_training(kMeshes[b]), step);
      EXPECT_EQ(rest.began_at, (TrainingPosition{kSplitBefore, kSplitBefore * kGlobalBatch}));
      ASSERT_EQ(rest.losses.size(), static_cast<std::size_t>(kSplitAll - kSplitBefore));
      if (a == b) {  // the same sums in the same order
        EXPECT_EQ(rest.parameters_digest, whole[a].parameters_digest);
      }
      for (std::size_t i = 0; i < rest.losses.size(); ++i) {
        const double expected = whole[a].losses[i + kSplitBefore];
        EXPECT_NEAR(rest.losses[i], expected, a == b ? 0 : 1e-5 * expected) << "step " << i;
      }
    }
  }
}

TEST(TensorCheckpoint, AnyShardingGoesOnToTheSameBits) {
  const std::vector<void (*)(RunConfig&)> shardings{
      [](RunConfig&) {},
      [](RunConfig& c) { c.fsdp.layout = Layout::flat; },
      [](RunConfig& c) { c.fsdp.strategy = Strategy::no_shard; },
      [](RunConfig& c) { c.fsdp.shard_threshold = 100; },
      [](RunConfig& c) { c.fsdp.wrap.mode = config::Wrap::Mode::model, c.fsdp.layout = Layout::flat; },
      [](RunConfig& c) { c.fsdp.cpu_offload = config::CpuOffload::all, c.checkpoint.every = 1; },
  };
  const RunConfig base = split_training({8, 0, 0, 2});
  const Measurement whole = testing::run_tiny(base);
  std::vector<float> first;
  for (const auto before : shardings) {
    const TemporaryFolder folder;
    RunConfig c = base;
    before(c);
    const std::filesystem::path step = testing::checkpoint_after(kSplitBefore, c, folder);
    if (first.empty()) first = state_of(step);
    EXPECT_EQ(state_of(step), first);
    for (const auto after : shardings) {
      c = base;
      after(c);
      c.checkpoint = {};
      EXPECT_EQ(testing::resumed(c, step).parameters_digest, whole.parameters_digest);
    }
  }
}

/// A mesh loads what was saved, to the bit: a step that changes nothing brings it home.
TEST(TensorCheckpoint, EachRankFindsItsPart) {
  for (const Mesh& from : {Mesh{2, 2}, Mesh{8, 2, 1, 4}}) {
    const TemporaryFolder folder;
    const std::filesystem::path step = testing::checkpoint_after(kSplitBefore, split_training(from), folder);
    const std::vector<float> state = state_of(step);
    for (const Mesh& mesh : kMeshes) {
      RunConfig c = split_training(mesh, kSplitBefore + 1);
      c.train.learning_rate = 1e-30;
      c.train.weight_decay = 0;
      std::vector<float> loaded;
      for (const std::vector<float>& parameter : testing::resumed(c, step).parameters) {
        loaded.insert(loaded.end(), parameter.begin(), parameter.end());
      }
      EXPECT_TRUE(std::ranges::equal(loaded, std::span(state).first(loaded.size()))) << mesh.tensor;
    }
  }
}

TEST(TensorCheckpoint, EveryElementIsWrittenOnceByWhoeverHasIt) {
  for (const Mesh& mesh : kMeshes) {
    const TemporaryFolder folder;
    const std::filesystem::path step = testing::checkpoint_after(kSplitBefore, split_training(mesh), folder);
    const Manifest manifest = read_manifest(step);
    ASSERT_EQ(std::ssize(manifest.files), mesh.ranks);
    std::int64_t all = 0;
    for (std::size_t rank = 0; rank < manifest.files.size(); ++rank) {
      const SafetensorsReader reader(step / manifest.files[rank].name, manifest.files[rank].digest);
      for (const SafeTensor& tensor : reader.tensors()) {
        all += tensor.numel();
        const bool part = tensor.name.find("-of-") != std::string::npos;
        const std::string own = "/" + std::to_string(static_cast<std::int64_t>(rank) % mesh.tensor) + "-of-";
        EXPECT_EQ(part, tensor.name.find(own) != std::string::npos) << tensor.name << " by rank " << rank;
      }
    }
    EXPECT_EQ(all, 3 * shapes().parameter_count());
  }
}

/// A rank that has columns of a matrix reads them alone: what others have may be lost.
TEST(TensorCheckpoint, OnlyWhatIsNeededIsRead) {
  const TemporaryFolder folder;
  const std::filesystem::path step = testing::checkpoint_after(kSplitBefore, split_training({2, 1, 1, 2}), folder);
  const std::filesystem::path others = step / shard_file_name(1, 2);
  const Checkpoint checkpoint(step, shapes(), Optimizer::adamw);
  std::filesystem::resize_file(others, 8);  // what of it was not read before is gone
  const auto& parameters = shapes().parameters;
  const auto wo = std::ranges::find(parameters, "blocks.0.wo", &plan::ParameterShape::name);
  ASSERT_NE(wo, parameters.end());
  const auto index = static_cast<int>(wo - parameters.begin());
  const std::int64_t columns = wo->shape[1];
  std::vector<float> half(static_cast<std::size_t>(columns / 2)), row(static_cast<std::size_t>(columns));
  for (std::int64_t r = 0; r < wo->rows(); ++r) checkpoint.read(State::parameter, index, r * columns, half);
  EXPECT_THROW(checkpoint.read(State::parameter, index, 0, row), ConfigError);
}

TEST(TensorCheckpoint, WhatIsWrongIsSaidInASentence) {
  const TemporaryFolder folder;
  const std::filesystem::path step = testing::checkpoint_after(kSplitBefore, split_training({4, 2, 1, 2}), folder),
                              path = step / "manifest.json";
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto said = [&](const std::string& from, const std::string& to) -> std::string {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    if (at == std::string::npos) return "no " + from;
    std::ofstream(path) << testing::with_its_digest(changed.replace(at, from.size(), to));
    try {
      const Checkpoint opened(step, shapes(), Optimizer::adamw);
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(said("\"parts\"", "\"parts\""), "");
  EXPECT_THAT(said("\"parts\": 2", "\"parts\": 7"), HasSubstr("no parts of embedding.weight can be read there"));
  EXPECT_THAT(said("\"parts\": 2", "\"parts\": 4"), HasSubstr("does not hold all of parameter of embedding.weight/"));
  EXPECT_THAT(said("\"split\": 0", "\"split\": 9"), HasSubstr("no parts of embedding.weight"));
  EXPECT_THAT(said("\"split\": 0", "\"skip\": 0"), HasSubstr("is damaged"));
  // Two parameters of one name: what there is belongs to one of them.
  std::string twice = text;
  std::ofstream(path) << testing::with_its_digest(twice.replace(text.find("blocks.0.norm2"), 14, "blocks.0.norm1"));
  try {
    const Checkpoint opened(step);
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("does not hold all of parameter of blocks.0.norm1"));
  }
  std::ofstream(path) << text;
  plan::ModelShapes other = shapes();
  other.parameters[0].shape[0] /= 2;
  EXPECT_THROW(Checkpoint(step, other, Optimizer::adamw), ConfigError);
}

}  // namespace
}  // namespace fsdpbench::engine
