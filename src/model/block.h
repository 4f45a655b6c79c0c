#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/kernels.h"
#include "config/run_config.h"
#include "model/linear_map.h"
#include "model/model.h"
#include "model/parts.h"
#include "plan/module_sizes.h"

namespace fsdpbench::model {

/// One decoder block: h = x + wo(attention(rope(wq n1), rope(wk n1), wv n1)), y = h + w_down(silu(w_gate n2) * w_up n2)
/// with n1 = norm(x), n2 = norm(h). Parameters as plan/model_shapes.h lists them.
///
/// Saved are the results of matrix products and attention (q, k, v, attention's output and log-sum-exp, h, gate, up)
/// and the norms' statistics. What elementwise kernels give back at memory speed (n1, n2, the SwiGLU product) is
/// computed again in backward.
class Block {
 public:
  /// `model`: of one of the ranks that split the block (plan::tensor_part).
  Block(const config::Model& model, BatchShape batch, TensorSplit split = {});

  /// Bytes of saved tensors and workspaces; nothing else of it is filled in.
  plan::ModuleSizes carved() const;
  /// As Model::forward() and backward(), for one block.
  void forward(backend::Kernels& kernels, const ModuleCall& call) const;
  void backward(backend::Kernels& kernels, const ModuleCall& call) const;

 private:
  using Maps3 = MapsOfOneInput<3>::Tensors;  // queries, keys, values
  using Maps2 = MapsOfOneInput<2>::Tensors;  // gate, up
  // Tensors in memory, or only their bytes if that is null.
  struct Saved {
    std::int64_t bytes;
    Maps3 qkv;
    std::byte *attended, *h;
    Maps2 gate_up;
    float *rstd1, *rstd2, *log_sum_exp;
  };
  struct ForwardWorkspace {
    std::int64_t bytes;
    std::byte *normed, *scratch, *product;  // scratch and product share memory; split by tokens: no normed
  };
  struct BackwardWorkspace {
    std::int64_t bytes;
    std::byte *normed, *d_normed;  // what is exchanged is not here
    std::byte* d_product;          // feed-forward half; the product takes its place
    Maps2 d_gate_up;
    std::byte *d_attended, *scratch;  // attention half, in the same memory
    Maps3 d_qkv;
  };
  Saved carve_saved(std::byte* memory) const;
  ForwardWorkspace carve_forward(std::byte* memory) const;
  BackwardWorkspace carve_backward(std::byte* memory) const;

  void forward_by_tokens(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                         const ForwardWorkspace& work) const;
  void backward_whole(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                      const BackwardWorkspace& work) const;
  void backward_by_tokens(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                          const BackwardWorkspace& work) const;
  void attention(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved, const ForwardWorkspace& work,
                 const std::byte* normed, std::byte* out, const std::byte* residual) const;
  void feed_forward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved, const ForwardWorkspace& work,
                    const std::byte* normed, std::byte* out, const std::byte* residual) const;
  void contraction_backward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                            const BackwardWorkspace& work, const std::byte* d_y) const;
  void swiglu_backward(backend::Kernels& kernels, const Saved& saved, const BackwardWorkspace& work) const;
  void expansion_backward(backend::Kernels& kernels, const ModuleCall& call, const BackwardWorkspace& work,
                          const std::byte* normed, std::byte* d_normed) const;
  void attention_backward(backend::Kernels& kernels, const ModuleCall& call, const Saved& saved,
                          const BackwardWorkspace& work, const std::byte* d_h) const;
  void projections_backward(backend::Kernels& kernels, const ModuleCall& call, const BackwardWorkspace& work,
                            const std::byte* normed, std::byte* d_normed) const;
  void norm_backward(backend::Kernels& kernels, const ModuleCall& call, std::size_t weight, const std::byte* d_normed,
                     const std::byte* x, const float* rstd, std::byte* normed = nullptr) const;
  void norm(backend::Kernels& kernels, const std::byte* x, const std::byte* weight, std::byte* y, float* rstd) const;
  void rotate(backend::Kernels& kernels, const Maps3& qkv, bool inverse) const;

  config::Model model_;
  BatchShape batch_;
  TensorSplit split_;
  Stream stream_;
  MapsOfOneInput<3> qkv_;
  MapsOfOneInput<2> gate_up_;
  LinearMap output_, contract_;
  backend::AttentionShape attention_;
  struct Parameters {
    std::size_t norm1 = 0, qkv = 0, output = 0, norm2 = 0, gate_up = 0, down = 0;  // the first of each
  } at_;
};

}  // namespace fsdpbench::model
