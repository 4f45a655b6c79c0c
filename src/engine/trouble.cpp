#include "engine/trouble.h"

#include <chrono>
#include <thread>

#include "backend/kernels.h"
#include "base/duration.h"

namespace fsdpbench::engine {

Trouble::Trouble(const config::Inject& inject, std::uint64_t seed, int rank)
    : host_(whole_ns(inject.host_delay_us * 1000)),
      jitter_(whole_ns(inject.jitter_us * 1000)),
      random_(seed * 1000003 + static_cast<std::uint64_t>(rank)) {
  if (inject.delay_rank >= 0 && inject.delay_rank != rank) return;
  for (Lane lane : kLanes) {
    if (inject.delay_lane == to_string(lane)) fixed_[index_of(lane)] = whole_ns(inject.delay_us * 1000);
  }
}

void Trouble::before_issue() const {
  if (host_ > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(host_));
}

void Trouble::before_op(backend::Device& device, Lane lane) {
  std::int64_t delay = fixed_[index_of(lane)];
  if (jitter_ > 0) delay += std::uniform_int_distribution<std::int64_t>(0, jitter_)(random_);
  if (delay == 0) return;
  device.enqueue(
      lane, "injected delay", [delay](backend::Kernels& kernels) { kernels.delay(delay); }, nullptr);
}

}  // namespace fsdpbench::engine
