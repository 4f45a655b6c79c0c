#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/kernels.h"
#include "base/dtype.h"

namespace fsdpbench::backend::cpu {

/// c = alpha * op(a) * op(b) + beta * c on row-major matrices whose rows lie `*_stride` elements apart; op(a) is
/// m x k, op(b) k x n, c m x n, none of them 0.
struct MatmulShape {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool transpose_a = false, transpose_b = false;
  DType input = DType::f32, output = DType::f32;
  float alpha = 1.0F;
  float beta = 0.0F;  ///< 0 or 1
  bool operator==(const MatmulShape&) const = default;
};

/// For a product whose strides are written out (Gemm::with_strides()).
inline MatmulShape matmul_shape(const Gemm& gemm) {
  return {.m = gemm.m,
          .n = gemm.n,
          .k = gemm.k,
          .a_stride = gemm.a_stride,
          .b_stride = gemm.b_stride,
          .c_stride = gemm.c_stride,
          .transpose_a = gemm.transpose_a,
          .transpose_b = gemm.transpose_b,
          .input = gemm.input_dtype,
          .output = gemm.output_dtype,
          .alpha = gemm.alpha,
          .beta = gemm.beta};
}

/// Matrix products by oneDNN on the calling thread. Keeps one prepared primitive a shape: preparing takes hundreds
/// of microseconds, finding it again tens of nanoseconds.
///
/// bf16 operands on a processor that cannot multiply them are widened to fp32, panel by panel, and multiplied there,
/// which is several times as fast as what oneDNN does with them. Their products are exact in fp32, sums are fp32 either
/// way, and the result is rounded once: both ways agree within the rounding of an fp32 sum of k products, and the
/// widened one has the bits of the fp32 product of the widened operands as long as these fit into one panel. On one
/// machine the same shape always goes the same way, so equal inputs still give equal bits.
class Matmul {
 public:
  enum class Bf16 { multiplied, widened };
  /// Variant that is faster on this processor, or as oneDNN is told to see it (ONEDNN_MAX_CPU_ISA).
  static Bf16 faster();

  explicit Matmul(Bf16 bf16 = faster());
  ~Matmul();
  /// Throws BackendError if oneDNN cannot.
  void operator()(const MatmulShape& shape, const void* a, const void* b, void* c);

 private:
  class Primitives;
  class Widened;
  std::unique_ptr<Primitives> primitives_;
  std::unique_ptr<Widened> widened_;  // null: bf16 is multiplied as it is
};

}  // namespace fsdpbench::backend::cpu
