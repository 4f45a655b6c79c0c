#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "engine/checkpoint.h"

/// A whole model in one safetensors file or a set of them (weights_set.h), as other programs read and write them: every
/// parameter in one piece, with its shape; what is joined (model.fused_projections) as the separate ones. Checkpoints
/// (checkpoint.h) become such files, and such files checkpoints.
namespace fsdpbench::engine {

/// What parameters are called in a file.
enum class ParameterNames : std::uint8_t {
  own,           ///< plan::ModelShapes': "blocks.3.wq"
  hugging_face,  ///< those of transformers' LlamaForCausalLM: "model.layers.3.self_attn.q_proj.weight"
};

/// "blocks.3.wq" as transformers' LlamaForCausalLM calls it; absent for what it does not have (a LayerNorm's bias,
/// experts, the mlp).
std::optional<std::string> hugging_face_name(const std::string& own);

/// What was written, or read.
struct WeightsFile {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;     ///< of all files
  bool moments = false;       ///< those of AdamW are in it
  std::int64_t adapters = 0;  ///< tensors of model.lora_rank that an imported file has not: they begin as in a new run
  TrainingPosition position;
};

/// How weights are written.
struct WeightsFormat {
  ParameterNames names = ParameterNames::own;
  DType dtype = DType::f32;     ///< of parameters: f32, or bf16, rounded to the nearest; moments are fp32
  bool moments = false;         ///< both of AdamW, as "first_moment/NAME" and "second_moment/NAME"
  std::int64_t most_bytes = 0;  ///< of a file's tensors: several in a folder, with an index; 0: one file
};

/// Writes the checkpoint in the folder `checkpoint` as `file`, or into that folder; files are whole or not there. Piece
/// by piece: host memory does not grow with the model. The metadata have "format": "pt", which transformers asks for,
/// and how far the training is. Throws ConfigError (no checkpoint, damaged, a parameter that has no such name, no
/// moments), OutputError.
WeightsFile export_weights(const std::filesystem::path& checkpoint, const std::filesystem::path& file,
                           const WeightsFormat& format);

/// Makes a file, or a set of them by its index or folder, a checkpoint of a model of `shapes`, in a step folder of
/// `folder`, for `--resume`. Names are either's, in any order; what the model joins is in the file one by one. With
/// moments the training goes on where the metadata say; without, it begins at step 0 with moments of zero. Those of
/// frozen parameters are passed over. Adapters may be missing: `seed` draws them as for a new training. Throws
/// ConfigError in one sentence: the file is damaged or holds other than fp32 and bf16, a parameter is missing, has
/// another shape or is none of the model's; `folder` holds a checkpoint already. Throws OutputError.
WeightsFile import_weights(const std::filesystem::path& file, const plan::ModelShapes& shapes,
                           config::Optimizer optimizer, const std::filesystem::path& folder,
                           std::uint64_t seed = config::Train().seed);

}  // namespace fsdpbench::engine
