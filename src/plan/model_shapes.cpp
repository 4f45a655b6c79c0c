#include "plan/model_shapes.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace fsdpbench::plan {
namespace {

/// Collects modules and parameters in order.
class Shapes {
 public:
  int add_module(std::string name, ModuleKind kind, int index) {
    result_.modules.push_back({std::move(name), kind, index, {}});
    return static_cast<int>(result_.modules.size()) - 1;
  }
  int add_parameter(int module, const std::string& name, std::vector<std::int64_t> shape, Initialization initialization,
                    float deviation = 0.02F) {
    ModuleShape& owner = result_.modules[static_cast<std::size_t>(module)];
    const int index = static_cast<int>(result_.parameters.size());
    result_.parameters.push_back({owner.name + "." + name, std::move(shape), module, initialization, deviation});
    owner.parameters.push_back(index);
    return index;
  }
  void share_parameter(int module, int parameter) {
    result_.modules[static_cast<std::size_t>(module)].parameters.push_back(parameter);
  }
  ModelShapes take() { return std::move(result_); }

 private:
  ModelShapes result_;
};

ModelShapes decoder_shapes(const config::Model& m) {
  Shapes shapes;
  const std::int64_t head_dim = m.width / m.heads;
  const std::int64_t kv_width = m.kv_heads * head_dim;
  // Projections into the residual stream start smaller so that its variance does not grow with depth (GPT-2).
  const float residual = 0.02F / std::sqrt(2.0F * static_cast<float>(m.layers));

  const int embedding = shapes.add_module("embedding", ModuleKind::embedding, 0);
  const int table = shapes.add_parameter(embedding, "weight", {m.vocab, m.width}, Initialization::normal);
  for (int i = 0; i < m.layers; ++i) {
    const int block = shapes.add_module(fmt::format("blocks.{}", i), ModuleKind::block, i);
    shapes.add_parameter(block, "norm1", {m.width}, Initialization::ones);
    shapes.add_parameter(block, "wq", {m.width, m.width}, Initialization::normal);
    shapes.add_parameter(block, "wk", {kv_width, m.width}, Initialization::normal);
    shapes.add_parameter(block, "wv", {kv_width, m.width}, Initialization::normal);
    shapes.add_parameter(block, "wo", {m.width, m.width}, Initialization::normal, residual);
    shapes.add_parameter(block, "norm2", {m.width}, Initialization::ones);
    shapes.add_parameter(block, "w_gate", {m.ffn_width, m.width}, Initialization::normal);
    shapes.add_parameter(block, "w_up", {m.ffn_width, m.width}, Initialization::normal);
    shapes.add_parameter(block, "w_down", {m.width, m.ffn_width}, Initialization::normal, residual);
  }
  const int head = shapes.add_module("head", ModuleKind::head, 0);
  shapes.add_parameter(head, "norm", {m.width}, Initialization::ones);
  if (m.tied_head) {
    shapes.share_parameter(head, table);
  } else {
    shapes.add_parameter(head, "weight", {m.vocab, m.width}, Initialization::normal);
  }
  return shapes.take();
}

ModelShapes mlp_shapes(const config::Model& m) {
  Shapes shapes;
  for (int i = 0; i < m.layers; ++i) {
    const std::int64_t in = i == 0 ? m.in_features : m.width;
    const std::int64_t out = i + 1 == m.layers ? m.out_features : m.width;
    const int linear = shapes.add_module(fmt::format("linear.{}", i), ModuleKind::linear, i);
    const auto deviation = static_cast<float>(1.0 / std::sqrt(static_cast<double>(in)));
    shapes.add_parameter(linear, "weight", {out, in}, Initialization::normal, deviation);
    shapes.add_parameter(linear, "bias", {out}, Initialization::zeros);
  }
  shapes.add_module("loss", ModuleKind::mean_squared_error, 0);
  return shapes.take();
}

}  // namespace

std::int64_t ModelShapes::parameter_count() const {
  std::int64_t count = 0;
  for (const ParameterShape& parameter : parameters) count += parameter.numel();
  return count;
}

ModelShapes model_shapes(const config::Model& model) {
  return model.kind == config::ModelKind::decoder ? decoder_shapes(model) : mlp_shapes(model);
}

}  // namespace fsdpbench::plan
