#include "plan/model_shapes.h"

#include <gmock/gmock.h>

#include <string>

#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"

namespace fsdpbench::plan {
namespace {

using ::testing::ElementsAre;

config::Model preset(const std::string& name) {
  config::RunConfig config = config::load_profile(config::find_profile("quickstart"), {"model.preset=" + name});
  config::validate(config);
  return config.model;
}

std::int64_t parameters(const std::string& name) { return model_shapes(preset(name)).parameter_count(); }

TEST(ModelShapes, PresetsHaveTheExactSizesOfPublishedWeights) {
  EXPECT_EQ(parameters("llama2-7b"), 6'738'415'616);
  EXPECT_EQ(parameters("llama2-13b"), 13'015'864'320);
  EXPECT_EQ(parameters("llama2-70b"), 68'976'648'192);
  EXPECT_EQ(parameters("llama3-8b"), 8'030'261'248);
  EXPECT_EQ(parameters("llama3-70b"), 70'553'706'496);
  EXPECT_EQ(parameters("llama3-405b"), 405'853'388'800);
  EXPECT_EQ(parameters("llama3.2-1b"), 1'235'814'400);
  EXPECT_EQ(parameters("llama3.2-3b"), 3'212'749'824);
  EXPECT_EQ(parameters("openai-gpt2"), 124'439'808);
  EXPECT_EQ(parameters("quickstart-moe"), 2'430'080);  // 806'912 of them and the norms for each token
  EXPECT_EQ(parameters("qwen3-8b"), 8'190'735'360);
  EXPECT_EQ(parameters("qwen3-32b"), 32'762'123'264);
  EXPECT_EQ(parameters("gpt-oss-20b"), 20'914'757'184);
  EXPECT_EQ(parameters("gpt-oss-120b"), 116'829'156'672);
}

TEST(ModelShapes, PresetsHaveTheSizesThatBenchmarksState) {
  const auto is = [](const std::string& name, double stated, double digit) {
    EXPECT_NEAR(static_cast<double>(parameters(name)), stated, digit / 2) << name;
  };
  is("llama2-34b", 33.7e9, 0.1e9);
  is("mpt-125m", 125.3e6, 0.1e6);
  is("mpt-350m", 356.0e6, 0.1e6);
  is("mpt-760m", 760.5e6, 0.1e6);
  is("mpt-1b", 1.316e9, 0.001e9);
  is("mpt-3b", 2.652e9, 0.001e9);
  is("mpt-7b", 6.659e9, 0.001e9);
  is("mpt-13b", 12.854e9, 0.001e9);
  is("mpt-30b", 29.975e9, 0.001e9);
  is("mpt-70b", 64.862e9, 0.001e9);
  is("gpt3-175b", 175e9, 1e9);
  is("gpt-530b", 530e9, 1e9);
  is("gpt-1t", 1008e9, 1e9);
}

TEST(ModelShapes, ParametersOfAGptBlock) {
  config::Model model;
  model.layers = 1;
  model.width = 8;
  model.heads = 2;
  model.kv_heads = 2;
  model.ffn_width = 12;
  model.feed_forward = config::FeedForward::plain;
  model.norm = config::Norm::layer;
  model.bias = true;
  model.learned_positions = 5;
  const ModelShapes shapes = model_shapes(model);
  std::vector<std::string> names;
  for (const int p : shapes.modules[1].parameters) {
    names.push_back(shapes.parameters[static_cast<std::size_t>(p)].name.substr(std::string("blocks.0.").size()));
  }
  EXPECT_THAT(names, ElementsAre("norm1", "norm1_bias", "wq", "wq_bias", "wk", "wk_bias", "wv", "wv_bias", "wo",
                                 "wo_bias", "norm2", "norm2_bias", "w_up", "w_up_bias", "w_down", "w_down_bias"));
  EXPECT_EQ(shapes.parameters[1].name, "embedding.positions");
  EXPECT_THAT(shapes.parameters[1].shape, ElementsAre(5, 8));
}

/// Which of two ranks holds each of the whole's elements; -1: none.
std::vector<int> holders(const ParameterShape& part, std::int64_t whole) {
  std::vector<int> seen(static_cast<std::size_t>(whole), -1);
  for (int r = 0; r < 2; ++r) {
    for (std::int64_t i = 0; i < part.numel(); ++i) seen.at(static_cast<std::size_t>(part.in_whole(r, i))) = r;
  }
  return seen;
}

TEST(ModelShapes, PartsOfLayersAreRowsOrColumns) {
  config::Model model;
  model.layers = 1;
  const ModelShapes whole = model_shapes(model), parts = model_shapes(model, 2);
  EXPECT_EQ(parts.parameter_count(), whole.parameter_count());
  std::int64_t norms = 0;
  ASSERT_EQ(parts.parameters.size(), whole.parameters.size());
  for (std::size_t p = 0; p < parts.parameters.size(); ++p) {
    const ParameterShape& part = parts.parameters[p];
    const std::string name = part.name.substr(part.name.rfind('.') + 1);
    if (name.starts_with("norm")) {
      EXPECT_EQ(part.parts, 1) << part.name;
      norms += part.numel();
      continue;
    }
    const bool columns = name == "wo" || name == "w_down";
    EXPECT_EQ(part.parts, 2) << part.name;
    EXPECT_EQ(part.split, columns ? 1 : 0) << part.name;
    EXPECT_EQ(part.shape[columns ? 0 : 1], whole.parameters[p].shape[columns ? 0 : 1]) << part.name;
    // Every element of the whole is in one part, and where a slice would have put it.
    const std::vector<int> seen = holders(part, whole.parameters[p].numel());
    const std::int64_t width = whole.parameters[p].shape[1];
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t index = columns ? at % width / part.shape[1] : at / width / part.shape[0];
      ASSERT_EQ(seen[i], index) << part.name << " " << i;
    }
    EXPECT_EQ(part.whole_numel(), whole.parameters[p].numel()) << part.name;
  }
  EXPECT_EQ(parts.trained_count(), (whole.parameter_count() - norms) / 2 + norms);
}

TEST(ModelShapes, JoinedProjectionsAreTheSeparateOnesOneAfterAnother) {
  config::Model model;
  model.layers = 2;
  const ModelShapes apart = model_shapes(model);
  model.fused_projections = true;
  const ModelShapes joined = model_shapes(model);
  EXPECT_EQ(joined.parameter_count(), apart.parameter_count());
  EXPECT_EQ(joined.parameters.size(), apart.parameters.size() - 2 * 3);
  std::vector<std::string> names;
  for (const int p : joined.modules[1].parameters) names.push_back(joined.parameters[p].name);
  EXPECT_THAT(names, ElementsAre("blocks.0.norm1", "blocks.0.wqkv", "blocks.0.wo", "blocks.0.norm2",
                                 "blocks.0.w_gate_up", "blocks.0.w_down"));
  EXPECT_THAT(joined.parameters[2].shape, ElementsAre(model.width * 2, model.width));  // 4 heads, 2 for keys
  EXPECT_THAT(joined.parameters[5].shape, ElementsAre(2 * model.ffn_width, model.width));
}

TEST(ModelShapes, ExpertsAreTheRowsThatShardingSplits) {
  config::Model model;
  model.layers = 1;
  model.head_dim = 48;
  model.qk_norm = true;
  model.attention_sinks = true;
  model.experts = 6;
  model.active_experts = 2;
  const ModelShapes shapes = model_shapes(model);
  const auto shape = [&](const std::string& name) {
    for (const ParameterShape& p : shapes.parameters) {
      if (p.name == "blocks.0." + name) return p.shape;
    }
    return std::vector<std::int64_t>{};
  };
  EXPECT_THAT(shape("wq"), ElementsAre(4 * 48, 128));
  EXPECT_THAT(shape("wo"), ElementsAre(128, 4 * 48));
  EXPECT_THAT(shape("q_norm"), ElementsAre(48));
  EXPECT_THAT(shape("sinks"), ElementsAre(4));
  EXPECT_THAT(shape("router"), ElementsAre(6, 128));
  EXPECT_THAT(shape("w_gate"), ElementsAre(6, 352, 128));
  EXPECT_THAT(shape("w_down"), ElementsAre(6, 128, 352));
  EXPECT_THAT(shape("shared_up"), ElementsAre());
  model.experts = model.active_experts = 1;
  const ModelShapes one = model_shapes(model);
  EXPECT_EQ(one.parameters.size(), shapes.parameters.size()) << "a router even of one expert";
  EXPECT_EQ(one.parameters.back().shape.size(), shapes.parameters.back().shape.size());
}

TEST(ModelShapes, ASharedExpertIsAMatrixOfTheBlockBehindTheRoutedOnes) {
  config::Model model;
  model.layers = 1;
  model.experts = 6;
  model.active_experts = 2;
  model.shared_experts = 2;
  const auto of_block = [&] {
    std::vector<std::string> names;
    for (const ParameterShape& p : model_shapes(model, 1, 2).parameters) {
      if (p.module == 1 && !p.of_experts) names.push_back(p.name.substr(p.name.rfind('.') + 1));
    }
    return names;
  };
  EXPECT_THAT(of_block(), ElementsAre("norm1", "wq", "wk", "wv", "wo", "norm2", "router", "shared_gate", "shared_up",
                                      "shared_down"));
  const std::int64_t separate = model_shapes(model).parameter_count();
  model.shared_experts = 0;
  EXPECT_EQ(separate, model_shapes(model).parameter_count() + 3 * 2 * model.ffn_width * model.width);
  model.shared_experts = 2;
  model.fused_projections = true;
  EXPECT_THAT(of_block(), ElementsAre("norm1", "wqkv", "wo", "norm2", "router", "shared_gate_up", "shared_down"));
  EXPECT_EQ(model_shapes(model).parameter_count(), separate);
}

/// Each of two ranks has half of the experts, and all of the rest.
TEST(ModelShapes, RanksShareExpertsByTheirNumber) {
  config::Model model;
  model.layers = 1;
  model.experts = 6;
  model.active_experts = 2;
  model.tied_head = true;
  const ModelShapes whole = model_shapes(model), half = model_shapes(model, 1, 2);
  EXPECT_EQ(half.parameter_count(), whole.parameter_count());
  for (std::size_t p = 0; p < half.parameters.size(); ++p) {
    const ParameterShape& of_half = half.parameters[p];
    const bool experts = of_half.name.find(".w_") != std::string::npos;
    EXPECT_EQ(of_half.of_experts, experts) << of_half.name;
    EXPECT_EQ(of_half.parts, experts ? 2 : 1) << of_half.name;
    EXPECT_EQ(of_half.shape.front() * of_half.parts, whole.parameters[p].shape.front()) << of_half.name;
    EXPECT_EQ(of_half.number, static_cast<int>(p));
  }
  EXPECT_THAT(half.modules.back().parameters, ElementsAre(static_cast<int>(half.parameters.size()) - 1, 0))
      << "a tied head's norm, and the embedding's weight";
}

const ParameterShape& parameter_named(const ModelShapes& shapes, std::string_view name) {
  return *std::ranges::find(shapes.parameters, name, &ParameterShape::name);
}

TEST(ModelShapes, MatricesStartAsWideAsTheirPlaceAsks) {
  config::Model m;
  m.layers = 2;
  m.width = 8;
  m.heads = 2;
  m.kv_heads = 1;
  m.ffn_width = 16;
  const ModelShapes without = model_shapes(m);
  EXPECT_FLOAT_EQ(parameter_named(without, "embedding.weight").deviation, 0.02F);
  EXPECT_FLOAT_EQ(parameter_named(without, "blocks.1.wq").deviation, 0.02F);
  for (const char* residual : {"blocks.0.wo", "blocks.1.w_down"}) {
    EXPECT_FLOAT_EQ(parameter_named(without, residual).deviation, 0.01F) << "by the root of twice the blocks: GPT-2";
  }
  m.lora_rank = 2;
  const ModelShapes adapted = model_shapes(m);
  EXPECT_FLOAT_EQ(parameter_named(adapted, "blocks.0.wk.lora_down").deviation, 1 / std::sqrt(3 * 8.0F));
  EXPECT_FLOAT_EQ(parameter_named(adapted, "blocks.0.w_down.lora_down").deviation, 1 / std::sqrt(3 * 16.0F));
  EXPECT_THAT(parameter_named(adapted, "blocks.0.wk.lora_down").shape, ElementsAre(2, 8));
  EXPECT_THAT(parameter_named(adapted, "blocks.0.wk.lora_up").shape, ElementsAre(4, 2));
  EXPECT_EQ(parameter_named(adapted, "blocks.0.wk.lora_up").initialization, Initialization::zeros);
  for (const ParameterShape& p : adapted.parameters) {
    EXPECT_EQ(p.adapter, p.name.find("lora") != std::string::npos) << p.name;
    EXPECT_EQ(p.frozen, !p.adapter) << p.name;
  }
  EXPECT_EQ(adapted.first_trained(), 1);
  m.fused_projections = true;
  std::string downs;
  for (const ParameterShape& p : model_shapes(m).parameters) {
    if (p.module == 1 && p.name.ends_with("down") && p.adapter) downs += p.name.substr(9) + ' ';
  }
  EXPECT_EQ(downs, "wqkv.lora_down wo.lora_down w_gate_up.lora_down w_down.lora_down ");
  config::Model mlp;
  mlp.kind = config::ModelKind::mlp;
  mlp.layers = 3;
  mlp.in_features = 16;
  mlp.width = 64;
  mlp.out_features = 5;
  const ModelShapes linear = model_shapes(mlp);
  EXPECT_FLOAT_EQ(parameter_named(linear, "linear.0.weight").deviation, 0.25F);
  EXPECT_FLOAT_EQ(parameter_named(linear, "linear.2.weight").deviation, 0.125F);
  EXPECT_THAT(parameter_named(linear, "linear.1.weight").shape, ElementsAre(64, 64));
  EXPECT_THAT(parameter_named(linear, "linear.2.weight").shape, ElementsAre(5, 64));
  EXPECT_THAT(parameter_named(linear, "linear.2.bias").shape, ElementsAre(5));
  ASSERT_EQ(linear.modules.size(), 4U);
  EXPECT_EQ(linear.modules.back().kind, ModuleKind::mean_squared_error);
  mlp.trainable = {config::Trainable::Mode::blocks, 1, 1};
  EXPECT_EQ(model_shapes(mlp).trained_count(), 64 * 64 + 64);
  EXPECT_EQ(model_shapes(mlp).first_trained(), 1);
}

}  // namespace
}  // namespace fsdpbench::plan
