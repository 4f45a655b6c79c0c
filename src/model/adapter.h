#pragma once

#include <cstddef>
#include <span>

#include "backend/kernels.h"
#include "model/linear_map.h"

namespace fsdpbench::model {

/// What model.lora_rank adds beside a product y = x * w^T (Hu et al. 2021, arXiv:2106.09685): y += scale * x * down^T *
/// up^T, with down [rank, in] and up [out, rank]. `inner` [rows, rank] is what lies between the two, with the scale;
/// its gradient d_inner has the scale, too, so that it goes on as it is.
struct Adapter {
  LinearMap down, up;
  float scale = 1;

  Adapter(const LinearMap& beside, std::int64_t rank, float factor)
      : down{beside.rows, beside.in, rank, beside.dtype, beside.gradient_dtype},
        up{beside.rows, rank, beside.out, beside.dtype, beside.gradient_dtype, beside.out_stride},
        scale(factor) {}

  double flops() const { return down.flops() + up.flops(); }
  std::int64_t inner_bytes() const { return up.input_bytes(); }

  /// `weights`: down and up.
  void to_inner(backend::Kernels& kernels, const std::byte* x, std::span<const std::byte* const> weights,
                std::byte* inner) const {
    kernels.gemm({.a = x,
                  .b = weights[0],
                  .c = inner,
                  .m = down.rows,
                  .n = down.out,
                  .k = down.in,
                  .transpose_b = true,
                  .input_dtype = down.dtype,
                  .output_dtype = down.dtype,
                  .alpha = scale});
  }
  void add(backend::Kernels& kernels, const std::byte* inner, std::span<const std::byte* const> weights,
           std::byte* y) const {
    kernels.gemm({.a = inner,
                  .b = weights[1],
                  .c = y,
                  .m = up.rows,
                  .n = up.out,
                  .k = up.in,
                  .transpose_b = true,
                  .input_dtype = up.dtype,
                  .output_dtype = up.dtype,
                  .beta = 1.0F,
                  .c_stride = up.out_stride});
  }
  /// The gradients of `inner` and of up. `gradients`: of down and up.
  void inner_gradient(backend::Kernels& kernels, const std::byte* d_y, const std::byte* inner,
                      std::span<const std::byte* const> weights, std::span<std::byte* const> gradients,
                      std::byte* d_inner) const {
    up.weight_gradient(kernels, d_y, inner, gradients[1]);
    kernels.gemm({.a = d_y,
                  .b = weights[1],
                  .c = d_inner,
                  .m = up.rows,
                  .n = up.in,
                  .k = up.out,
                  .input_dtype = up.dtype,
                  .output_dtype = up.dtype,
                  .alpha = scale,
                  .a_stride = up.out_stride});
  }
  /// d_x += what comes through the adapter.
  void input_gradient(backend::Kernels& kernels, const std::byte* d_inner, std::span<const std::byte* const> weights,
                      std::byte* d_x) const {
    down.input_gradient(kernels, d_inner, weights[0], d_x, true);
  }
  void down_gradient(backend::Kernels& kernels, const std::byte* d_inner, const std::byte* x,
                     std::span<std::byte* const> gradients) const {
    down.weight_gradient(kernels, d_inner, x, gradients[0]);
  }
};

}  // namespace fsdpbench::model
