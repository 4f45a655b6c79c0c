#pragma once

// Runs of elements from one array to another. The pieces travel in the kernel's parameters, so that a call is one
// launch a 60 pieces and nothing else. A body says what becomes of a unit, N elements at once:
//   template <int N> __device__ void move(std::int64_t source, std::int64_t target) const;
//   template <int N> __device__ void clear(std::int64_t target) const;
// where source and target count elements.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/pack.cuh"
#include "backend/cuda/kernels/transfers.h"

namespace fsdpbench::backend::cuda {

/// Work of one launch; 4 KB, with the other parameters, is the most that every GPU takes.
struct CopyChunk {
  static constexpr int kMost = 60;
  CopyPiece pieces[kMost];
  int count;
  std::int64_t tiles;
};

/// The piece that `tile` belongs to.
__device__ inline const CopyPiece& piece_of(const CopyChunk& chunk, std::int64_t tile) {
  int low = 0, high = chunk.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (chunk.pieces[middle].first_tile <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return chunk.pieces[low];
}

inline constexpr int kCopyThreads = 256;

/// A block takes a tile at a time.
template <int N, class Body>
__global__ void __launch_bounds__(kCopyThreads) copy_kernel(const Body body, const __grid_constant__ CopyChunk chunk) {
  for (std::int64_t tile = blockIdx.x; tile < chunk.tiles; tile += gridDim.x) {
    const CopyPiece& piece = piece_of(chunk, tile);
    const std::int64_t local = tile - piece.first_tile;
    std::int64_t row = local * piece.tile_rows;
    std::int64_t column = 0;
    std::int64_t row_units = piece.units;
    std::int64_t tile_units = std::min<std::int64_t>(piece.tile_rows, piece.rows - row) * piece.units;
    if (piece.tile_rows == 1) {
      row = local / piece.tiles_a_row();
      column = (local - row * piece.tiles_a_row()) * CopyPiece::kTileUnits;
      row_units = CopyPiece::kTileUnits;
      tile_units = std::min(std::int64_t{CopyPiece::kTileUnits}, piece.units - column);
    }
    const int step = piece.packed ? N : 1;
    const std::int64_t from = piece.source + row * piece.source_stride + column * step;
    const std::int64_t to = piece.target + row * piece.target_stride + column * step;
#pragma unroll 4
    for (int unit = static_cast<int>(threadIdx.x); unit < static_cast<int>(tile_units); unit += kCopyThreads) {
      const int r = unit / static_cast<int>(row_units);
      const int at = (unit - r * static_cast<int>(row_units)) * step;
      const std::int64_t unit_from = from + r * piece.source_stride + at;
      const std::int64_t unit_to = to + r * piece.target_stride + at;
      if (piece.zero) {
        if (piece.packed) {
          body.template clear<N>(unit_to);
        } else {
          body.template clear<1>(unit_to);
        }
      } else if (piece.packed) {
        body.template move<N>(unit_from, unit_to);
      } else {
        body.template move<1>(unit_from, unit_to);
      }
    }
  }
}

/// All runs, in order, in packs of N elements where the boundaries allow it.
template <int N, class Body>
void copy(cudaStream_t stream, const char* name, const Body& body, std::span<const CopyRun> runs, Boundaries source,
          Boundaries target) {
  const std::vector<CopyPiece> pieces = copy_pieces(runs, N, source, target);
  for (std::size_t first = 0; first < pieces.size(); first += CopyChunk::kMost) {
    CopyChunk chunk{};
    chunk.count = static_cast<int>(std::min<std::size_t>(CopyChunk::kMost, pieces.size() - first));
    for (int i = 0; i < chunk.count; ++i) {
      chunk.pieces[i] = pieces[first + static_cast<std::size_t>(i)];
      chunk.pieces[i].first_tile = chunk.tiles;
      chunk.tiles += chunk.pieces[i].tiles();
    }
    launch(stream, name, blocks_for(chunk.tiles), kCopyThreads, copy_kernel<N, Body>, body, chunk);
  }
}

}  // namespace fsdpbench::backend::cuda
