#pragma once

#include <cuda_runtime_api.h>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// Page-locked host memory of one rank: what copies may read and write where it lies. Used by the rank's host thread.
class PinnedRanges {
 public:
  /// `memory` stays page-locked as long as copies are asked for.
  void add(std::span<const std::byte> memory) { ranges_.push_back(memory); }
  /// Whether all of it lies in one of them.
  bool cover(const void* first, std::int64_t bytes) const {
    const auto* const begin = static_cast<const std::byte*>(first);
    for (const std::span<const std::byte> range : ranges_) {
      const std::byte* const end = range.data() + range.size();
      if (std::greater_equal<>()(begin, range.data()) && std::less_equal<>()(begin, end) && bytes <= end - begin) {
        return true;
      }
    }
    return false;
  }

 private:
  std::vector<std::span<const std::byte>> ranges_;
};

/// Elements of an array that lie on 16-byte boundaries: first, first + period, …
struct Boundaries {
  std::int64_t period = 1;
  std::int64_t first = 0;

  bool has(std::int64_t element) const { return element % period == first; }
};
/// The boundaries of an array of elements of `element_bytes` (2 or 4) at this address.
Boundaries boundaries(const void* array, std::int64_t element_bytes);

/// A part of copy_runs: `rows` rows of `units` units each. A unit is a pack, on 16-byte boundaries, or one element.
struct CopyPiece {
  std::int64_t source = 0;  ///< first element
  std::int64_t target = 0;
  std::int64_t source_stride = 0;  ///< elements between row starts
  std::int64_t target_stride = 0;
  std::int64_t rows = 1;
  std::int64_t units = 0;  ///< a row
  std::int64_t first_tile = 0;
  std::int32_t tile_rows = 1;  ///< rows a tile takes; if 1, it takes kTileUnits of a row or what is left of it
  bool packed = false;
  bool zero = false;  ///< there is no source: the target becomes 0

  std::int64_t tiles() const { return tile_rows == 1 ? rows * tiles_a_row() : (rows + tile_rows - 1) / tile_rows; }
  /// If tile_rows is 1.
  constexpr std::int64_t tiles_a_row() const { return (units + kTileUnits - 1) / kTileUnits; }
  static constexpr std::int64_t kTileUnits = 1024;
};

/// Runs as pieces: as much as possible in packs of `pack` elements, the rest in elements. Tiles are not yet counted.
std::vector<CopyPiece> copy_pieces(std::span<const CopyRun> runs, int pack, Boundaries source, Boundaries target);

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
