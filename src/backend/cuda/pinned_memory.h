#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace fsdpbench::backend::cuda {

/// Page-locked host memory near the calling thread, at one address for the host and for every GPU (mapped, portable):
/// copies go at the bus's rate and beside all else, kernels and NCCL may read and write a few numbers there.
class PinnedMemory {
 public:
  /// Throws ResourceError, which says what `rank` wanted it for, if the system does not lock so much.
  PinnedMemory(int rank, std::int64_t bytes, const std::string& purpose);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::span<std::byte> bytes() const { return memory_; }
  /// It stays until the process ends: a GPU that hangs may still write there, and freeing would wait for it.
  void abandon() { memory_ = {}; }
  /// The NUMA node that its first page lies on; absent: the system does not tell.
  std::optional<int> numa_node() const;

 private:
  std::span<std::byte> memory_;
};

}  // namespace fsdpbench::backend::cuda
