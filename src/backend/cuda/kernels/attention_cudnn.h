#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// Attention by cuDNN's fused kernels on one stream of the current device; calls only enqueue. The library's handle,
/// and plans for each new shape, are made at first use. If it shall be `deterministic`, the backward is asked for sums
/// in a fixed order, which takes longer and a larger workspace. Throws BackendError with the library's words and the
/// shape.
class CudnnAttention {
 public:
  CudnnAttention(cudaStream_t stream, bool deterministic);
  ~CudnnAttention();

  /// Whether the kernels are for such shapes: see cudnn_takes. Always false in a build without cuDNN.
  bool takes(const AttentionShape& shape) const;

  /// The calls' scratch is not used.
  void forward(const AttentionCall& call);
  void backward(const AttentionBackwardCall& call);

  std::int64_t workspace_bytes() const;

 private:
  class Plans;
  std::unique_ptr<Plans> plans_;
};

/// The rule for GPUs of compute capability `major`.x: bf16, more than one token, a head size that is a multiple of 8
/// up to 128, or up to 256 on Hopper (9.x), and tokens that begin at multiples of 16 bytes.
inline bool cudnn_takes(const AttentionShape& shape, int major) {
  return shape.dtype == DType::bf16 && shape.batch > 0 && shape.seq > 1 && shape.head_dim % 8 == 0 &&
         shape.query_row() % 8 == 0 && shape.key_row() % 8 == 0 && shape.head_dim <= (major == 9 ? 256 : 128);
}

/// "cuDNN 9.19.0", of the library as loaded, or "no cuDNN".
std::string cudnn_version();

}  // namespace fsdpbench::backend::cuda
