#pragma once

#include <cuda_runtime_api.h>
#include <cstdint>
#include <memory>

#include "backend/cuda/kernels/gemms.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// Attention of any dtype and shape as matrix products and softmaxes of blocks of query rows, one block of one head
/// after the other, like the CPU kernels. It is there to be right where cuDNN has no kernel: thousands of small
/// launches, far from fast.
void attention_fallback(cudaStream_t stream, Gemms& gemms, const AttentionCall& call);
void attention_fallback_backward(cudaStream_t stream, Gemms& gemms, const AttentionBackwardCall& call);

/// Grouped-query causal attention on one stream of the current device, as backend/kernels.h says; calls only enqueue.
/// bf16 goes through cuDNN's fused kernels where they take the shape; everything else through blocks of matrix
/// products, which is right but not fast. Gives the same bits each time, the backward by cuDNN
/// only if it shall be `deterministic`.
class Attention {
 public:
  /// `gemms` works on the same stream and outlives this.
  Attention(cudaStream_t stream, Gemms& gemms, bool deterministic);
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  /// Kernels::attention and attention_backward.
  void forward(const AttentionCall& call);
  void backward(const AttentionBackwardCall& call);

  /// Device memory that cuDNN was given beyond the calls' scratch; grows at the first call of a larger shape.
  std::int64_t workspace_bytes() const;

 private:
  class Paths;
  std::unique_ptr<Paths> paths_;
};

}  // namespace fsdpbench::backend::cuda
