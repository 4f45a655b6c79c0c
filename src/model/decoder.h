#pragma once

#include <utility>
#include <vector>

#include "model/block.h"
#include "model/linear_map.h"
#include "model/model.h"
#include "model/parts.h"

namespace fsdpbench::model {

/// Llama-style decoder: token embedding, blocks, and a head of RMSNorm, logits and mean cross-entropy.
///
/// The head's forward turns its logits into their gradient at once (the loss needs the same softmax) and saves that;
/// nothing of [rows, vocab] size exists twice.
class Decoder final : public Model {
 public:
  /// `model`: of one of the ranks that split every layer (plan::tensor_part); its vocabulary is then a range of the
  /// tokens, by the rank's place.
  Decoder(const config::Model& model, BatchShape batch, TensorSplit split = {});

  std::vector<plan::ModuleSizes> sizes() const override;
  /// Bytes that a block and the head carve up, which must be what sizes() says: for tests.
  std::pair<plan::ModuleSizes, plan::ModuleSizes> carved() const;
  void forward(int module, backend::Kernels& kernels, const ModuleCall& call) const override;
  void backward(int module, backend::Kernels& kernels, const ModuleCall& call) const override;

 private:
  // Tensors in memory, or only their bytes if that is null.
  struct HeadSaved {
    std::int64_t bytes;
    std::byte* d_logits;
    float* rstd;
  };
  struct HeadWorkspace {
    std::int64_t bytes;
    std::byte *normed, *d_normed;  // d_normed: backward only; what is exchanged is not here
  };
  HeadSaved carve_saved(std::byte* memory) const;
  HeadWorkspace carve_workspace(std::byte* memory, bool backward) const;

  void embedding_forward(backend::Kernels& kernels, const ModuleCall& call) const;
  void embedding_backward(backend::Kernels& kernels, const ModuleCall& call) const;
  void head_forward(backend::Kernels& kernels, const ModuleCall& call) const;
  void logits(backend::Kernels& kernels, const ModuleCall& call, const HeadSaved& saved, const std::byte* normed) const;
  void head_backward(backend::Kernels& kernels, const ModuleCall& call) const;
  void head_backward_by_tokens(backend::Kernels& kernels, const ModuleCall& call, const HeadSaved& saved) const;
  void logits_backward(backend::Kernels& kernels, const ModuleCall& call, const HeadSaved& saved,
                       const std::byte* normed, std::byte* d_normed) const;
  void norm(backend::Kernels& kernels, const ModuleCall& call, const HeadSaved& saved, std::byte* normed) const;
  void norm_backward(backend::Kernels& kernels, const ModuleCall& call, const HeadSaved& saved,
                     const std::byte* d_normed, std::byte* normed = nullptr) const;

  backend::VocabularyPart vocabulary_of(const ModuleCall& call) const;
  void loss(backend::Kernels& kernels, const ModuleCall& call, const HeadSaved& saved) const;
  backend::CrossEntropyCall loss_of(const ModuleCall& call, const HeadSaved& saved) const;

  config::Model model_;
  BatchShape batch_;
  TensorSplit split_;
  Stream stream_;
  LinearMap logits_;
  Block block_;  // all are equal
};

}  // namespace fsdpbench::model
