#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/kernels.h"
#include "base/bytes.h"
#include "config/run_config.h"
#include "plan/model_shapes.h"
#include "plan/module_sizes.h"

namespace fsdpbench::model {

/// Carves tensors out of one buffer, each aligned to 64 bytes. Without memory it only counts: the one function
/// that says which tensors a module needs gives both their size and their places.
class Arena {
 public:
  explicit Arena(std::byte* memory = nullptr) : memory_(memory) {}

  /// The next `bytes`; null without memory. Throws ResourceError if all would be more than 8 EiB.
  std::byte* take(std::int64_t bytes) {
    std::byte* const taken = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ = checked_sum(used_, round_up(bytes, kAlignment));
    peak_ = std::max(peak_, used_);
    return taken;
  }
  /// Takes `count` elements.
  template <class T>
  T* take_array(std::int64_t count) {
    return reinterpret_cast<T*>(take(checked_product(count, sizeof(T))));
  }

  /// Bytes in use.
  std::int64_t mark() const { return used_; }
  /// Gives back all that was taken after `mark`; tensors of different moments may share memory.
  void rewind(std::int64_t mark) { used_ = mark; }

  /// The most ever in use.
  std::int64_t bytes() const { return peak_; }

 private:
  static constexpr std::int64_t kAlignment = 64;
  std::byte* memory_;
  std::int64_t used_ = 0;
  std::int64_t peak_ = 0;
};

/// Size of one rank's microbatch and the dtype it computes in.
struct BatchShape {
  std::int64_t batch = 1;
  std::int64_t seq_len = 1;  ///< 1 for the mlp
  DType dtype = DType::f32;
  DType gradient_dtype = dtype;  ///< of the parameters' gradients: dtype, or f32
  /// Tokens (mlp: samples) of a microbatch.
  std::int64_t rows() const { return batch * seq_len; }
};

/// Device memory of one microbatch. Decoder: tokens and targets, int32 [batch, seq_len]; mlp: inputs f32
/// [batch, in_features] and targets f32 [batch, out_features].
struct DeviceBatch {
  const std::byte* inputs = nullptr;
  const std::byte* targets = nullptr;
};

/// Split of each layer over ranks, and whether they split the tokens, too, of what lies between layers.
struct TensorSplit {
  int ranks = 1;
  bool tokens = false;  ///< ranks must divide BatchShape::rows()
};

/// A layer's place among the ranks that split it.
struct TensorPlace {
  int index = 0;
  int ranks = 1;
};

/// All memory that one module's forward or backward touches; sizes as ModuleSizes says. Device memory, borrowed.
struct ModuleCall {
  std::span<const std::byte* const> parameters;  ///< in the module's parameter order, in BatchShape::dtype
  std::span<std::byte* const> gradients;         ///< backward: same order, in BatchShape::gradient_dtype
  DeviceBatch batch;
  const std::byte* input = nullptr;  ///< previous module's output; null for the first
  std::byte* output = nullptr;       ///< forward only; null for a loss, and in a recomputation (then left out)
  std::byte* saved = nullptr;
  std::byte* workspace = nullptr;
  std::byte* d_stream = nullptr;  ///< backward: gradient of the output, replaced by the gradient of the input.
                                  ///< For the last module (a loss) only an output. Holds the largest of both.
  float* loss = nullptr;          ///< loss modules: this microbatch's mean loss, device memory
  float loss_scale = 1.0F;        ///< loss modules: multiplies every gradient

  // For a module that is split over several ranks (see [Note: parts]):
  int part = kAllParts;           ///< which of the pass's parts runs
  std::byte* exchange = nullptr;  ///< what the ranks exchange after it; may be the output
  TensorPlace tensor;

  static constexpr int kAllParts = -1;
  bool runs(int which) const { return part == kAllParts || part == which; }
};

/// [Note: parts]
/// Ranks that split a layer hold rows of the matrices that its input goes into and columns of those that its output
/// comes out of, so that what lies between needs nobody else, and the outputs of all ranks add up to the layer's
/// (Shoeybi et al. 2019, arXiv:1909.08053, section 3). A pass therefore runs in parts; after each but the last,
/// `exchange` holds what this rank has of a sum over all (or its slot in what all are to know), and the next part finds
/// the whole there. ModuleSizes::forward_parts and so on say how many parts there are, and what is exchanged. Without
/// such ranks all parts run in one call and nothing is exchanged.
///   block, forward: attention, sum | feed-forward, sum | residual. Recomputed: its first two parts, with one sum.
///   block, backward: feed-forward to its norm, sum | attention to its norm, sum | that norm.
///   embedding, forward: the rows of this rank's tokens, sum. Its backward needs nobody.
///   head, forward: logits of this rank's tokens, what each row's softmax needs of them, gathered | the loss.
///   head, backward: down to the norm, sum | the norm.
///
/// [Note: parts by tokens]
/// If they split the tokens, too (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2), the stream between layers
/// is each rank's rows of it: inputs, outputs, d_stream, and what norms save. A layer gathers all rows before it and
/// leaves each rank its rows of the sum: "gather" and "scatter" here, both in `exchange`, where a rank's rows lie in
/// their place. What layers multiply is gathered again in backward, so that nobody keeps all rows of the stream. A
/// norm's gradient is then of a rank's rows only, and added up.
///   embedding, forward: as above, scatter | out of the exchange. Backward: into it, gather | the rows.
///   block, forward: norm, gather | attention, scatter | residual and norm, gather | feed-forward, scatter | residual;
///   backward: d_stream, gather | last product, and the norm again, gather | feed-forward, scatter | its norm, and
///   d_stream, gather | attention, and the norm again, gather | its projections, scatter | its norm, sum of both norms'
///   gradients | which are put where they belong.
///   head, forward: norm, gather | logits, terms gathered | loss; backward: norm, gather | down to it, scatter | the
///   norm, sum of its gradient | which is put where it belongs.

/// The arithmetic of a model, written once against the device's kernels. Stateless and thread-safe: everything a
/// call touches is in its ModuleCall.
///
/// Gradients are overwritten, not added to, with one exception: the embedding of a tied model adds to what the head
/// wrote into the same parameter before.
class Model {
 public:
  virtual ~Model() = default;
  /// One entry a module, in forward order.
  virtual std::vector<plan::ModuleSizes> sizes() const = 0;
  /// Module `module` (0 .. sizes().size()) on `call`'s microbatch, from a task on a lane: its output, and what the
  /// backward wants saved.
  virtual void forward(int module, backend::Kernels& kernels, const ModuleCall& call) const = 0;
  /// The gradients of its input and parameters, from that of its output.
  virtual void backward(int module, backend::Kernels& kernels, const ModuleCall& call) const = 0;
};

/// The model of `shapes` (see plan/model_shapes.h) at this batch size; one that knows only its sizes if there are no
/// kernels for it (see model/outline.h). If ranks split each layer, it is one rank's part.
std::unique_ptr<Model> make_model(const config::Model& model, const plan::ModelShapes& shapes, BatchShape batch,
                                  TensorSplit split = {});
/// The model of a training, as one rank has it.
std::unique_ptr<Model> make_model(const config::RunConfig& config, const plan::ModelShapes& shapes);

}  // namespace fsdpbench::model
