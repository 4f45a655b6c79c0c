#include "backend/cuda/kernels/copy_table.h"

#include <algorithm>
#include <cstdint>

namespace fsdpbench::backend::cuda {
namespace {

class Cutter {
 public:
  Cutter(int pack, Boundaries source, Boundaries target) : pack_(pack), source_(source), target_(target) {}

  void cut(const CopyRun& run) {
    const std::int64_t end = run.rows > 0 ? run.target + (run.rows - 1) * run.target_stride + run.run : run.target;
    if (run.zero_fill > 0) cut_rows({.target = end, .units = run.zero_fill, .zero = true});
    if (run.rows <= 0 || run.run <= 0) return;
    CopyPiece piece{.source = run.source,
                    .target = run.target,
                    .source_stride = run.source_stride,
                    .target_stride = run.target_stride,
                    .rows = run.rows,
                    .units = run.run};
    if (run.source_stride == run.run && run.target_stride == run.run) {  // rows touch on both sides
      piece.units *= piece.rows;
      piece.rows = 1;
    }
    if (keeps_boundaries(piece) || piece.units < kFewestForItself) return cut_rows(piece);
    // Each row has its boundaries elsewhere, and is worth a piece of its own.
    for (std::int64_t row = 0; row < piece.rows; ++row) {
      cut_rows({.source = piece.source + row * piece.source_stride,
                .target = piece.target + row * piece.target_stride,
                .units = piece.units});
    }
  }

  std::vector<CopyPiece> take() { return std::move(pieces_); }

 private:
  static constexpr std::int64_t kFewestForItself = 4096;  // elements

  bool keeps_boundaries(const CopyPiece& piece) const {
    return piece.rows == 1 || (piece.source_stride % source_.period == 0 && piece.target_stride % target_.period == 0);
  }

  /// `piece` counts units in elements: cuts it into a head, packs and a tail, or leaves it in elements.
  void cut_rows(CopyPiece piece) {
    const std::int64_t head = keeps_boundaries(piece) ? elements_before_packs(piece) : pack_;
    const std::int64_t packs = (piece.units - head) / pack_;
    if (head == pack_ || packs <= 0) return add(piece);
    if (head > 0) add(part(piece, 0, head));
    CopyPiece body = part(piece, head, packs);
    body.packed = true;
    add(body);
    const std::int64_t done = head + packs * pack_;
    if (done < piece.units) add(part(piece, done, piece.units - done));
  }

  /// pack_ if there is no common boundary.
  std::int64_t elements_before_packs(const CopyPiece& piece) const {
    std::int64_t head = 0;
    while (head < pack_ && !((piece.zero || source_.has(piece.source + head)) && target_.has(piece.target + head))) {
      ++head;
    }
    return head;
  }

  static CopyPiece part(CopyPiece piece, std::int64_t first, std::int64_t units) {
    piece.source += first;
    piece.target += first;
    piece.units = units;
    return piece;
  }

  void add(CopyPiece piece) {
    piece.tile_rows = static_cast<std::int32_t>(
        std::clamp<std::int64_t>(CopyPiece::kTileUnits / piece.units, 1, std::max<std::int64_t>(1, piece.rows)));
    pieces_.push_back(piece);
  }

  std::int64_t pack_;
  Boundaries source_, target_;
  std::vector<CopyPiece> pieces_;
};

}  // namespace

Boundaries boundaries(const void* array, std::int64_t element_bytes) {
  const auto behind = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(array) % 16);
  return {.period = 16 / element_bytes, .first = (16 - behind) % 16 / element_bytes};
}

std::vector<CopyPiece> copy_pieces(std::span<const CopyRun> runs, int pack, Boundaries source, Boundaries target) {
  Cutter cutter(pack, source, target);
  for (const CopyRun& run : runs) cutter.cut(run);
  return cutter.take();
}

}  // namespace fsdpbench::backend::cuda
