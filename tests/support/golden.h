#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "config/run_config.h"

/// Reads what the scripts of tests/golden exported; link fsdpbench_golden. Little-endian hosts only.
namespace fsdpbench::testing {

/// One pair NAME.json + NAME.bin: plain facts, and named tensors of f32 or i32, row-major.
class GoldenFile {
 public:
  /// `name`: "decoder_tied", "decoder_untied" or "fsdp_step". Throws std::runtime_error if a file is
  /// missing.
  explicit GoldenFile(const std::string& name)
      : name_(name), index_(nlohmann::json::parse(bytes_of(".json"))), data_(bytes_of(".bin")) {}

  const nlohmann::json& facts() const { return index_.at("facts"); }
  bool has(const std::string& tensor) const { return index_.at("tensors").contains(tensor); }
  std::vector<std::int64_t> shape(const std::string& tensor) const { return entry(tensor).at("shape"); }
  std::vector<float> floats(const std::string& tensor) const { return read<float>(tensor, "f32"); }
  std::vector<std::int32_t> integers(const std::string& tensor) const { return read<std::int32_t>(tensor, "i32"); }

 private:
  const nlohmann::json& entry(const std::string& tensor) const {
    if (!has(tensor)) throw std::runtime_error("golden file " + name_ + " has no tensor " + tensor);
    return index_.at("tensors").at(tensor);
  }

  template <class T>
  std::vector<T> read(const std::string& tensor, const std::string& dtype) const {
    const nlohmann::json& e = entry(tensor);
    if (e.at("dtype") != dtype) throw std::runtime_error("golden tensor " + tensor + " is not " + dtype);
    std::size_t count = 1;
    for (const std::size_t d : e.at("shape")) count *= d;
    const std::size_t offset = e.at("offset");
    if (offset + count * sizeof(T) > data_.size()) throw std::runtime_error("golden file " + name_ + " is too short");
    std::vector<T> values(count);
    std::memcpy(values.data(), data_.data() + offset, count * sizeof(T));
    return values;
  }

  std::string bytes_of(const std::string& extension) const {
    const std::string path = std::string(FSDPBENCH_GOLDEN_DIR) + "/" + name_ + extension;
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string name_;
  nlohmann::json index_;
  std::string data_;
};

/// decoder_tied and decoder_untied: three AdamW steps of PyTorch on the global batch. Tensors:
///   "inputs", "targets"        i32 [steps, batch, seq_len]; targets are the inputs moved on by one token
///   "losses"                   f32 [steps], mean over the batch, before each step's update
///   "initial/PARAMETER", "gradient/PARAMETER" (of the first step), "final/PARAMETER" (after the
///   last step)
/// where PARAMETER is the canonical name of plan/model_shapes.h ("blocks.0.wq"). The batch of 8 divides by 1, 2, 4
/// and 8 ranks: rank r of n takes samples [r * 8/n, (r+1) * 8/n).
class GoldenDecoder {
 public:
  explicit GoldenDecoder(const std::string& name) : file_(name) {}
  explicit GoldenDecoder(bool tied) : file_(tied ? "decoder_tied" : "decoder_untied") {}

  config::Model model() const {
    const nlohmann::json& m = file_.facts().at("model");
    config::Model model;
    model.kind = config::ModelKind::decoder;
    model.layers = m.at("layers");
    model.width = m.at("width");
    model.heads = m.at("heads");
    model.kv_heads = m.at("kv_heads");
    model.ffn_width = m.at("ffn_width");
    model.vocab = m.at("vocab");
    model.tied_head = m.at("tied_head");
    model.rope_theta = m.at("rope_theta");
    model.norm_epsilon = m.at("norm_epsilon");
    return model;
  }
  /// Optimizer, steps, and the global batch as that of one rank.
  config::Train train() const {
    const nlohmann::json& a = file_.facts().at("adamw");
    config::Train train;
    train.optimizer = config::Optimizer::adamw;
    train.learning_rate = a.at("learning_rate");
    train.beta1 = a.at("beta1");
    train.beta2 = a.at("beta2");
    train.epsilon = a.at("epsilon");
    train.weight_decay = a.at("weight_decay");
    train.steps = file_.facts().at("steps");
    train.warmup = 0;
    train.seq_len = file_.facts().at("seq_len");
    train.batch_per_rank = file_.facts().at("batch");
    return train;
  }
  /// All samples of one step, [batch, seq_len].
  std::vector<std::int32_t> inputs(std::int64_t step) const { return of_step("inputs", step); }
  std::vector<std::int32_t> targets(std::int64_t step) const { return of_step("targets", step); }
  std::vector<float> losses() const { return file_.floats("losses"); }
  std::vector<float> initial(const std::string& parameter) const { return file_.floats("initial/" + parameter); }
  std::vector<float> gradient(const std::string& parameter) const { return file_.floats("gradient/" + parameter); }
  std::vector<float> final(const std::string& parameter) const { return file_.floats("final/" + parameter); }
  const GoldenFile& file() const { return file_; }

 private:
  std::vector<std::int32_t> of_step(const std::string& tensor, std::int64_t step) const {
    const std::vector<std::int32_t> all = file_.integers(tensor);
    const std::int64_t count = static_cast<std::int64_t>(all.size()) / file_.shape(tensor).front();
    return {all.begin() + step * count, all.begin() + (step + 1) * count};
  }
  GoldenFile file_;
};

/// One linear layer, mean squared error over all elements, one plain SGD step on the whole batch (JAX and Flax nnx).
/// Values are row-major: `x` [batch, in], `y` [batch, out], biases [out], weights [out, in] as this project stores
/// them (Flax has them [in, out]; the reader transposes).
struct GoldenStep {
  std::string name;
  std::int64_t in = 0, out = 0, batch = 0;
  double learning_rate = 0;
  std::vector<float> weight, bias, x, y;
  float loss = 0;  ///< before the update
  std::vector<float> new_weight, new_bias;
};

/// All cases of fsdp_step; the batch of 16 divides by 1, 2, 4 and 8 ranks.
inline std::vector<GoldenStep> golden_steps() {
  const GoldenFile file("fsdp_step");
  const auto transposed = [](const std::vector<float>& w, std::int64_t in, std::int64_t out) {
    std::vector<float> t(w.size());
    for (std::int64_t i = 0; i < in; ++i) {
      for (std::int64_t o = 0; o < out; ++o) t[o * in + i] = w[i * out + o];
    }
    return t;
  };
  std::vector<GoldenStep> steps;
  for (const nlohmann::json& c : file.facts().at("cases")) {
    GoldenStep s;
    s.name = c.at("name");
    s.in = c.at("in_features");
    s.out = c.at("out_features");
    s.batch = file.facts().at("batch");
    s.learning_rate = file.facts().at("learning_rate");
    s.weight = transposed(file.floats(s.name + "/w"), s.in, s.out);
    s.bias = file.floats(s.name + "/b");
    s.x = file.floats(s.name + "/x");
    s.y = file.floats(s.name + "/y");
    s.loss = file.floats(s.name + "/loss").front();
    s.new_weight = transposed(file.floats(s.name + "/new_w"), s.in, s.out);
    s.new_bias = file.floats(s.name + "/new_b");
    steps.push_back(std::move(s));
  }
  return steps;
}

}  // namespace fsdpbench::testing
