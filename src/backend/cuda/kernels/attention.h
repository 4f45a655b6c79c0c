#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/cuda/kernels/gemms.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// Attention on one stream; arguments as in backend/kernels.h. Owns the library's handle, its workspace and the plans
/// of the shapes seen so far, all made at first use.
class Attention {
 public:
  /// `gemms` is on the same stream and outlives this.
  Attention(cudaStream_t stream, Gemms& gemms);
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  void forward(const AttentionShape& shape, const std::byte* q, const std::byte* k, const std::byte* v, std::byte* out,
               float* log_sum_exp, std::byte* scratch);
  void backward(const AttentionShape& shape, const std::byte* d_out, const std::byte* q, const std::byte* k,
                const std::byte* v, const std::byte* out, const float* log_sum_exp, std::byte* d_q, std::byte* d_k,
                std::byte* d_v, std::byte* scratch);
  /// Device memory held beside the caller's.
  std::int64_t workspace_bytes() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace fsdpbench::backend::cuda
