#include "backend/cuda/kernels/transfers.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "backend/cuda/check.h"

namespace fsdpbench::backend::cuda {
namespace {

constexpr std::size_t kSlotBytes = 4 << 20;
constexpr std::size_t kMostSlots = 16;

/// One of the two may be pinned memory on either side: state that is offloaded is read and written as the device's is.
void copy(void* target, const void* source, std::size_t bytes, cudaStream_t stream, const char* what) {
  check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream), what);
}

}  // namespace

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
  if (is_pinned(source, bytes)) return copy(target, source, static_cast<std::size_t>(bytes), stream_, "upload");
  const auto* from = static_cast<const std::byte*>(source);
  for (auto left = static_cast<std::size_t>(bytes); left > 0;) {
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
  if (is_pinned(target, bytes)) return copy(target, source, static_cast<std::size_t>(bytes), stream_, "download");
  auto* to = static_cast<std::byte*>(target);
  for (auto left = static_cast<std::size_t>(bytes); left > 0;) {
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
