// Quantised numbers on CUDA have the CPU's bits; those are held against a plain reference elsewhere.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "backend/cuda/beside_the_cpu.h"

namespace fsdpbench::backend {
namespace {

const std::vector<Quantization> kFormats{{8, 32}, {8, 4096}, {4, 32}, {4, 96}, {8, 64, true}, {8, 8192, true}};

TEST_F(CudaKernels, QuantiseAsTheCpuDoes) {
  for (const Quantization format : kFormats) {
    for (const std::int64_t count : {1, 31, 97, 1000, 20001}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const std::vector<Array> arrays{{random_elements(count, dtype, 1)},
                                        {Bytes(static_cast<std::size_t>(format.bytes(count)))}};
        for (const float factor : {1.0F, 0.3F, std::numeric_limits<float>::infinity(), 1e-38F}) {
          expect_the_cpus_bits(arrays, {size_of(dtype), 4}, [&](Kernels& kernels, const auto& a) {
            kernels.quantize({a[0], dtype}, a[1], count, factor, format);
          });
        }
      }
    }
  }
}

TEST_F(CudaKernels, TakeQuantisedPartsAsTheCpuDoes) {
  constexpr int kParts = 3;
  for (const Quantization format : kFormats) {
    for (const std::int64_t numel : {5, 131, 5000}) {
      const std::int64_t stride = format.bytes(numel);
      // Made on the CPU, one part behind the other.
      const std::vector<Array> made{{random_elements(kParts * numel, DType::f32, 4)},
                                    {Bytes(static_cast<std::size_t>(kParts * stride))}};
      const Bytes message = on_cpu(made, [&](Kernels& kernels, const auto& a) {
        for (int r = 0; r < kParts; ++r) {
          kernels.quantize({a[0] + r * numel * 4, DType::f32}, a[1] + r * stride, numel, 1.0F, format);
        }
      })[1];
      // Whole parts, and a window of each.
      const std::vector<CopyRun> runs{
          {.source = 0, .target = 0, .rows = kParts, .run = numel, .source_stride = numel, .target_stride = numel + 3},
          {.source = 1,
           .target = kParts * (numel + 3),
           .rows = kParts,
           .run = numel - 2,
           .source_stride = numel,
           .target_stride = numel - 2,
           .zero_fill = 9}};
      const std::int64_t elements = 2 * kParts * (numel + 3) + 9;
      for (const DType to : {DType::f32, DType::bf16}) {
        const std::vector<Array> arrays{{message}, {random_elements(elements, to, 2)}};
        SCOPED_TRACE(fmt::format("{} bits, fp8 {}, blocks of {}, parts of {} to {}", format.bits, format.fp8,
                                 format.block, numel, to_string(to)));
        expect_the_cpus_bits(arrays, {4, size_of(to)}, [&](Kernels& kernels, const auto& a) {
          kernels.dequantize({a[0], numel, stride, format}, {a[1], to}, runs);
        });
        expect_the_cpus_bits(arrays, {4, size_of(to)}, [&](Kernels& kernels, const auto& a) {
          kernels.sum_quantized({a[0], numel, stride, format}, kParts, 0.3F, {a[1], to});
        });
      }
      expect_the_cpus_bits({{message}, {Bytes(static_cast<std::size_t>(stride))}}, {4, 4},
                           [&](Kernels& kernels, const auto& a) {
                             kernels.requantize_sum({a[0], numel, stride, format}, kParts, a[1]);
                           });
    }
  }
}

}  // namespace
}  // namespace fsdpbench::backend
