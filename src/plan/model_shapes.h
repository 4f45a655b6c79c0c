#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace fsdpbench::plan {

/// Kind of a module; the model folder has one class for each.
enum class ModuleKind : std::uint8_t { embedding, block, head, linear, mean_squared_error };

/// A piece of the model that runs as one forward op and one backward op.
struct ModuleShape {
  std::string name;  ///< "embedding", "blocks.3", "head", "linear.0", "loss"
  ModuleKind kind = ModuleKind::block;
  int index = 0;                ///< among modules of its kind
  std::vector<int> parameters;  ///< indices into ModelShapes::parameters, in the order the module names them
};

/// Initial values of a parameter; see model/initialize.h.
enum class Initialization : std::uint8_t { ones, zeros, normal };

struct ParameterShape {
  std::string name;                 ///< "blocks.3.attention.wq"
  std::vector<std::int64_t> shape;  ///< row-major; linear weights are [out, in] as in PyTorch. Of a tensor rank's part
  int module = 0;                   ///< the module that owns it
  Initialization initialization = Initialization::normal;
  float deviation = 0.02F;  ///< of `normal`
  int parts = 1;            ///< ranks that split it, along dimension `split`; 1: each has all of it
  int split = 0;
  int number = 0;           ///< its canonical index but for adapters: what its initial values are drawn by
  bool of_experts = false;  ///< dimension 0 counts the experts of a block
  bool adapter = false;     ///< of model.lora_rank
  bool frozen = false;      ///< has no gradient

  /// Elements of the part.
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (std::int64_t d : shape) n *= d;
    return n;
  }
  /// Elements of all parts together.
  std::int64_t whole_numel() const { return numel() * parts; }
  /// Rows that dim-0 sharding splits.
  std::int64_t rows() const { return shape.front(); }
  /// Elements [first, first + count) of a part lie side by side in the whole parameter, where those of all parts begin
  /// at first * parts.
  struct Run {
    std::int64_t first = 0;
    std::int64_t count = 0;
  };
  /// That element `element` of a part is in.
  Run run_of(std::int64_t element) const;
  /// Place of element `element` of part `part` in the whole parameter.
  std::int64_t in_whole(int part, std::int64_t element) const {
    if (parts == 1) return element;
    const Run run = run_of(element);
    return run.first * parts + part * run.count + element - run.first;
  }
};

/// Modules in forward order, parameters in canonical order (the order of digests and checkpoints).
/// A tied head lists the embedding's parameter; the embedding module owns it.
struct ModelShapes {
  std::vector<ModuleShape> modules;
  std::vector<ParameterShape> parameters;
  std::int64_t parameter_count() const;  ///< of the whole model
  std::int64_t trained_count() const;    ///< of one tensor rank, what is not frozen
  /// The first module that has a parameter which trains: no gradient goes below it.
  int first_trained() const;
};

/// Decoder blocks own, in this order: norm1 [D], wq [H*hd, D], wk [K*hd, D], wv [K*hd, D], wo [D, H*hd],
/// norm2 [D], w_gate [F, D], w_up [F, D], w_down [D, F]. embedding: weight [V, D]. head: norm [D], weight [V, D]
/// (tied: norm and the embedding's weight). linear.i of the mlp: weight [out, in], bias [out]; loss: none.
///
/// Decoders of other kinds: LayerNorms have a bias [D] after their weight; with model.bias each linear map of a block
/// has one after its weight; q_norm and k_norm [hd] come before wo, then sinks [H]; a plain feed-forward has no w_gate;
/// with experts the router [E, D] comes first and the matrices are [E, F, D] and [E, D, F], their biases [E, F] and [E,
/// D]; with shared experts shared_gate [S*F, D], shared_up [S*F, D] and shared_down [D, S*F] come behind these; a
/// learned table of positions [P, D] is the embedding's second parameter.
///
/// With model.fused_projections wqkv [(H + 2 K)*hd, D] is in the place of wq, wk and wv, and w_gate_up [2 F, D] in that
/// of w_gate and w_up: their rows one after another (of experts, each expert's).
///
/// With model.lora_rank = r a block has two adapters behind all else for each of its products, in their order: down [r,
/// in], normal, and up [out, r], zero: at first nothing is added.
///
/// Each of `tensor` ranks has a part, split as in Megatron: rows of embedding, head, wq, wk, wv, w_gate and w_up with
/// their biases, columns of wo and w_down; all else whole. Each of these sizes must divide.
/// Each of `expert` ranks has a part of the experts: matrices are [E / expert, F, D]; all else is whole. They do not go
/// with `tensor`.
ModelShapes model_shapes(const config::Model& model, int tensor = 1, int expert = 1);

/// Part of a decoder on one of `tensor` ranks, as a model: its heads, its part of feed-forward and vocabulary.
config::Model tensor_part(const config::Model& model, int tensor);

}  // namespace fsdpbench::plan
