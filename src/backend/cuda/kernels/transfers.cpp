#include "backend/cuda/kernels/transfers.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "backend/cuda/check.h"

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

constexpr std::size_t kSlotBytes = 4 << 20;
constexpr std::size_t kMostSlots = 16;

/// One of the two may be pinned memory on either side: state that is offloaded is read and written as the device's is.
void copy(void* target, const void* source, std::size_t bytes, cudaStream_t stream, const char* what) {
  check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream), what);
}

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

struct Transfers::Slot {
  Slot() = default;
  void make() {
    check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "event of a host buffer");
    check(cudaMallocHost(&memory, kSlotBytes), "pinned host memory for copies to and from the GPU");
  }
  ~Slot() {
    if (memory != nullptr) cudaFreeHost(memory);
    if (done != nullptr) cudaEventDestroy(done);
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  /// The copy through it is not done.
  bool copying() const {
    const cudaError_t status = cudaEventQuery(done);
    if (status == cudaErrorNotReady) return true;
    check(status, "copy to or from the GPU");
    return false;
  }

  cudaEvent_t done = nullptr;
  void* memory = nullptr;
  void* target = nullptr;  ///< of a download not yet handed over
  std::size_t bytes = 0;
};

Transfers::Transfers(cudaStream_t stream, std::function<void()> while_waiting, const PinnedRanges* pinned)
    : stream_(stream), while_waiting_(std::move(while_waiting)), pinned_(pinned) {}

Transfers::~Transfers() = default;

Transfers::Slot& Transfers::free_slot() {
  constexpr std::chrono::microseconds kNap{100};
  for (;;) {
    deliver();
    const auto idle = std::find_if(slots_.begin(), slots_.end(),
                                   [](const auto& slot) { return slot->target == nullptr && !slot->copying(); });
    if (idle != slots_.end()) return **idle;
    if (slots_.size() < kMostSlots) {
      slots_.push_back(std::make_unique<Slot>());
      slots_.back()->make();
      return *slots_.back();
    }
    if (while_waiting_) while_waiting_();
    std::this_thread::sleep_for(kNap);
  }
}

void Transfers::mark_busy(Slot& slot) { check(cudaEventRecord(slot.done, stream_), "event of a host buffer"); }

void Transfers::upload(const void* source, std::byte* target, std::int64_t bytes) {
  if (bytes == 0) return;
  if (is_pinned(source, bytes)) return copy(target, source, bytes, stream_, "upload");
  const auto* from = static_cast<const std::byte*>(source);
  for (std::size_t left = bytes; left > 0;) {
    const std::size_t part = std::min(left, kSlotBytes);
    Slot& slot = free_slot();
    std::memcpy(slot.memory, from, part);
    copy(target, slot.memory, part, stream_, "upload");
    mark_busy(slot);
    from += part;
    target += part;
    left -= part;
  }
}

void Transfers::download(const std::byte* source, void* target, std::int64_t bytes) {
  if (bytes == 0) return;
  if (is_pinned(target, bytes)) return copy(target, source, bytes, stream_, "download");
  auto* to = static_cast<std::byte*>(target);
  for (std::size_t left = bytes; left > 0;) {
    const std::size_t part = std::min(left, kSlotBytes);
    Slot& slot = free_slot();
    copy(slot.memory, source, part, stream_, "download");
    mark_busy(slot);
    slot.target = to;
    slot.bytes = part;
    arriving_.push_back(&slot);
    source += part;
    to += part;
    left -= part;
  }
}

void Transfers::deliver() {
  while (!arriving_.empty() && !arriving_.front()->copying()) {
    Slot& slot = *arriving_.front();
    arriving_.pop_front();
    std::memcpy(slot.target, slot.memory, slot.bytes);
    slot.target = nullptr;
  }
}

}  // namespace fsdpbench::backend::cuda
