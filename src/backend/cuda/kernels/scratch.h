#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace fsdpbench::backend::cuda {

/// Device memory for what kernels of one stream keep between each other. It grows when more is asked for than ever
/// before, in the order of the stream, so that nothing waits; it never shrinks.
class Scratch {
 public:
  /// `stream` outlives this.
  explicit Scratch(cudaStream_t stream) : stream_(stream) {}
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// At least so many bytes, aligned to 256. What was there before is undefined if `grows(bytes)`. Throws
  /// ResourceError.
  std::byte* get(std::int64_t bytes);
  bool grows(std::int64_t bytes) const { return bytes > bytes_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  cudaStream_t stream_;
  std::byte* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace fsdpbench::backend::cuda
