#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "backend/cuda/kernels/pinned_ranges.h"

namespace fsdpbench::backend::cuda {

/// Copies between host memory and the device that truly only enqueue. What is page-locked (PinnedRanges) is copied from
/// and to where it lies, at once and whole. Pageable memory goes through pinned slots, which are reused once the copy
/// through them is done; it is written by deliver() alone, so that nothing is written behind the back of a caller who
/// gave up waiting.
class Transfers {
 public:
  /// `stream` outlives this and is idle when it dies. `while_waiting` is called at least every 10 ms where a copy
  /// larger than all slots makes the host wait; it may throw. `pinned` (null: nothing is) outlives this.
  Transfers(cudaStream_t stream, std::function<void()> while_waiting, const PinnedRanges* pinned);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// `source` may be reused at once; if it is page-locked, when the stream has come so far.
  void upload(const void* source, std::byte* target, std::int64_t bytes);
  /// `target` is written by the first deliver() after the stream has come so far; if it is page-locked, by the stream.
  void download(const std::byte* source, void* target, std::int64_t bytes);
  /// Hands over what has arrived. Never waits.
  void deliver();

 private:
  struct Slot;

  /// A slot that nothing uses any more.
  Slot& free_slot();
  void mark_busy(Slot& slot);
  bool is_pinned(const void* host, std::int64_t bytes) const {
    return pinned_ != nullptr && pinned_->cover(host, bytes);
  }

  cudaStream_t stream_;
  std::function<void()> while_waiting_;
  const PinnedRanges* pinned_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::deque<Slot*> arriving_;  // downloads not yet handed over, oldest first
};

}  // namespace fsdpbench::backend::cuda
