#pragma once

#include <cstdint>

#include "backend/kernels.h"
#include "base/bytes.h"

namespace fsdpbench::model {

/// Elements from one row of logits to the next: all rows begin at multiples of 16 bytes, without which GPUs have no
/// fast matrix products of a vocabulary like 50257. Where several ranks split the vocabulary rows lie back to back, as
/// the kernels of a part have them.
inline std::int64_t logits_stride(std::int64_t vocab, DType dtype, int tensor) {
  return tensor > 1 ? vocab : round_up(vocab, 16 / size_of(dtype));
}

/// y = x * w^T without bias: x [rows, in], w [out, in], y [rows, out], all of one dtype. Rows of y, and of d_y, lie
/// `out_stride` elements apart; those of the others back to back.
struct LinearMap {
  std::int64_t rows = 0, in = 0, out = 0;
  DType dtype = DType::f32;
  std::int64_t out_stride = out;

  /// Of the forward; the backward takes twice as many.
  double flops() const { return 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out); }
  /// Of x, and of y. Throw ResourceError if that is more than 8 EiB.
  std::int64_t input_bytes() const { return checked_product(rows, in, size_of(dtype)); }
  std::int64_t output_bytes() const { return checked_product(rows, out_stride, size_of(dtype)); }

  /// y [rows, out] = x [rows, in] times the transpose of w [out, in], plus `residual`, stored like y, if there is one.
  void forward(backend::Kernels& kernels, const std::byte* x, const std::byte* w, std::byte* y,
               const std::byte* residual = nullptr) const {
    kernels.gemm({.a = x,
                  .b = w,
                  .c = y,
                  .addend = residual,
                  .m = rows,
                  .n = out,
                  .k = in,
                  .transpose_b = true,
                  .input_dtype = dtype,
                  .output_dtype = dtype,
                  .beta = residual != nullptr ? 1.0F : 0.0F,
                  .c_stride = out_stride});
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
                  .beta = add ? 1.0F : 0.0F,
                  .a_stride = out_stride});
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
                  .output_dtype = dtype,
                  .a_stride = out_stride});
  }
};

}  // namespace fsdpbench::model
