#pragma once

// Device memory, and the time of what one stream of a GPU does.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "backend/cuda/check.h"
#include "base/dtype.h"

namespace fsdpbench::bench {

class Memory {
 public:
  explicit Memory(std::int64_t bytes) {
    backend::cuda::check(cudaMalloc(&address_, static_cast<std::size_t>(bytes)), "memory");
  }
  ~Memory() { cudaFree(address_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(address_); }

 private:
  void* address_ = nullptr;
};

/// bf16 normal values: zeros would need less power, and so run faster, than real matrices.
inline std::unique_ptr<Memory> random_matrix(std::int64_t count) {
  constexpr std::int64_t kBlock = 1 << 20;
  static const std::vector<std::uint16_t> block = [] {
    std::mt19937 generator(7);
    std::normal_distribution<float> normal;
    std::vector<std::uint16_t> values(kBlock);
    for (std::uint16_t& value : values) value = float_to_bf16(normal(generator));
    return values;
  }();
  auto matrix = std::make_unique<Memory>(count * 2);
  for (std::int64_t at = 0; at < count; at += kBlock) {
    backend::cuda::check(cudaMemcpy(matrix->data() + at * 2, block.data(),
                                    static_cast<std::size_t>(std::min(kBlock, count - at) * 2), cudaMemcpyHostToDevice),
                         "filling a matrix");
  }
  return matrix;
}

/// Seconds of one call, from events around some of them.
class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    backend::cuda::check(cudaEventCreate(&begin_), "event");
    backend::cuda::check(cudaEventCreate(&end_), "event");
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  double seconds(const std::function<void()>& call, int calls = 5) const {
    backend::cuda::check(cudaEventRecord(begin_, stream_), "event");
    for (int i = 0; i < calls; ++i) call();
    backend::cuda::check(cudaEventRecord(end_, stream_), "event");
    backend::cuda::check(cudaEventSynchronize(end_), "event");
    float milliseconds = 0;
    backend::cuda::check(cudaEventElapsedTime(&milliseconds, begin_, end_), "event");
    return milliseconds * 1e-3 / calls;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// The upper one of an even number.
inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

}  // namespace fsdpbench::bench
