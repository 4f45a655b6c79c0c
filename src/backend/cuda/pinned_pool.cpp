#include "backend/cuda/pinned_pool.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <functional>

#include "backend/cuda/check.h"
#include "base/bytes.h"
#include "base/error.h"

namespace fsdpbench::backend::cuda {

PinnedMemory::PinnedMemory(int rank, std::int64_t bytes, const std::string& purpose) {
  void* memory = nullptr;
  const cudaError_t status = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
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

PinnedPool::PinnedPool(const LaneStreams& streams, int rank, std::int64_t bytes, bool poison)
    : rank_(rank),
      poison_(poison),
      memory_(rank, round_up(bytes, LanePool::kGranule), "what fsdp.cpu_offload keeps there"),
      poisoned_(streams) {}

std::byte* PinnedPool::allocate(std::int64_t bytes, MemoryCategory category, Lane lane, const LaneOrder& order) {
  const auto all = static_cast<std::int64_t>(region().size());
  const auto refuse = [&] {
    throw ResourceError(fmt::format(
        "rank {} cannot allocate {} of pinned host memory for {}: {} are in use, and {} were set aside", rank_,
        format_bytes(bytes), to_string(category), format_bytes(pool_.statistics().live_total), format_bytes(all)));
  };
  if (bytes > all) refuse();
  const std::int64_t offset = pool_.allocate(bytes, category, lane, order);
  const std::int64_t size = pool_.size_of_block(offset);
  if (offset + size > all) {
    pool_.free(offset, lane, order);
    refuse();
  }
  std::byte* const memory = region().data() + offset;
  if (poison_) poisoned_.wait(lane, memory, size);
  return memory;
}

bool PinnedPool::contains(const std::byte* memory) const {
  const std::span<std::byte> all = region();
  return std::greater_equal<>()(memory, all.data()) && std::less<>()(memory, all.data() + all.size());
}

void PinnedPool::free(std::byte* memory, Lane lane, const LaneOrder& order) {
  const std::int64_t offset = memory - region().data();
  const std::int64_t bytes = pool_.size_of_block(offset);
  pool_.free(offset, lane, order);
  if (poison_) poisoned_.fill(memory, bytes, lane);
}

Facts PinnedPool::facts() const {
  const std::optional<int> node = memory_.numa_node();
  return {{"pinned host memory", format_bytes(static_cast<std::int64_t>(region().size())) +
                                     (node ? fmt::format(", its first page on NUMA node {}", *node) : "")}};
}

}  // namespace fsdpbench::backend::cuda
