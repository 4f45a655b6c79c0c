#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// How products of f32 matrices are multiplied; sums are f32 in both.
enum class Fp32Products {
  exact,  ///< in f32
  tf32,   ///< factors rounded to TF32 (10 bits of mantissa) for the tensor cores
};

/// How products are multiplied.
struct GemmOptions {
  Fp32Products fp32_products = Fp32Products::exact;
  /// A new shape's first product is multiplied by the best eight of cuBLASLt's algorithms, and the fastest is kept;
  /// else by its first. Another run, and another rank, may then choose another one, which rounds otherwise.
  bool fastest = false;
  std::function<void()> while_waiting = {};  ///< called at least every 10 ms while the times are waited for; may throw
};

/// Matrix products by cuBLASLt on one stream of the current device. Calls only enqueue, but for the first of a shape if
/// the fastest algorithm is wanted. The library's handle, the workspace and a plan for each new shape are made at first
/// use. The same product of matrices with the same alignment (up to 16 bytes) gives the same bits each time. Throws
/// BackendError with the library's word and the shape.
class Gemms {
 public:
  explicit Gemms(cudaStream_t stream, GemmOptions options = {});
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
