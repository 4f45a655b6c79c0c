#include "backend/cuda/pinned_memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/cuda/check.h"
#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

PinnedMemory::PinnedMemory(int rank, std::int64_t bytes, const std::string& purpose) {
  void* memory = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocPortable | cudaHostAllocMapped);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // told by the exception; nobody else shall find it
    throw ResourceError(
        fmt::format("rank {} cannot have {} of page-locked host memory for {}: this host has too little that is free, "
                    "or locks no more. Use fewer ranks on this host, a smaller model, or memory that is not shared "
                    "with others",
                    rank, format_bytes(bytes), purpose));
  }
  check(status, "page-locked host memory for " + purpose);
  memory_ = {static_cast<std::byte*>(memory), static_cast<std::size_t>(bytes)};
}

PinnedMemory::~PinnedMemory() {
  if (!memory_.empty()) cudaFreeHost(memory_.data());  // a failure was or will be reported by the streams
}

std::optional<int> PinnedMemory::numa_node() const {
  int node = 0;
  if (memory_.empty() ||
      syscall(SYS_get_mempolicy, &node, nullptr, 0UL, memory_.data(), MPOL_F_NODE | MPOL_F_ADDR) != 0) {
    return std::nullopt;
  }
  return node;
}

}  // namespace fsdpbench::backend::cuda
