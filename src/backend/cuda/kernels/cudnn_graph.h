#pragma once

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

  /// What cuDNN was asked for, in the words of its front end.
  std::string text() const;
  /// Needs no GPU and no build: throws unless cuDNN has kernels for this graph on a GPU with these properties, in the
  /// JSON form of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION.
  void check_support(const std::string& device_properties);
  /// The same, and compiles them, so that workspace_bytes() is known. Needs a driver that takes code, and no GPU.
  void build_for(const std::string& device_properties);

 private:
  struct State;
  explicit CudnnGraph(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fsdpbench::backend::cuda
