#include "backend/cuda/fixed_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/check.h"
#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

FixedMemory::FixedMemory(const LaneStreams& streams, std::int64_t bytes, bool poison)
    : bytes_(bytes), poison_(poison), poisoned_(streams) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw ResourceError(fmt::format("the GPU has not the {} of memory that this run needs", format_bytes(bytes)));
  }
  check(status, "cudaMalloc");
  memory_ = static_cast<std::byte*>(memory);
}

FixedMemory::~FixedMemory() { cudaFree(memory_); }

std::byte* FixedMemory::allocate(std::int64_t offset, const LanePool::CategoryPlace& /*place*/, std::int64_t bytes,
                                 Lane lane) {
  if (offset + bytes > bytes_) return nullptr;
  if (poison_) poisoned_.wait(lane, memory_ + offset, bytes);
  return memory_ + offset;
}

void FixedMemory::free(std::byte* memory, std::int64_t bytes, Lane lane) {
  if (poison_) poisoned_.fill(memory, bytes, lane);
}

Facts FixedMemory::facts() const {
  return {
      {"pool reserved at most", fmt::format("{}, one region, all of it before the first op", format_bytes(bytes_))}};
}

}  // namespace fsdpbench::backend::cuda
