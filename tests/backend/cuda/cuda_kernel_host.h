#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/kernels/cuda_kernels.h"
#include "backend/kernels/kernels_conformance.h"

namespace fsdpbench::backend::cuda {

/// One stream of the first GPU, or of the fake of one, which this is linked to.
class CudaHost final : public KernelHost {
 public:
  CudaHost() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream of the test");
    kernels_ = make_cuda_kernels(stream_);
  }
  ~CudaHost() override {
    cudaStreamSynchronize(stream_);
    kernels_.reset();
    for (void* const memory : memory_) cudaFree(memory);
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }

  std::byte* allocate(std::int64_t bytes) override {
    void* memory = nullptr;
    check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), "memory of the test");
    memory_.push_back(memory);
    return static_cast<std::byte*>(memory);
  }
  void run(const std::function<void(Kernels&)>& work) override {
    work(*kernels_);
    check(cudaStreamSynchronize(stream_), "stream of the test");
    kernels_->deliver_downloads();
  }
  StreamKernels& kernels() { return *kernels_; }
  cudaStream_t stream() const { return stream_; }

  /// Null, with no_kernel_host set, where there is no GPU.
  static std::unique_ptr<KernelHost> make() {
    int gpus = 0;
    const cudaError_t status = cudaGetDeviceCount(&gpus);
    if (status == cudaSuccess && gpus > 0) return std::make_unique<CudaHost>();
    no_kernel_host = status == cudaSuccess ? "there is no GPU" : cudaGetErrorString(status);
    return nullptr;
  }

 private:
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<StreamKernels> kernels_;
  std::vector<void*> memory_;
};

}  // namespace fsdpbench::backend::cuda
