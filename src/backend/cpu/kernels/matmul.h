#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

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

/// Matrix products by oneDNN on the calling thread. Keeps one prepared primitive a shape: preparing takes hundreds
/// of microseconds, finding it again tens of nanoseconds.
class Matmul {
 public:
  Matmul();
  ~Matmul();
  void operator()(const MatmulShape& shape, const void* a, const void* b, void* c);

 private:
  class Primitives;
  std::unique_ptr<Primitives> primitives_;
};

}  // namespace fsdpbench::backend::cpu
