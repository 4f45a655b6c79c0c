#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/scratch.h"
#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// Rotary embedding, see backend/kernels.h. Keeps the cosines and sines of the longest sequence so far on the device.
class Rotary {
 public:
  explicit Rotary(cudaStream_t stream) : stream_(stream), table_(stream) {}

  void operator()(const AttentionShape& shape, std::byte* q, std::byte* k, float theta, bool inverse);
  std::int64_t bytes() const { return table_.bytes(); }

 private:
  void prepare(std::int64_t seq, std::int64_t half, float theta);

  cudaStream_t stream_;
  Scratch table_;  // f32 [2, seq, half]: cosines, sines
  std::int64_t seq_ = 0;
  std::int64_t half_ = 0;
  float theta_ = 0.0F;
};

}  // namespace fsdpbench::backend::cuda
