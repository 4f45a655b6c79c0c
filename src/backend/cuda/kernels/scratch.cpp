#include "backend/cuda/kernels/scratch.h"

#include <string>

#include "backend/cuda/check.h"
#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

Scratch::~Scratch() {
  if (memory_ != nullptr) cudaFreeAsync(memory_, stream_);  // a failure was or will be reported by the stream
}

std::byte* Scratch::get(std::int64_t bytes) {
  constexpr std::int64_t kStep = 64 << 10;
  if (!grows(bytes)) return memory_;
  if (memory_ != nullptr) {
    check(cudaFreeAsync(memory_, stream_), "scratch of kernels");
    memory_ = nullptr;
    bytes_ = 0;
  }
  const std::int64_t wanted = round_up(bytes, kStep);
  void* memory = nullptr;
  check(cudaMallocAsync(&memory, wanted, stream_), std::to_string(wanted) + " bytes of scratch for kernels");
  memory_ = static_cast<std::byte*>(memory);
  bytes_ = wanted;
  return memory_;
}

}  // namespace fsdpbench::backend::cuda
