#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/kernels.h"

namespace fsdpbench::backend::cuda {

/// Which elements of an array lie on 16-byte boundaries: first, first + period, …
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

}  // namespace fsdpbench::backend::cuda
