// Promises of the GPU's matrix products and attention beyond the conformance suite, on the fakes of CUDA's
// libraries.

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/cuda/fake/cublaslt/fake_cublaslt.h"
#include "backend/cuda/fake/fake_stream.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/cuda_kernels.h"
#include "backend/cuda/kernels/cudnn_graph.h"
#include "backend/cuda/kernels/gemms.h"
#include "backend/kernels.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {
namespace {

std::byte* bytes(std::vector<float>& v) { return reinterpret_cast<std::byte*>(v.data()); }

/// The fake GPU's memory is the host's.
std::vector<float> ramp(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 37 % 101 - 50) / 7.0F;
  return values;
}

class EmulatedGemms : public testing::Test {
 protected:
  EmulatedGemms() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  ~EmulatedGemms() override {
    fake::reset();
    fake::lt_reset();
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }
  void wait() { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

  cudaStream_t stream_ = nullptr;
};

TEST_F(EmulatedGemms, TakeSlicesOfLargerMatrices) {
  // 3 x 4 by 4 x 2 out of the middle of 5 x 9, 6 x 7 and 4 x 8.
  std::vector<float> a = ramp(45), b = ramp(42), c(32, -1.0F);
  {
    Gemms gemms(stream_);
    gemms.run({.a = bytes(a) + (1 * 9 + 2) * 4,
               .b = bytes(b) + (2 * 7 + 3) * 4,
               .c = bytes(c) + (1 * 8 + 5) * 4,
               .m = 3,
               .n = 2,
               .k = 4,
               .a_stride = 9,
               .b_stride = 7,
               .c_stride = 8});
    wait();
  }
  for (int row = 0; row < 4; ++row) {
    for (int column = 0; column < 8; ++column) {
      float expected = -1.0F;
      if (row >= 1 && column >= 5 && column < 7) {
        expected = 0.0F;
        for (int l = 0; l < 4; ++l) expected += a[row * 9 + 2 + l] * b[(2 + l) * 7 + 3 + column - 5];
      }
      EXPECT_FLOAT_EQ(c[row * 8 + column], expected) << row << ", " << column;
    }
  }
}

TEST_F(EmulatedGemms, OfNothingClearOnlyTheirSlice) {
  std::vector<float> c(12, 7.0F);
  Gemms gemms(stream_);
  gemms.run({.c = bytes(c) + 4, .m = 3, .n = 2, .k = 0, .c_stride = 4});
  wait();
  EXPECT_EQ(c, (std::vector<float>{7, 0, 0, 7, 7, 0, 0, 7, 7, 0, 0, 7}));
  EXPECT_EQ(gemms.workspace_bytes(), 0) << "the library was opened for nothing";
}

TEST_F(EmulatedGemms, MatricesMayLieAtAnyElement) {
  std::vector<float> a = ramp(100), b = ramp(100), c(100);
  Gemms gemms(stream_);
  for (const int shift : {0, 1, 2, 3, 4, 1}) {  // a plan for aligned matrices must not serve the others
    gemms.run({.a = bytes(a) + shift * 4, .b = bytes(b), .c = bytes(c), .m = 4, .n = 4, .k = 4});
    wait();
    float expected = 0.0F;
    for (int l = 0; l < 4; ++l) expected += a[shift + l] * b[l * 4];
    EXPECT_FLOAT_EQ(c[0], expected);
  }
}

// The fake begins sums elsewhere in each call if it was allowed to split them in any order.
TEST_F(EmulatedGemms, AskForReproducibleSums) {
  std::vector<float> a = ramp(64 * 64), first(64 * 64), again(64 * 64);
  for (float& x : a) x = std::exp(x);
  Gemms gemms(stream_);
  for (std::vector<float>* c : {&first, &again}) {
    gemms.run({.a = bytes(a), .b = bytes(a), .c = bytes(*c), .m = 64, .n = 64, .k = 64});
  }
  wait();
  EXPECT_EQ(first, again);
}

// Logits of 50257 words, rows back to back, have no two neighbours that begin at multiples of 16 bytes.
TEST_F(EmulatedGemms, RowsApartFeedTensorCoresWell) {
  std::vector<float> memory(4096);
  Gemms gemms(stream_);
  Gemm gemm{.a = bytes(memory),
            .b = bytes(memory) + 4096,
            .c = bytes(memory) + 8192,
            .m = 4,
            .n = 17,
            .k = 16,
            .transpose_b = true,
            .input_dtype = DType::bf16,
            .output_dtype = DType::bf16};
  gemms.run(gemm);
  EXPECT_EQ(fake::lt_counts().narrow, 1);
  gemm.c_stride = 24;
  gemms.run(gemm);
  wait();
  EXPECT_EQ(fake::lt_counts().narrow, 1);
}

TEST_F(EmulatedGemms, Tf32IsOnlyForThoseWhoAskForIt) {
  std::vector<float> a{1.0F + 1.0F / 65536.0F}, b{1.0F}, c(1);
  const Gemm gemm{.a = bytes(a), .b = bytes(b), .c = bytes(c), .m = 1, .n = 1, .k = 1};
  Gemms exact(stream_);
  exact.run(gemm);
  wait();
  EXPECT_EQ(c[0], a[0]);
  Gemms rounded(stream_, Fp32Products::tf32);
  rounded.run(gemm);
  wait();
  EXPECT_EQ(c[0], 1.0F);
}

TEST_F(EmulatedGemms, WhatTheLibraryRefusesIsNamed) {
  std::vector<float> m(64);
  Gemms gemms(stream_);
  const Gemm mixed{.a = bytes(m),
                   .b = bytes(m),
                   .c = bytes(m),
                   .m = 2,
                   .n = 3,
                   .k = 4,
                   .transpose_b = true,
                   .output_dtype = DType::bf16};
  EXPECT_THAT([&] { gemms.run(mixed); },
              testing::ThrowsMessage<BackendError>(
                  "cuBLASLt cannot multiply fp32 2 x 4 by 4 x 3 (stored transposed) into bf16: the requested "
                  "functionality is not supported (CUBLAS_STATUS_NOT_SUPPORTED)."));
}

TEST_F(EmulatedGemms, WithoutMemoryForTheWorkspaceSayHowMuchWasMissing) {
  std::vector<float> m(4);
  Gemms gemms(stream_);
  const Gemm gemm{.a = bytes(m), .b = bytes(m), .c = bytes(m), .m = 1, .n = 1, .k = 1};
  fake::fail_call("cudaMallocAsync", cudaErrorMemoryAllocation);
  EXPECT_THROW(gemms.run(gemm), ResourceError);
  gemms.run(gemm);  // and can go on when there is some
  wait();
  EXPECT_GE(gemms.workspace_bytes(), 32 << 20);
}

TEST(EmulatedMathLibraries, TellTheirVersions) {
  EXPECT_THAT(math_libraries(), testing::MatchesRegex("cuBLASLt 13\\.[0-9]+\\.[0-9]+, no cuDNN"));
}

TEST(CudnnRule, IsForBf16AndTheHeadSizesOfTheFusedKernels) {
  const auto takes = [](std::int64_t head_dim, DType dtype, int major) {
    return cudnn_takes({2, 64, 4, 2, head_dim, dtype}, major);
  };
  EXPECT_TRUE(takes(64, DType::bf16, 8));
  EXPECT_TRUE(takes(128, DType::bf16, 10));
  EXPECT_TRUE(takes(256, DType::bf16, 9));
  EXPECT_FALSE(takes(256, DType::bf16, 8));
  EXPECT_FALSE(takes(256, DType::bf16, 10));
  EXPECT_FALSE(takes(264, DType::bf16, 9));
  EXPECT_FALSE(takes(20, DType::bf16, 9));
  EXPECT_FALSE(takes(64, DType::f32, 9));
  EXPECT_FALSE(cudnn_takes({0, 64, 4, 2, 64, DType::bf16}, 9));
  EXPECT_FALSE(cudnn_takes({2, 1, 4, 2, 64, DType::bf16}, 9));
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
