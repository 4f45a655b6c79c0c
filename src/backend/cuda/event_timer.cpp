#include "backend/cuda/event_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/cuda/check.h"
#include "base/clock.h"

namespace fsdpbench::backend::cuda {

EventStore::~EventStore() {
  for (cudaEvent_t event : all_) cudaEventDestroy(event);
}

cudaEvent_t EventStore::take() {
  if (free_.empty()) {
    cudaEvent_t made = nullptr;
    check(cudaEventCreateWithFlags(&made, flags_), "creating an event");
    all_.push_back(made);
    return made;
  }
  cudaEvent_t event = free_.back();
  free_.pop_back();
  return event;
}
namespace {

constexpr int kAnchorTries = 16;

}  // namespace

std::unique_ptr<OpTimer> make_event_timer() { return std::make_unique<EventTimer>(); }

EventTimer::EventTimer() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream"); }

EventTimer::~EventTimer() { cudaStreamDestroy(stream_); }

void EventTimer::begin(Lane /*lane*/, cudaStream_t stream, std::int32_t /*step*/, std::int32_t /*op*/, Stamp* stamp) {
  pending_.push_back({events_.take(), events_.take(), stamp, now_ns()});
  check(cudaEventRecord(pending_.back().begin, stream), "recording an event");
}

void EventTimer::end(Lane /*lane*/, cudaStream_t stream) {
  check(cudaEventRecord(pending_.back().end, stream), "recording an event");
}

/// Anchor of several tries whose time the host knows best.
EventTimer::Anchor EventTimer::drop_anchor() {
  Anchor best{events_.take(), 0, 0};
  Anchor next{events_.take(), 0, 0};
  for (int i = 0; i < kAnchorTries; ++i) {
    next.earliest_ns = now_ns();
    check(cudaEventRecord(next.event, stream_), "recording an event");
    check(cudaEventSynchronize(next.event), "waiting for an event");
    next.latest_ns = now_ns();
    if (i == 0 || next.width_ns() < best.width_ns()) std::swap(best, next);
  }
  events_.give_back(next.event);
  return best;
}

std::int64_t EventTimer::time_of(cudaEvent_t event, const Anchor& anchor) const {
  float before_ms = 0;
  check(cudaEventElapsedTime(&before_ms, event, anchor.event), "the time between two events");
  return (anchor.earliest_ns + anchor.latest_ns) / 2 - std::llround(static_cast<double>(before_ms) * 1e6);
}

void EventTimer::settle() {
  if (pending_.empty()) return;
  const std::int64_t seen_ns = now_ns();
  // After the ops, not before: nothing of this is in their time.
  const Anchor anchor = drop_anchor();
  worst_width_ns_ = std::max(worst_width_ns_, anchor.width_ns());
  std::int64_t too_early_ns = 0;
  std::int64_t too_late_ns = 0;
  for (const Timed& timed : pending_) {
    timed.stamp->begin_ns = time_of(timed.begin, anchor);
    timed.stamp->end_ns = time_of(timed.end, anchor);
    too_early_ns = std::max(too_early_ns, timed.issued_ns - timed.stamp->begin_ns);
    too_late_ns = std::max(too_late_ns, timed.stamp->end_ns - seen_ns);
  }
  // No op begins before it is issued, and all had ended when this was called: where one seems not to, the anchor lay
  // later or earlier within its bounds.
  const std::int64_t shift_ns = too_early_ns > 0 ? too_early_ns : -too_late_ns;
  for (const Timed& timed : pending_) {
    timed.stamp->begin_ns += shift_ns;
    timed.stamp->end_ns += shift_ns;
    events_.give_back(timed.begin);
    events_.give_back(timed.end);
  }
  pending_.clear();
  events_.give_back(anchor.event);
}

Facts EventTimer::facts() const {
  return {{"timer", fmt::format("CUDA events around each op, on the host's clock within {:.1f} us",
                                static_cast<double>(worst_width_ns_) / 2e3)}};
}

}  // namespace fsdpbench::backend::cuda
