#pragma once

#include <algorithm>
#include <cstdint>

namespace fsdpbench::backend::cuda {

/// How work is cut into blocks. Depends on sizes alone, never on the device or on alignments, where it decides in which
/// order something is summed.

constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;  // of a grid's first dimension
constexpr std::int64_t kMostOthers = 65535;                        // of the others

/// Blocks for one a unit of work; kernels go on in strides of the grid where there are more.
constexpr unsigned blocks_for(std::int64_t units) {
  return static_cast<unsigned>(std::clamp<std::int64_t>(units, 0, kMostBlocks));
}

/// Threads of a block that takes one row: a power of two, one pack a thread where the row is that short.
constexpr unsigned row_threads(std::int64_t width, int pack, unsigned most) {
  unsigned threads = 32;
  while (threads < most && static_cast<std::int64_t>(threads) * pack < width) threads *= 2;
  return threads;
}

}  // namespace fsdpbench::backend::cuda
