#include "engine/weights_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "engine/checkpoint_folder.h"
#include "engine/weights_set.h"
#include "model/initialize.h"

namespace fsdpbench::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kStreamedNumel = 1 << 20;
constexpr const char* kSteps = "fsdpbench_steps";
constexpr const char* kSamples = "fsdpbench_samples";

/// As transformers/models/llama names them.
const std::map<std::string, std::string, std::less<>> kLlamaBlock{
    {"norm1", "input_layernorm.weight"},  {"wq", "self_attn.q_proj.weight"},
    {"wk", "self_attn.k_proj.weight"},    {"wv", "self_attn.v_proj.weight"},
    {"wo", "self_attn.o_proj.weight"},    {"wq_bias", "self_attn.q_proj.bias"},
    {"wk_bias", "self_attn.k_proj.bias"}, {"wv_bias", "self_attn.v_proj.bias"},
    {"wo_bias", "self_attn.o_proj.bias"}, {"norm2", "post_attention_layernorm.weight"},
    {"w_gate", "mlp.gate_proj.weight"},   {"w_up", "mlp.up_proj.weight"},
    {"w_down", "mlp.down_proj.weight"},   {"w_gate_bias", "mlp.gate_proj.bias"},
    {"w_up_bias", "mlp.up_proj.bias"},    {"w_down_bias", "mlp.down_proj.bias"},
};
const std::map<std::string, std::string, std::less<>> kLlamaEnds{
    {"embedding.weight", "model.embed_tokens.weight"},
    {"head.norm", "model.norm.weight"},
    {"head.weight", "lm_head.weight"},
};

/// Of the parameter itself its name alone.
std::string tensor_name(State state, const std::string& parameter) {
  return state == State::parameter ? parameter : fmt::format("{}/{}", to_string(state), parameter);
}

std::string name_in(const std::string& own, ParameterNames names, const fs::path& checkpoint) {
  if (names == ParameterNames::own) return own;
  const std::optional<std::string> llama = hugging_face_name(own);
  if (llama) return *llama;
  throw ConfigError(
      fmt::format("{}: its parameter {} has no name in transformers' Llama; leave --names out to keep its own.",
                  checkpoint.string(), own));
}

/// A parameter of a file, by either of its names.
const WeightsReader::Tensor* find_tensor(const WeightsReader& weights, State state, const std::string& own) {
  for (const std::optional<std::string>& name : {std::optional(own), hugging_face_name(own)}) {
    if (!name) continue;
    const auto found = weights.tensors().find(tensor_name(state, *name));
    if (found != weights.tensors().end()) return &found->second;
  }
  return nullptr;
}

std::int64_t number_of(const WeightsReader& file, const char* key, const fs::path& path) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) return 0;
  const std::string& text = found->second;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) {
    throw ConfigError(
        fmt::format("{}: its metadata say {} = '{}'; expected a number from 0.", path.string(), key, text));
  }
  return number;
}

void check_shape(const fs::path& path, const SafeTensor& tensor, const plan::SeparateParameter& wanted) {
  if (tensor.shape == wanted.shape) return;
  throw ConfigError(fmt::format("{}: {} has the shape [{}], and this model's {} [{}].", path.string(), tensor.name,
                                fmt::join(tensor.shape, ", "), wanted.name, fmt::join(wanted.shape, ", ")));
}

/// What of a file is read for which state of which parameter, or part of a joined one; state by state in canonical
/// order.
struct Source {
  State state = State::parameter;
  int parameter = 0;  ///< canonical index
  std::int64_t numel = 0;
  const WeightsReader::Tensor* tensor = nullptr;  ///< null: zeros; of an adapter the values that it begins with
};

std::vector<Source> sources_of(const fs::path& path, const WeightsReader& file, const plan::ModelShapes& shapes,
                               config::Optimizer optimizer, bool* moments) {
  std::set<const WeightsReader::Tensor*> used;
  std::vector<Source> sources;
  *moments = true;
  for (const State state : states_of(optimizer)) {
    for (const plan::SeparateParameter& parameter : plan::separate_parameters(shapes.parameters)) {
      const plan::ParameterShape& whole = shapes.parameters[static_cast<std::size_t>(parameter.parameter)];
      const WeightsReader::Tensor* tensor = find_tensor(file, state, parameter.name);
      if (tensor != nullptr) {
        check_shape(path, *tensor->tensor, parameter);
        used.insert(tensor);
      } else if (state == State::parameter && !whole.adapter) {
        const std::optional<std::string> llama = hugging_face_name(parameter.name);
        throw ConfigError(fmt::format("{}: has no {}{}, {} in this model.", path.string(), parameter.name,
                                      llama ? fmt::format(" or {}", *llama) : "",
                                      fmt::format("[{}]", fmt::join(parameter.shape, ", "))));
      } else if (state != State::parameter && has_state(whole, state)) {
        *moments = false;
      }
      if (has_state(whole, state)) sources.push_back({state, parameter.parameter, parameter.numel(), tensor});
    }
  }
  for (const auto& [name, tensor] : file.tensors()) {
    const bool moment = name.starts_with("first_moment/") || name.starts_with("second_moment/");
    if (used.contains(&tensor) || (moment && optimizer == config::Optimizer::sgd)) continue;
    throw ConfigError(fmt::format("{}: holds {}, which this model does not have.", path.string(), name));
  }
  if (*moments || optimizer == config::Optimizer::sgd) return sources;
  for (const Source& source : sources) {
    if (source.state == State::parameter || source.tensor == nullptr) continue;
    throw ConfigError(fmt::format("{}: holds {}, but not all moments of this model; expected all or none.",
                                  path.string(), source.tensor->tensor->name));
  }
  return sources;
}

/// Calls `piece(first, count)` for all of `numel` elements.
template <typename Piece>
void in_pieces(std::int64_t numel, const Piece& piece) {
  for (std::int64_t first = 0; first < numel; first += kStreamedNumel)
    piece(first, std::min(kStreamedNumel, numel - first));
}

}  // namespace

std::optional<std::string> hugging_face_name(const std::string& own) {
  if (const auto end = kLlamaEnds.find(own); end != kLlamaEnds.end()) return end->second;
  constexpr std::string_view kBlocks = "blocks.";
  const std::size_t dot = own.find('.', kBlocks.size());
  if (!own.starts_with(kBlocks) || dot == std::string::npos) return std::nullopt;
  const auto part = kLlamaBlock.find(std::string_view(own).substr(dot + 1));
  if (part == kLlamaBlock.end()) return std::nullopt;
  return fmt::format("model.layers.{}.{}", own.substr(kBlocks.size(), dot - kBlocks.size()), part->second);
}

WeightsFile export_weights(const fs::path& folder, const fs::path& file, const WeightsFormat& format) {
  const Checkpoint checkpoint(folder);
  const std::vector<plan::SeparateParameter> separate = plan::separate_parameters(checkpoint.manifest().parameters);
  if (format.moments && checkpoint.manifest().optimizer != config::Optimizer::adamw) {
    throw ConfigError(fmt::format(
        "{}: was saved with train.optimizer = \"sgd\" and has no moments; leave --moments out.", folder.string()));
  }
  if (checkpoint.manifest().expert_bias) {
    throw ConfigError(fmt::format(
        "{}: its routers have biases (model.router_bias_rate), which no file of weights can hold; expected a "
        "checkpoint of a training without.",
        folder.string()));
  }
  const config::Optimizer wanted = format.moments ? config::Optimizer::adamw : config::Optimizer::sgd;
  const auto has = [&](State state, const plan::SeparateParameter& one) {
    return has_state(checkpoint.manifest().parameters[static_cast<std::size_t>(one.parameter)], state);
  };
  std::vector<SafeTensor> tensors;
  for (const State state : states_of(wanted)) {
    for (const plan::SeparateParameter& parameter : separate) {
      if (!has(state, parameter)) continue;
      tensors.push_back({tensor_name(state, name_in(parameter.name, format.names, folder)), parameter.shape, 0,
                         state == State::parameter ? format.dtype : DType::f32});
    }
  }
  const TrainingPosition& position = checkpoint.position();
  WeightsWriter writer(
      file, tensors,
      {{"format", "pt"}, {kSteps, std::to_string(position.steps)}, {kSamples, std::to_string(position.samples)}},
      format.most_bytes);
  std::vector<float> values;
  for (const State state : states_of(wanted)) {
    for (const plan::SeparateParameter& one : separate) {
      if (!has(state, one)) continue;
      in_pieces(one.numel(), [&](std::int64_t first, std::int64_t count) {
        values.resize(static_cast<std::size_t>(count));
        checkpoint.read(state, one.parameter, one.first + first, values);
        writer.write(values);
      });
    }
  }
  return {static_cast<std::int64_t>(tensors.size()), writer.finish(), format.moments, 0, position};
}

WeightsFile import_weights(const fs::path& path, const plan::ModelShapes& shapes, config::Optimizer optimizer,
                           const fs::path& folder, std::uint64_t seed) {
  const WeightsReader file(path);
  bool moments = false;
  const std::vector<Source> sources = sources_of(path, file, shapes, optimizer, &moments);
  moments = moments && optimizer == config::Optimizer::adamw;
  Manifest manifest;
  if (moments || optimizer == config::Optimizer::sgd) {
    manifest.position = {number_of(file, kSteps, path), number_of(file, kSamples, path)};
  }
  manifest.optimizer = optimizer;
  manifest.parameters = shapes.parameters;
  manifest.training = new_training();
  manifest.saved = 1;
  const fs::path target = step_folder(folder, manifest.position.steps);
  // Also one of other steps: it is of another training, and --resume would have to choose.
  if (const std::optional<fs::path> there = newest_checkpoint(folder)) {
    throw ConfigError(fmt::format("{} is a checkpoint already; expected a folder without any.", there->string()));
  }
  std::error_code error;
  fs::create_directories(target, error);
  if (error) throw OutputError(fmt::format("{}: cannot make the folder: {}.", target.string(), error.message()));
  std::vector<SafeTensor> tensors;
  for (const State state : states_of(optimizer)) {
    for (std::size_t i = 0; i < shapes.parameters.size(); ++i) {
      if (!has_state(shapes.parameters[i], state)) continue;
      tensors.push_back(tensor_of({state, static_cast<int>(i), 0, 0, shapes.parameters[i].numel()}, shapes));
    }
  }
  SafetensorsWriter writer(target / shard_file_name(0, 1), tensors, shard_metadata(manifest.position.steps));
  std::vector<float> values;
  for (const Source& source : sources) {
    in_pieces(source.numel, [&](std::int64_t first, std::int64_t count) {
      values.assign(static_cast<std::size_t>(count), 0.0F);
      if (source.tensor != nullptr) {
        source.tensor->read(first, values);
      } else if (source.state == State::parameter) {
        model::initialize_parameter(shapes.parameters[static_cast<std::size_t>(source.parameter)], seed, first,
                                    first + count, values.data());
      }
      writer.write(values);
    });
  }
  const FileDigest digest = writer.finish();
  manifest.files.push_back({shard_file_name(0, 1), digest});
  write_manifest(target, manifest);
  const auto adapters = std::ranges::count_if(
      sources, [](const Source& source) { return source.state == State::parameter && source.tensor == nullptr; });
  return {static_cast<std::int64_t>(file.tensors().size()), digest.bytes, moments, adapters, manifest.position};
}

}  // namespace fsdpbench::engine
