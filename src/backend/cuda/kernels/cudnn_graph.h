#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// The tensors of attention and of its backward, as cuDNN is told apart which is which.
enum class AttentionTensor : std::int64_t { q = 1, k, v, out, log_sum_exp, d_out, d_q, d_k, d_v };

struct AttentionArgument {
  AttentionTensor tensor;
  const void* memory;
};

/// One of cuDNN's operation graphs: causal attention of one shape, or its backward, in bf16. Errors are BackendErrors
/// with cuDNN's words and the shape.
class CudnnGraph {
 public:
  /// For GPUs of compute capability `capability` / 10.
  static CudnnGraph forward(const AttentionShape& shape, int capability);
  static CudnnGraph backward(const AttentionShape& shape, int capability, bool deterministic);
  CudnnGraph(CudnnGraph&&) noexcept;
  ~CudnnGraph();

  /// Chooses and compiles kernels for the handle's GPU: hundreds of milliseconds.
  void build(cudnnHandle_t handle);
  std::int64_t workspace_bytes() const;
  void execute(cudnnHandle_t handle, const std::vector<AttentionArgument>& arguments, std::byte* workspace) const;

  /// Graph that cuDNN was asked for, in the words of its front end.
  std::string text() const;
  /// Needs no GPU and no build: throws unless cuDNN has kernels for this graph on a GPU with these properties, in the
  /// JSON form of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION.
  void check_support(const std::string& device_properties);
  /// Builds and compiles plans, so that workspace_bytes() is known. Needs a driver that takes code, and no GPU.
  void build_for(const std::string& device_properties);

 private:
  struct State;
  explicit CudnnGraph(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

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
/// up to 128, or up to 256 on Hopper (9.x).
inline bool cudnn_takes(const AttentionShape& shape, int major) {
  return shape.dtype == DType::bf16 && shape.batch > 0 && shape.seq > 1 && shape.head_dim % 8 == 0 &&
         shape.head_dim <= (major == 9 ? 256 : 128);
}

/// "cuDNN 9.19.0", of the library as loaded, or "no cuDNN".
std::string cudnn_version();

}  // namespace fsdpbench::backend::cuda
