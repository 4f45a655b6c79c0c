// Bytes to move: each element once from the source and once to the target. The pieces travel in the kernel's
// parameters, so that a call is one launch a 60 pieces and nothing else.

#include "backend/cuda/kernels/copy.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "backend/cuda/kernels/copy_table.h"
#include "backend/cuda/kernels/element.h"
#include "backend/cuda/kernels/grid.h"
#include "backend/cuda/kernels/pack.cuh"

namespace fsdpbench::backend::cuda {
namespace {

/// What one launch does; 4 KB, with the other parameters, is the most that every GPU takes.
struct Chunk {
  static constexpr int kMost = 60;
  CopyPiece pieces[kMost];
  int count;
  std::int64_t tiles;
};

template <int N, class From, class To>
__device__ void copy_unit(const From* source, To* target) {
  if constexpr (std::is_same_v<From, To>) {
    *reinterpret_cast<Pack<To, N>*>(target) = *reinterpret_cast<const Pack<From, N>*>(source);
  } else {
    store(target, load<N>(source));
  }
}

/// The piece that `tile` belongs to.
__device__ const CopyPiece& find(const Chunk& chunk, std::int64_t tile) {
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

constexpr int kThreads = 256;

/// A block takes a tile at a time.
template <int N, class From, class To>
__global__ void __launch_bounds__(kThreads)
    copy_kernel(const From* source, To* target, const __grid_constant__ Chunk chunk) {
  for (std::int64_t tile = blockIdx.x; tile < chunk.tiles; tile += gridDim.x) {
    const CopyPiece& piece = find(chunk, tile);
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
    const From* const from = source + piece.source + row * piece.source_stride + column * step;
    To* const to = target + piece.target + row * piece.target_stride + column * step;
#pragma unroll 4
    for (int unit = static_cast<int>(threadIdx.x); unit < static_cast<int>(tile_units); unit += kThreads) {
      const int r = unit / static_cast<int>(row_units);
      const int at = (unit - r * static_cast<int>(row_units)) * step;
      const From* const unit_from = from + r * piece.source_stride + at;
      To* const unit_to = to + r * piece.target_stride + at;
      if (piece.zero) {
        if (piece.packed) {
          store(unit_to, Floats<N>{});
        } else {
          store(unit_to, Floats<1>{});
        }
      } else if (piece.packed) {
        copy_unit<N>(unit_from, unit_to);
      } else {
        copy_unit<1>(unit_from, unit_to);
      }
    }
  }
}

template <class From, class To>
void copy(cudaStream_t stream, const From* source, To* target, std::span<const CopyRun> runs) {
  constexpr int N = kPackOf<From, To>;
  const std::vector<CopyPiece> pieces =
      copy_pieces(runs, N, boundaries(source, sizeof(From)), boundaries(target, sizeof(To)));
  for (std::size_t first = 0; first < pieces.size(); first += Chunk::kMost) {
    Chunk chunk{};
    chunk.count = static_cast<int>(std::min<std::size_t>(Chunk::kMost, pieces.size() - first));
    for (int i = 0; i < chunk.count; ++i) {
      chunk.pieces[i] = pieces[first + static_cast<std::size_t>(i)];
      chunk.pieces[i].first_tile = chunk.tiles;
      chunk.tiles += chunk.pieces[i].tiles();
    }
    launch(stream, "copy_runs", blocks_for(chunk.tiles), kThreads, copy_kernel<N, From, To>, source, target, chunk);
  }
}

}  // namespace

void copy_runs(cudaStream_t stream, const std::byte* source, DType source_dtype, std::byte* target, DType target_dtype,
               std::span<const CopyRun> runs) {
  with_element_type(source_dtype, [&]<class From>(From) {
    with_element_type(target_dtype,
                      [&]<class To>(To) { copy(stream, elements<From>(source), elements<To>(target), runs); });
  });
}

}  // namespace fsdpbench::backend::cuda
