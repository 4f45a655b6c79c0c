#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// Arithmetic of products of f32 matrices; sums are f32 in both.
enum class Fp32Products {
  exact,  ///< in f32
  tf32,   ///< factors rounded to TF32 (10 bits of mantissa) for the tensor cores
};

/// Matrix products by cuBLASLt on one stream of the current device. Calls only enqueue. The library's handle, the
/// workspace and a plan for each new shape, with the first algorithm that cuBLASLt names, are made at first use. The
/// same product of matrices with the same alignment (up to 16 bytes) gives the same bits each time. Throws BackendError
/// with the library's word and the shape.
class Gemms {
 public:
  explicit Gemms(cudaStream_t stream, Fp32Products fp32_products = Fp32Products::exact);
  ~Gemms();
  Gemms(const Gemms&) = delete;
  Gemms& operator=(const Gemms&) = delete;

  void run(const Gemm& gemm);

  /// Device memory held: 32 MiB once a product was computed, 64 MiB on GPUs from compute capability 9.0 on.
  std::int64_t workspace_bytes() const;

 private:
  class Library;
  std::unique_ptr<Library> library_;
};

}  // namespace fsdpbench::backend::cuda
