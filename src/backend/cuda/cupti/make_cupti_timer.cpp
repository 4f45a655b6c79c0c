#include <mutex>
#include <optional>

#include "backend/cuda/cupti/cupti_timer.h"

namespace fsdpbench::backend::cuda {
namespace {

/// CUPTI knows one client a process; the ranks of this process share it. Never destroyed: CUPTI may call back until
/// the process ends.
struct Shared {
  std::mutex mutex;
  Collector* collector = nullptr;
  int timers = 0;
};

Shared& shared() {
  static auto* const instance = new Shared;
  return *instance;
}

void leave() {
  const std::lock_guard lock(shared().mutex);
  if (--shared().timers == 0) shared().collector->stop();
}

std::unique_ptr<OpTimer> join(std::string* why_not) {
  const std::lock_guard lock(shared().mutex);
  Collector*& collector = shared().collector;
  if (collector == nullptr) {
    const std::optional<CuptiApi> api = load_cupti(why_not);
    if (!api) return nullptr;
    collector = new Collector(*api, BufferLimits());
  }
  if (shared().timers == 0) {
    *why_not = collector->start();
    if (!why_not->empty()) return nullptr;
  }
  ++shared().timers;
  return std::make_unique<CuptiTimer>(*collector, leave);
}

/// Whether an op has times. CUPTI may be switched on without a complaint and record nothing, which is better known
/// before a run than after it. What CUDA refuses is the run's to say.
bool times_a_fill(OpTimer& timer) {
  constexpr std::size_t kBytes = 8;
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  if (cudaMalloc(&memory, kBytes) != cudaSuccess) return false;
  Stamp stamp;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess) {
    timer.begin(Lane::compute, stream, -1, -1, &stamp);
    cudaMemsetAsync(memory, 0, kBytes, stream);
    timer.end(Lane::compute, stream);
    cudaStreamSynchronize(stream);
    timer.settle();
    timer.take_activities();
    cudaStreamDestroy(stream);
  }
  cudaFree(memory);
  return stamp.begin_ns != 0;
}

}  // namespace

std::unique_ptr<OpTimer> make_cupti_timer(std::string* why_not) {
  std::unique_ptr<OpTimer> timer = join(why_not);
  if (timer == nullptr || times_a_fill(*timer)) return timer;
  *why_not =
      "CUPTI was switched on, but a fill was made to try it and no record of it came. Another profiler may hold it, "
      "or its version does not fit the driver.";
  return nullptr;
}

}  // namespace fsdpbench::backend::cuda
