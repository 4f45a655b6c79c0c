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

}  // namespace

std::unique_ptr<OpTimer> make_cupti_timer(std::string* why_not) {
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

}  // namespace fsdpbench::backend::cuda
