#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/kernels.h"
#include "base/bytes.h"
#include "model/model.h"

namespace fsdpbench::model {

/// Elements from one row of logits to the next: all rows begin at multiples of 16 bytes, without which GPUs have no
/// fast matrix products of a vocabulary like 50257. Where several ranks split the vocabulary rows lie back to back, as
/// the kernels of a part have them.
inline std::int64_t logits_stride(std::int64_t vocab, DType dtype, int tensor) {
  return tensor > 1 ? vocab : round_up(vocab, 16 / size_of(dtype));
}

/// y = x * w^T without bias: x [rows, in], w [out, in], y [rows, out], all of one dtype but the weight's gradient. Rows
/// of y, and of d_y, lie `out_stride` elements apart; those of the others back to back.
struct LinearMap {
  std::int64_t rows = 0, in = 0, out = 0;
  DType dtype = DType::f32;
  DType gradient_dtype = dtype;
  std::int64_t out_stride = out;

  /// FLOPs of the forward; the backward takes twice as many.
  double flops() const { return 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out); }
  /// Bytes of x, and of y. Both throw ResourceError beyond 8 EiB.
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
                  .output_dtype = gradient_dtype,
                  .a_stride = out_stride});
  }
};

/// N maps of one input: each a product with a weight and a tensor of its own.
template <std::size_t N>
class MapsOfOneInput {
 public:
  using Tensors = std::array<std::byte*, N>;

  MapsOfOneInput() = default;
  MapsOfOneInput(std::int64_t rows, std::int64_t in, const std::array<std::int64_t, N>& outs, DType dtype,
                 DType gradient_dtype) {
    for (const std::int64_t out : outs) products_.push_back({rows, in, out, dtype, gradient_dtype, out});
  }

  const std::vector<LinearMap>& products() const { return products_; }
  double flops() const {
    double flops = 0;
    for (const LinearMap& product : products_) flops += product.flops();
    return flops;
  }
  std::int64_t input_bytes() const { return products_.front().input_bytes(); }

  /// The outputs, or their gradients.
  Tensors take(Arena& arena) const {
    Tensors tensors{};
    for (std::size_t map = 0; map < N; ++map) tensors[map] = arena.take(products_[map].output_bytes());
    return tensors;
  }

  /// `weights`: of a module's parameters or gradients the first of these, and those behind it.
  void forward(backend::Kernels& kernels, const std::byte* x, std::span<const std::byte* const> weights,
               const Tensors& y) const {
    for (std::size_t i = 0; i < products_.size(); ++i) {
      products_[i].forward(kernels, x, weights[i], y[i]);
    }
  }
  void weight_gradient(backend::Kernels& kernels, const Tensors& d_y, const std::byte* x,
                       std::span<std::byte* const> d_weights) const {
    for (std::size_t i = 0; i < products_.size(); ++i) {
      products_[i].weight_gradient(kernels, d_y[i], x, d_weights[i]);
    }
  }
  void input_gradient(backend::Kernels& kernels, const Tensors& d_y, std::span<const std::byte* const> weights,
                      std::byte* d_x) const {
    for (std::size_t i = 0; i < products_.size(); ++i) {
      products_[i].input_gradient(kernels, d_y[i], weights[i], d_x, i > 0);
    }
  }

 private:
  std::vector<LinearMap> products_;
};

}  // namespace fsdpbench::model
