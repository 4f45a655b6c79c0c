#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace fsdpbench::plan {

/// What a module computes; the model folder has one class for each.
enum class ModuleKind : std::uint8_t { embedding, block, head, linear, mean_squared_error };

/// A piece of the model that runs as one forward op and one backward op.
struct ModuleShape {
  std::string name;  ///< "embedding", "blocks.3", "head", "linear.0", "loss"
  ModuleKind kind = ModuleKind::block;
  int index = 0;                ///< among modules of its kind
  std::vector<int> parameters;  ///< indices into ModelShapes::parameters, in the order the module names them
};

/// How a parameter is first filled; see model/initialize.h.
enum class Initialization : std::uint8_t { ones, zeros, normal };

struct ParameterShape {
  std::string name;                 ///< "blocks.3.attention.wq"
  std::vector<std::int64_t> shape;  ///< row-major; linear weights are [out, in] as in PyTorch
  int module = 0;                   ///< the module that owns it
  Initialization initialization = Initialization::normal;
  float deviation = 0.02F;  ///< of `normal`

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (std::int64_t d : shape) n *= d;
    return n;
  }
  /// Rows that dim-0 sharding splits.
  std::int64_t rows() const { return shape.front(); }
};

/// Modules in forward order, parameters in canonical order (the order of digests and checkpoints).
/// A tied head lists the embedding's parameter; the embedding module owns it.
struct ModelShapes {
  std::vector<ModuleShape> modules;
  std::vector<ParameterShape> parameters;
  std::int64_t parameter_count() const;
};

/// Decoder blocks own, in this order: norm1 [D], wq [H*hd, D], wk [K*hd, D], wv [K*hd, D], wo [D, H*hd],
/// norm2 [D], w_gate [F, D], w_up [F, D], w_down [D, F]. embedding: weight [V, D]. head: norm [D], weight [V, D]
/// (tied: norm and the embedding's weight). linear.i of the mlp: weight [out, in], bias [out]; loss: none.
///
/// Decoders of other kinds: LayerNorms have a bias [D] after their weight; with model.bias each linear map of a block
/// has one after its weight; q_norm and k_norm [hd] come before wo, then sinks [H]; a plain feed-forward has no w_gate;
/// with experts the router [E, D] comes first and the matrices are [E, F, D] and [E, D, F], their biases [E, F] and [E,
/// D]; a learned table of positions [P, D] is the embedding's second parameter.
ModelShapes model_shapes(const config::Model& model);

}  // namespace fsdpbench::plan
