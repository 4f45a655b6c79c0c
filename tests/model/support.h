#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "support/single_rank.h"

namespace fsdpbench::testing {

inline std::vector<float> random_values(std::int64_t count, std::uint32_t seed, double deviation = 1.0) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0.0, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(normal(generator));
  return values;
}

inline config::Model small_decoder(std::int64_t layers, bool tied) {
  config::Model model;
  model.layers = layers;
  model.width = 24;
  model.heads = 4;
  model.kv_heads = 2;
  model.ffn_width = 20;
  model.vocab = 19;
  model.tied_head = tied;
  return model;
}

/// Five experts, of which each token visits two.
inline config::Model with_experts(config::Model model) {
  model.experts = 5;
  model.active_experts = 2;
  return model;
}

inline config::Model with_shared(config::Model model) {
  model.shared_experts = 2;
  return model;
}

inline config::Model small_mlp(std::int64_t layers) {
  config::Model model;
  model.kind = config::ModelKind::mlp;
  model.layers = layers;
  model.width = 11;
  model.in_features = 7;
  model.out_features = 5;
  return model;
}

/// Parameters so large that every gradient matters, and a random batch.
inline void randomize(SingleRank& rank, const config::Model& model, model::BatchShape batch) {
  for (std::size_t i = 0; i < rank.parameter_count(); ++i) {
    const plan::ParameterShape& shape = rank.shapes().parameters[i];
    std::vector<float> values = random_values(shape.numel(), static_cast<std::uint32_t>(i), 0.25);
    if (shape.initialization == plan::Initialization::ones) {
      for (float& value : values) value += 1.0F;
    }
    rank.set_parameter(i, values);
  }
  if (model.kind == config::ModelKind::mlp) {
    rank.set_batch(random_values(batch.rows() * model.in_features, 100),
                   random_values(batch.rows() * model.out_features, 101));
    return;
  }
  std::mt19937 generator(102);
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(batch.rows())), targets = inputs;
  for (auto* tokens : {&inputs, &targets}) {
    for (std::int32_t& token : *tokens) token = static_cast<std::int32_t>(generator() % 19);
  }
  rank.set_batch(inputs, targets);
}

inline double norm(const std::vector<float>& values) {
  double squares = 0;
  for (const float v : values) squares += static_cast<double>(v) * v;
  return std::sqrt(squares);
}

}  // namespace fsdpbench::testing
