#include "schedule/all_gather_limiter.h"

#include <algorithm>
#include <numeric>

namespace fsdpbench::schedule {

using Mode = config::AllGatherLimit::Mode;

bool AllGatherLimiter::fits(std::vector<std::int64_t> held, bool with_released, std::int64_t bytes) const {
  const config::AllGatherLimit& limit = builder_.policy.fsdp.all_gather_limit;
  for (const Flight& f : flight_) {
    if (with_released || f.released == kNoEvent) held.push_back(f.bytes);
  }
  if (held.empty()) return true;
  if (limit.mode != Mode::bytes) return static_cast<int>(held.size()) < limit.count;
  return std::accumulate(held.begin(), held.end(), bytes) <= limit.bytes;
}

bool AllGatherLimiter::allows_prefetch(std::int64_t bytes, const std::vector<std::int64_t>& beside) const {
  const Mode mode = builder_.policy.fsdp.all_gather_limit.mode;
  if (mode != Mode::strict && mode != Mode::bytes && mode != Mode::buffers) return true;
  return fits(beside, false, bytes);
}

void AllGatherLimiter::before_unshard(int unit, std::int64_t bytes, bool gathers) {
  const config::AllGatherLimit& limit = builder_.policy.fsdp.all_gather_limit;
  switch (limit.mode) {
    case Mode::unlimited:
    case Mode::fetched: return;
    case Mode::fsdp1_queue:
      if (static_cast<int>(fsdp1_queue_.size()) >= limit.count) {
        const auto [event, age] = fsdp1_queue_.front();
        fsdp1_queue_.pop_front();
        // An event keeps its last recording only. For a free that another step's has replaced there stands the end of
        // the step before: it comes after the free, and the host has waited for it.
        const bool replaced = age > 1 || (age == 1 && builder_.recorded(event));
        builder_.host_wait(replaced ? builder_.step_done() : event, WaitReason::limit, unit);
      }
      return;
    case Mode::fsdp2_event: {
      if (!gathers || unit == plan::Plan::kRoot || builder_.plan.units[unit].layout.layout != config::Layout::flat) {
        return;
      }
      const auto before_last = static_cast<std::ptrdiff_t>(flight_.size()) - limit.count;
      if (before_last >= 0 && flight_[before_last].released != kNoEvent) {
        builder_.wait(Lane::all_gather, flight_[before_last].released, WaitReason::limit);
      }
      return;
    }
    case Mode::strict:
    case Mode::bytes:
    case Mode::buffers:
      if (!gathers || unit == plan::Plan::kRoot) return;
      while (!fits({}, true, bytes)) {
        const auto oldest =
            std::find_if(flight_.begin(), flight_.end(), [](const Flight& f) { return f.released != kNoEvent; });
        if (oldest == flight_.end()) return;  // all in use, and this one is needed now
        if (limit.mode == Mode::buffers) {
          const bool views = builder_.plan.units[unit].layout.views();
          builder_.wait(views ? Lane::all_gather : Lane::copy, oldest->released, WaitReason::limit);
        } else {
          builder_.host_wait(oldest->released, WaitReason::limit, unit);
        }
        flight_.erase(oldest);
      }
      return;
  }
}

void AllGatherLimiter::begin_step() {
  flight_.clear();
  fetched_.clear();
  for (Free& f : fsdp1_queue_) ++f.age;
}

void AllGatherLimiter::before_wait(EventId ready, int unit) {
  const config::AllGatherLimit& limit = builder_.policy.fsdp.all_gather_limit;
  if (limit.mode != Mode::fetched || (!fetched_.empty() && fetched_.back() == ready)) return;
  if (static_cast<int>(fetched_.size()) > limit.count) {
    builder_.host_wait(fetched_.front(), WaitReason::limit, unit);
    fetched_.pop_front();
  }
  fetched_.push_back(ready);
}

void AllGatherLimiter::gathered(int unit, std::int64_t bytes) {
  if (unit != plan::Plan::kRoot) flight_.push_back({unit, bytes, kNoEvent});
}

void AllGatherLimiter::released(int unit, EventId event, bool freed) {
  if (freed && builder_.policy.fsdp.all_gather_limit.mode == Mode::fsdp1_queue) fsdp1_queue_.push_back({event, 0});
  for (Flight& f : flight_) {
    if (f.unit == unit && f.released == kNoEvent) f.released = event;
  }
}

}  // namespace fsdpbench::schedule
