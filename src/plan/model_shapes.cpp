#include "plan/model_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace fsdpbench::plan {
namespace {

/// Collects modules and parameters in order.
class Shapes {
 public:
  int add_module(std::string name, ModuleKind kind, int index = 0) {
    result_.modules.push_back({std::move(name), kind, index, {}});
    return static_cast<int>(result_.modules.size()) - 1;
  }
  void add_parameter(int module, const std::string& name, std::vector<std::int64_t> shape,
                     Initialization initialization, float deviation = 0.02F) {
    ModuleShape& owner = result_.modules[module];
    const int index = static_cast<int>(result_.parameters.size());
    ParameterShape parameter;
    parameter.name = owner.name + "." + name;
    parameter.shape = std::move(shape);
    parameter.module = module;
    parameter.initialization = initialization;
    parameter.deviation = deviation;
    parameter.number = index;
    result_.parameters.push_back(std::move(parameter));
    owner.parameters.push_back(index);
  }
  void share_first_parameter(int module) { result_.modules[module].parameters.push_back(0); }
  int parameter_count() const { return static_cast<int>(result_.parameters.size()); }
  /// Adapters beside the matrix `name`.
  void add_adapters(int module, const std::string& name, std::int64_t rank) {
    const std::string whole = result_.modules[module].name + "." + name;
    const auto of = std::ranges::find(result_.parameters, whole, &ParameterShape::name);
    const std::int64_t out = of->shape[0], in = of->shape[1];
    // The variance of PEFT's kaiming_uniform_(a=sqrt(5)).
    const auto deviation = static_cast<float>(1 / std::sqrt(3.0 * static_cast<double>(in)));
    add_parameter(module, name + ".lora_down", {rank, in}, Initialization::normal, deviation);
    add_parameter(module, name + ".lora_up", {out, rank}, Initialization::zeros);
    for (int i = 1; i <= 2; ++i) (result_.parameters.end() - i)->adapter = true;
  }
  /// All parameters from `first` on have a row per expert.
  void mark_experts(int first) {
    for (auto p = result_.parameters.begin() + first; p != result_.parameters.end(); ++p) p->of_experts = true;
  }
  ModelShapes take() { return std::move(result_); }

 private:
  ModelShapes result_;
};

/// The parameters of one decoder, module by module.
class DecoderShapes {
 public:
  explicit DecoderShapes(const config::Model& model) : m_(model) {}

  ModelShapes shapes() {
    module_ = shapes_.add_module("embedding", ModuleKind::embedding);
    add("weight", {m_.vocab, m_.width}, Initialization::normal);
    if (m_.learned_positions > 0) add("positions", {m_.learned_positions, m_.width}, Initialization::normal);
    for (int i = 0; i < m_.layers; ++i) {
      module_ = shapes_.add_module(fmt::format("blocks.{}", i), ModuleKind::block, i);
      norm("norm1");
      attention();
      norm("norm2");
      feed_forward();
      adapters(m_.adapter_rank(i));
    }
    module_ = shapes_.add_module("head", ModuleKind::head);
    norm("norm");
    if (m_.tied_head) {
      shapes_.share_first_parameter(module_);  // the embedding's
    } else {
      add("weight", {m_.vocab, m_.width}, Initialization::normal);
    }
    return shapes_.take();
  }

 private:
  void add(const std::string& name, std::vector<std::int64_t> shape, Initialization initialization,
           float deviation = 0.02F) {
    shapes_.add_parameter(module_, name, std::move(shape), initialization, deviation);
  }
  void norm(const std::string& name) {
    add(name, {m_.width}, Initialization::ones);
    if (m_.norm == config::Norm::layer) add(name + "_bias", {m_.width}, Initialization::zeros);
  }
  void linear(const std::string& name, std::vector<std::int64_t> shape, float deviation = 0.02F) {
    std::vector<std::int64_t> bias(shape.begin(), shape.end() - 1);
    add(name, std::move(shape), Initialization::normal, deviation);
    if (m_.bias) add(name + "_bias", std::move(bias), Initialization::zeros);
  }
  void attention() {
    const std::int64_t queries = m_.heads * m_.head_size(), keys = m_.kv_heads * m_.head_size();
    if (m_.fused_projections) {
      linear("wqkv", {queries + 2 * keys, m_.width});
    } else {
      linear("wq", {queries, m_.width});
      linear("wk", {keys, m_.width});
      linear("wv", {keys, m_.width});
    }
    if (m_.qk_norm) {
      add("q_norm", {m_.head_size()}, Initialization::ones);
      add("k_norm", {m_.head_size()}, Initialization::ones);
    }
    if (m_.attention_sinks) add("sinks", {m_.heads}, Initialization::normal);
    linear("wo", {m_.width, queries}, residual_);
  }
  void feed_forward() {
    const auto shape = [&](std::int64_t out, std::int64_t in) {
      return m_.experts > 0 ? std::vector{m_.experts, out, in} : std::vector{out, in};
    };
    if (m_.experts > 0) linear("router", {m_.experts, m_.width});
    const int first = shapes_.parameter_count();
    const bool gated = m_.feed_forward == config::FeedForward::gated;
    if (gated && m_.fused_projections) {
      linear("w_gate_up", shape(2 * m_.ffn_width, m_.width));
    } else {
      if (gated) linear("w_gate", shape(m_.ffn_width, m_.width));
      linear("w_up", shape(m_.ffn_width, m_.width));
    }
    linear("w_down", shape(m_.width, m_.ffn_width), residual_);
    if (m_.experts > 0) shapes_.mark_experts(first);
    if (m_.shared_experts > 0) shared_expert();
  }
  void shared_expert() {
    const std::int64_t inner = m_.shared_width();
    const bool gated = m_.feed_forward == config::FeedForward::gated;
    if (gated && m_.fused_projections) {
      linear("shared_gate_up", {2 * inner, m_.width});
    } else {
      if (gated) linear("shared_gate", {inner, m_.width});
      linear("shared_up", {inner, m_.width});
    }
    linear("shared_down", {m_.width, inner}, residual_);
  }

  void adapters(std::int64_t rank) {
    if (rank == 0) return;
    const bool joined = m_.fused_projections, gated = m_.feed_forward == config::FeedForward::gated;
    std::vector<std::string> products{"wq", "wk", "wv"};
    if (joined) products = {"wqkv"};
    products.emplace_back("wo");
    if (gated && !joined) products.emplace_back("w_gate");
    products.emplace_back(gated && joined ? "w_gate_up" : "w_up");
    products.emplace_back("w_down");
    for (const std::string& name : products) shapes_.add_adapters(module_, name, rank);
  }

  const config::Model& m_;
  Shapes shapes_;
  int module_ = 0;
  // Projections into the residual stream start smaller so that its variance does not grow with depth (GPT-2).
  const float residual_ = 0.02F / std::sqrt(2.0F * static_cast<float>(m_.layers));
};

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
  shapes.add_module("loss", ModuleKind::mean_squared_error);
  return shapes.take();
}

/// Marks what does not train.
void freeze(const config::Model& model, ModelShapes& shapes) {
  if (!model.freezes()) return;
  for (ParameterShape& parameter : shapes.parameters) {
    const ModuleShape& module = shapes.modules[parameter.module];
    const bool of_block = module.kind == ModuleKind::block || module.kind == ModuleKind::linear;
    parameter.frozen = !of_block || !(parameter.adapter || model.trains_weights(module.index));
  }
}

}  // namespace

std::int64_t ModelShapes::trained_count() const {
  std::int64_t count = 0;
  for (const ParameterShape& parameter : parameters) count += parameter.frozen ? 0 : parameter.numel();
  return count;
}

int ModelShapes::first_trained() const {
  int first = static_cast<int>(modules.size());
  for (const ParameterShape& parameter : parameters) {
    if (!parameter.frozen) first = std::min(first, parameter.module);
  }
  return first;
}

std::int64_t ModelShapes::parameter_count() const {
  std::int64_t count = 0;
  for (const ParameterShape& parameter : parameters) count += parameter.whole_numel();
  return count;
}

ParameterShape::Run ParameterShape::run_of(std::int64_t element) const {
  std::int64_t n = 1;
  for (std::size_t d = split; d < shape.size(); ++d) n *= shape[d];
  return {element / n * n, n};
}

config::Model tensor_part(const config::Model& model, int tensor) {
  config::Model part = model;
  if (tensor == 1) return part;
  part.head_dim = model.head_size();
  part.heads /= tensor;
  part.kv_heads /= tensor;
  part.ffn_width /= tensor;
  part.vocab /= tensor;
  return part;
}

ModelShapes model_shapes(const config::Model& model, int tensor, int expert) {
  ModelShapes whole = model.kind == config::ModelKind::mlp ? mlp_shapes(model) : DecoderShapes(model).shapes();
  freeze(model, whole);
  for (ParameterShape& parameter : whole.parameters) {
    if (!parameter.of_experts) continue;
    parameter.shape.front() /= expert;
    parameter.parts = expert;
  }
  if (tensor == 1) return whole;
  const config::Model part = tensor_part(model, tensor);
  ModelShapes parts = DecoderShapes(part).shapes();
  for (std::size_t p = 0; p < parts.parameters.size(); ++p) {
    const std::vector<std::int64_t>& of_whole = whole.parameters[p].shape;
    ParameterShape& parameter = parts.parameters[p];
    const auto [split, same] = std::ranges::mismatch(parameter.shape, of_whole);
    if (split == parameter.shape.end()) continue;
    parameter.parts = tensor;
    parameter.split = static_cast<int>(split - parameter.shape.begin());
  }
  return parts;
}

}  // namespace fsdpbench::plan
