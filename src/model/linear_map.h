#pragma once

#include <cstdint>

#include "backend/kernels.h"
#include "base/bytes.h"

namespace fsdpbench::model {

/// y = x * w^T without bias: x [rows, in], w [out, in], y [rows, out], all of one dtype.
struct LinearMap {
  std::int64_t rows = 0, in = 0, out = 0;
  DType dtype = DType::f32;

  /// Of the forward; the backward takes twice as many.
  double flops() const { return 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out); }
  /// Of x, and of y. Throw ResourceError if that is more than 8 EiB.
  std::int64_t input_bytes() const { return checked_product(rows, in, size_of(dtype)); }
  std::int64_t output_bytes() const { return checked_product(rows, out, size_of(dtype)); }

  /// y [rows, out] = x [rows, in] times the transpose of w [out, in]; y is overwritten.
  void forward(backend::Kernels& kernels, const std::byte* x, const std::byte* w, std::byte* y) const {
    kernels.gemm({.a = x,
                  .b = w,
                  .c = y,
                  .m = rows,
                  .n = out,
                  .k = in,
                  .transpose_b = true,
                  .input_dtype = dtype,
                  .output_dtype = dtype});
  }
  /// d_x = d_y * w, or += if `add`.
  void input_gradient(backend::Kernels& kernels, const std::byte* d_y, const std::byte* w, std::byte* d_x,
                      bool add = false) const {
    kernels.gemm({.a = d_y,
                  .b = w,
                  .c = d_x,
                  .m = rows,
                  .n = in,
                  .k = out,
                  .input_dtype = dtype,
                  .output_dtype = dtype,
                  .beta = add ? 1.0F : 0.0F});
  }
  /// d_w = d_y^T * x.
  void weight_gradient(backend::Kernels& kernels, const std::byte* d_y, const std::byte* x, std::byte* d_w) const {
    kernels.gemm({.a = d_y,
                  .b = x,
                  .c = d_w,
                  .m = out,
                  .n = in,
                  .k = rows,
                  .transpose_a = true,
                  .input_dtype = dtype,
                  .output_dtype = dtype});
  }
};

}  // namespace fsdpbench::model
