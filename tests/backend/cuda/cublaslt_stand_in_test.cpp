// The stand-in for cuBLASLt itself: that it refuses what cuBLASLt's documentation forbids.

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "backend/cuda/fake/fake_stream.h"
#include "backend/cuda/kernels/cublaslt.h"

namespace fsdpbench::backend::cuda {
namespace {

constexpr std::int64_t kSize = 128;

/// c = a b of square fp32 matrices, by an algorithm that wants a workspace.
class CublasLtStandIn : public testing::Test {
 protected:
  CublasLtStandIn() {
    const LtPreference preference =
        make_lt_preference({.workspace_bytes = 1 << 20, .alignment_a = 16, .alignment_b = 16, .alignment_c = 16});
    int found = 0;
    EXPECT_EQ(cublasLtMatmulAlgoGetHeuristic(handle_.get(), matmul_.get(), layout_.get(), layout_.get(), layout_.get(),
                                             layout_.get(), preference.get(), 1, &best_, &found),
              CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(found, 1);
    EXPECT_GT(best_.workspaceSize, 0U);
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
    cudaMalloc(&memory_, 3 * kBytes);
    cudaMalloc(&workspace_, best_.workspaceSize + 256);
    cudaMemset(memory_, 0, 3 * kBytes);
  }
  ~CublasLtStandIn() override {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
    cudaFree(memory_);
    cudaFree(workspace_);
  }

  float* matrix(int index) const { return static_cast<float*>(memory_) + index * kSize * kSize; }
  cublasStatus_t multiply(void* workspace, std::size_t bytes, const float* a = nullptr) const {
    const float one = 1.0F;
    const float none = 0.0F;
    return cublasLtMatmul(handle_.get(), matmul_.get(), &one, a != nullptr ? a : matrix(0), layout_.get(), matrix(1),
                          layout_.get(), &none, matrix(2), layout_.get(), matrix(2), layout_.get(), &best_.algo,
                          workspace, bytes, stream_);
  }

  static constexpr std::size_t kBytes = kSize * kSize * sizeof(float);
  LtHandle handle_ = make_lt_handle();
  LtMatmul matmul_ = make_lt_matmul(CUBLAS_COMPUTE_32F, false, false);
  LtLayout layout_ = make_lt_layout(CUDA_R_32F, kSize, kSize, kSize);
  cublasLtMatmulHeuristicResult_t best_{};
  cudaStream_t stream_ = nullptr;
  void* memory_ = nullptr;
  void* workspace_ = nullptr;
};

TEST_F(CublasLtStandIn, WantsItsWorkspaceWholeAlignedAndApart) {
  EXPECT_EQ(multiply(workspace_, best_.workspaceSize), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(workspace_, best_.workspaceSize - 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(nullptr, best_.workspaceSize), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(static_cast<std::byte*>(workspace_) + 16, best_.workspaceSize), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(matrix(1), best_.workspaceSize), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtStandIn, WantsWhatItsAlgorithmWasPromised) {
  EXPECT_EQ(multiply(workspace_, best_.workspaceSize, matrix(0) + 1), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(CublasLtStandIn, AWorkspaceThatOthersWriteToGivesNoNumbers) {
  const LtPreference none =
      make_lt_preference({.workspace_bytes = 0, .alignment_a = 16, .alignment_b = 16, .alignment_c = 16});
  cublasLtMatmulHeuristicResult_t without{};
  int found = 0;
  cublasLtMatmulAlgoGetHeuristic(handle_.get(), matmul_.get(), layout_.get(), layout_.get(), layout_.get(),
                                 layout_.get(), none.get(), 1, &without, &found);
  EXPECT_EQ(without.workspaceSize, 0U) << "an algorithm that fits the wish";
  cudaStream_t other = nullptr;
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  std::atomic<bool> writing{true};
  fake::run_on_stream(other, [&] {
    for (unsigned char mark = 1; writing; ++mark) std::memset(workspace_, mark, best_.workspaceSize);
  });
  bool spoiled = false;
  for (int tries = 0; tries < 1000 && !spoiled; ++tries) {  // on a busy machine the other's thread may not run for long
    EXPECT_EQ(multiply(workspace_, best_.workspaceSize), CUBLAS_STATUS_SUCCESS);
    cudaStreamSynchronize(stream_);
    spoiled = std::isnan(matrix(2)[0]);
  }
  writing = false;
  cudaStreamSynchronize(other);
  EXPECT_TRUE(spoiled);
  cudaStreamDestroy(other);
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
