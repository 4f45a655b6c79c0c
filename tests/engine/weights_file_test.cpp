// A model in one file, as others read and write it, and back.
#include "engine/weights_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/error.h"
#include "engine/checkpoint_folder.h"
#include "model/initialize.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using config::Optimizer;
using config::RunConfig;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kWeightsBefore = 2, kWeightsAll = 4;

RunConfig trained_for(std::int64_t steps) {
  RunConfig c = testing::tiny_decoder();
  c.mesh.ranks = 2;
  c.train.warmup = 0;
  c.train.steps = steps;
  return c;
}

class WeightsFileTest : public ::testing::Test {
 protected:
  plan::ModelShapes shapes() const { return plan::model_shapes(config_.model); }
  /// A checkpoint after kWeightsBefore steps.
  std::filesystem::path saved() {
    RunConfig c = config_;
    c.train.steps = kWeightsBefore;
    c.checkpoint.folder = (folder_.path() / "saved").string();
    testing::run_tiny(c);
    return newest_checkpoint(c.checkpoint.folder).value();
  }
  Measurement gone_on(const std::filesystem::path& step) const {
    const Checkpoint checkpoint(step, shapes(), config_.train.optimizer);
    RunConfig c = config_;
    c.train.steps -= checkpoint.position().steps;
    RunHooks hooks;
    hooks.resume = &checkpoint;
    return testing::run_tiny(c, hooks);
  }
  std::string why_not(const std::filesystem::path& file) const {
    try {
      import_weights(file, shapes(), config_.train.optimizer, folder_.path() / "refused");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
  /// A file of `tensors`, all elements `value`.
  std::filesystem::path file_of(const std::vector<SafeTensor>& tensors, float value = 0.5F) {
    const std::filesystem::path path = folder_.path() / "made.safetensors";
    SafetensorsWriter writer(path, tensors, {});
    for (const SafeTensor& tensor : tensors) {
      writer.write(std::vector<float>(static_cast<std::size_t>(tensor.numel()), value));
    }
    writer.finish();
    return path;
  }
  std::vector<SafeTensor> all_tensors() const {
    std::vector<SafeTensor> tensors;
    for (const plan::ParameterShape& p : shapes().parameters) tensors.push_back({p.name, p.shape, 0});
    return tensors;
  }

  TemporaryFolder folder_;
  RunConfig config_ = trained_for(kWeightsAll);
};

TEST_F(WeightsFileTest, WithMomentsATrainingGoesOnToTheSameBitsUnderEitherNames) {
  const Measurement whole = testing::run_tiny(config_);
  const std::filesystem::path step = saved();
  for (const ParameterNames names : {ParameterNames::own, ParameterNames::hugging_face}) {
    const std::string name = names == ParameterNames::own ? "own" : "hugging_face";
    const std::filesystem::path file = folder_.path() / (name + ".safetensors"), target = folder_.path() / name;
    const WeightsFile written = export_weights(step, file, {.names = names, .moments = true});
    EXPECT_EQ(written.tensors, 3 * static_cast<std::int64_t>(shapes().parameters.size()));
    const WeightsFile read = import_weights(file, shapes(), Optimizer::adamw, target);
    EXPECT_TRUE(read.moments);
    EXPECT_EQ(read.position, written.position);
    EXPECT_EQ(read.position.steps, kWeightsBefore);
    EXPECT_EQ(gone_on(newest_checkpoint(target).value()).parameters_digest, whole.parameters_digest) << name;
  }
}

TEST_F(WeightsFileTest, WithoutMomentsTheTrainingBeginsWithTheseParameters) {
  const std::filesystem::path step = saved(), file = folder_.path() / "weights.safetensors";
  export_weights(step, file, {.names = ParameterNames::hugging_face});
  const WeightsFile read = import_weights(file, shapes(), Optimizer::adamw, folder_.path() / "begun");
  EXPECT_FALSE(read.moments);
  EXPECT_EQ(read.position, TrainingPosition{});
  const Checkpoint before(step, shapes(), Optimizer::adamw);
  const Checkpoint after(step_folder(folder_.path() / "begun", 0), shapes(), Optimizer::adamw);
  for (std::size_t i = 0; i < shapes().parameters.size(); ++i) {
    const auto numel = static_cast<std::size_t>(shapes().parameters[i].numel());
    std::vector<float> was(numel), is(numel), moment(numel, 1);
    before.read(State::parameter, static_cast<int>(i), 0, was);
    after.read(State::parameter, static_cast<int>(i), 0, is);
    after.read(State::second_moment, static_cast<int>(i), 0, moment);
    EXPECT_EQ(is, was);
    EXPECT_EQ(moment, std::vector<float>(numel));
  }
}

TEST_F(WeightsFileTest, AdaptersBeginBesideTheWeightsOfAWholeModel) {
  const std::filesystem::path step = saved(), file = folder_.path() / "weights.safetensors";
  export_weights(step, file, {.names = ParameterNames::hugging_face, .moments = true});
  const std::size_t whole = shapes().parameters.size();
  config_.model.lora_rank = 2;
  const plan::ModelShapes adapted = shapes();
  const WeightsFile read = import_weights(file, adapted, Optimizer::adamw, folder_.path() / "begun", 3);
  EXPECT_FALSE(read.moments) << "those of a training of other parameters";
  EXPECT_EQ(read.position, TrainingPosition{});
  EXPECT_EQ(read.adapters, std::ssize(adapted.parameters) - static_cast<std::int64_t>(whole));
  EXPECT_GT(read.adapters, 0);
  const std::filesystem::path begun = step_folder(folder_.path() / "begun", 0);
  const Checkpoint before(step), after(begun, adapted, Optimizer::adamw);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < adapted.parameters.size(); ++i) {
    const plan::ParameterShape& shape = adapted.parameters[i];
    std::vector<float> is(static_cast<std::size_t>(shape.numel())), expected(is.size());
    after.read(State::parameter, static_cast<int>(i), 0, is);
    if (shape.adapter) {
      model::initialize_parameter(shape, 3, 0, shape.numel(), expected.data());
    } else {
      before.read(State::parameter, static_cast<int>(kept++), 0, expected);
    }
    EXPECT_EQ(is, expected) << shape.name;
  }
  EXPECT_EQ(kept, whole);

  // What is trained from there has moments of the adapters alone, and goes on from a file as from the checkpoint.
  RunConfig c = config_;
  c.train.steps = kWeightsBefore;
  c.checkpoint.folder = (folder_.path() / "adapted").string();
  const Checkpoint from(begun, adapted, Optimizer::adamw);
  RunHooks hooks;
  hooks.resume = &from;
  testing::run_tiny(c, hooks);
  const std::filesystem::path trained = newest_checkpoint(c.checkpoint.folder).value();
  const WeightsFile written = export_weights(trained, folder_.path() / "all.safetensors", {.moments = true});
  EXPECT_EQ(written.tensors, std::ssize(adapted.parameters) + 2 * read.adapters);
  EXPECT_TRUE(
      import_weights(folder_.path() / "all.safetensors", adapted, Optimizer::adamw, folder_.path() / "again").moments);
  EXPECT_EQ(gone_on(newest_checkpoint(folder_.path() / "again").value()).parameters_digest,
            gone_on(trained).parameters_digest);
}

TEST_F(WeightsFileTest, IsWhatTransformersReads) {
  const std::filesystem::path file = folder_.path() / "weights.safetensors";
  export_weights(saved(), file, {.names = ParameterNames::hugging_face});
  const SafetensorsReader reader(file);
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  const auto shape_of = [&](const std::string& name) {
    const auto tensor = std::ranges::find(reader.tensors(), name, &SafeTensor::name);
    return tensor == reader.tensors().end() ? std::vector<std::int64_t>() : tensor->shape;
  };
  const config::Model& m = config_.model;
  EXPECT_THAT(shape_of("model.embed_tokens.weight"), ElementsAre(m.vocab, m.width));
  EXPECT_THAT(shape_of("model.layers.0.self_attn.k_proj.weight"), ElementsAre(m.kv_heads * m.head_size(), m.width));
  EXPECT_THAT(shape_of("model.layers.1.mlp.down_proj.weight"), ElementsAre(m.width, m.ffn_width));
  EXPECT_THAT(shape_of("model.norm.weight"), ElementsAre(m.width));
}

TEST_F(WeightsFileTest, InBf16ItIsTheNearestAndComesBackAsThat) {
  const std::filesystem::path step = saved(), file = folder_.path() / "weights.safetensors";
  const WeightsFile whole = export_weights(step, folder_.path() / "whole.safetensors", {});
  const WeightsFile half = export_weights(step, file, {.dtype = DType::bf16});
  EXPECT_EQ(whole.tensors, half.tensors);
  EXPECT_NEAR(static_cast<double>(whole.bytes - half.bytes), 2.0 * static_cast<double>(shapes().parameter_count()), 64);
  import_weights(file, shapes(), Optimizer::adamw, folder_.path() / "begun");
  const Checkpoint before(step), after(step_folder(folder_.path() / "begun", 0));
  for (std::size_t i = 0; i < shapes().parameters.size(); ++i) {
    const auto numel = static_cast<std::size_t>(shapes().parameters[i].numel());
    std::vector<float> was(numel), is(numel);
    before.read(State::parameter, static_cast<int>(i), 0, was);
    after.read(State::parameter, static_cast<int>(i), 0, is);
    for (float& value : was) value = bf16_to_float(float_to_bf16(value));
    EXPECT_EQ(is, was) << shapes().parameters[i].name;
  }
}

TEST_F(WeightsFileTest, ASetOfFilesIsOneModel) {
  const Measurement whole = testing::run_tiny(config_);
  const std::filesystem::path step = saved(), set = folder_.path() / "set";
  constexpr std::int64_t kMost = 8000;
  export_weights(step, set, {.names = ParameterNames::hugging_face, .moments = true, .most_bytes = kMost});
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(set)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  ASSERT_GT(files.size(), 3U);
  for (const std::filesystem::path& file : files) {
    const SafetensorsReader reader(file);
    std::int64_t bytes = 0;
    for (const SafeTensor& tensor : reader.tensors()) bytes += tensor.bytes();
    EXPECT_TRUE(bytes <= kMost || reader.tensors().size() == 1) << file;
  }
  // The folder, and the index by its name.
  int number = 0;
  for (const std::filesystem::path& given : {set, set / "model.safetensors.index.json"}) {
    const std::filesystem::path target = folder_.path() / std::to_string(number++);
    EXPECT_TRUE(import_weights(given, shapes(), Optimizer::adamw, target).moments);
    EXPECT_EQ(gone_on(newest_checkpoint(target).value()).parameters_digest, whole.parameters_digest);
  }
  // A part under another's name, and one that is missing.
  std::filesystem::rename(files[0], folder_.path() / "aside");
  EXPECT_THAT(why_not(set), HasSubstr("which is missing"));
  std::filesystem::copy_file(files[1], files[0]);
  EXPECT_THAT(why_not(set), HasSubstr("which is in two files of the set"));
  // A tensor in two files, and two files that are named for each other's tensors.
  std::filesystem::rename(folder_.path() / "aside", files[0]);
  std::filesystem::copy_file(files[1], set / "again.safetensors");
  const auto index_with = [&](const std::function<void(nlohmann::json&)>& change) {
    const std::filesystem::path path = set / "model.safetensors.index.json";
    std::ifstream in(path);
    const nlohmann::json before = nlohmann::json::parse(in);
    nlohmann::json index = before;
    change(index["weight_map"]);
    std::ofstream(path) << index;
    std::string said = why_not(set);
    std::ofstream(path) << before;
    return said;
  };
  EXPECT_THAT(index_with([](nlohmann::json& map) { map["more"] = "again.safetensors"; }), HasSubstr("is in two files"));
  std::filesystem::remove(set / "again.safetensors");
  EXPECT_THAT(index_with([](nlohmann::json& map) { std::swap(map.front(), *std::prev(map.end())); }),
              HasSubstr("which it does not"));
  for (const char* index : {"{", "{}", R"({"weight_map": {}})", R"({"weight_map": {"a": 1}})",
                            R"({"weight_map": {"a": "../a.safetensors"}})"}) {
    std::ofstream(set / "model.safetensors.index.json") << index;
    EXPECT_THAT(why_not(set), HasSubstr("expected an index with \"weight_map\"")) << index;
  }
  std::filesystem::remove(set / "model.safetensors.index.json");
  EXPECT_THAT(why_not(set), HasSubstr("has neither model.safetensors.index.json nor model.safetensors"));
}

TEST_F(WeightsFileTest, OnlyALlamasParametersHaveItsNames) {
  EXPECT_EQ(hugging_face_name("blocks.12.wo"), "model.layers.12.self_attn.o_proj.weight");
  EXPECT_EQ(hugging_face_name("head.weight"), "lm_head.weight");
  for (const char* other :
       {"blocks.0.router", "blocks.0.norm1_bias", "linear.0.weight", "blocks.0", "embedding.positions"}) {
    EXPECT_EQ(hugging_face_name(other), std::nullopt) << other;
  }
}

TEST_F(WeightsFileTest, WhatDoesNotFitIsSaidInASentence) {
  std::vector<SafeTensor> tensors = all_tensors();
  EXPECT_EQ(why_not(file_of(tensors)), "");
  EXPECT_THAT(why_not(file_of(tensors)), HasSubstr("is a checkpoint already"));
  std::filesystem::remove_all(folder_.path() / "refused");
  tensors[1].name = "blocks.0.other";
  EXPECT_THAT(why_not(file_of(tensors)), HasSubstr("has no blocks.0.norm1 or model.layers.0.input_layernorm.weight"));
  tensors = all_tensors();
  tensors.push_back({"surplus", {2}, 0});
  EXPECT_THAT(why_not(file_of(tensors)), HasSubstr("holds surplus, which this model does not have"));
  tensors = all_tensors();
  tensors[0].shape = {tensors[0].shape[1], tensors[0].shape[0]};
  EXPECT_THAT(why_not(file_of(tensors)), HasSubstr("embedding.weight has the shape ["));
  tensors = all_tensors();
  tensors.push_back({"first_moment/" + tensors[0].name, tensors[0].shape, 0});
  EXPECT_THAT(why_not(file_of(tensors)), HasSubstr("not all moments of this model"));
  EXPECT_FALSE(newest_checkpoint(folder_.path() / "refused"));
}

TEST_F(WeightsFileTest, ATrainingWithoutMomentsHasNoneToWrite) {
  config_.train.optimizer = Optimizer::sgd;
  const std::filesystem::path step = saved(), file = folder_.path() / "weights.safetensors";
  EXPECT_THROW(export_weights(step, file, {.moments = true}), ConfigError);
  EXPECT_FALSE(std::filesystem::exists(file));
  export_weights(step, file, {});
  EXPECT_EQ(import_weights(file, shapes(), Optimizer::sgd, folder_.path() / "sgd").position.steps, kWeightsBefore);
}

}  // namespace
}  // namespace fsdpbench::engine
