#include "schedule/gradient_offload.h"

#include <utility>

namespace fsdpbench::schedule {

void GradientOffload::before_reduction(Lane lane) {
  const EventId copied = std::exchange(copied_from_[index_of(lane)], kNoEvent);
  if (copied != kNoEvent) builder_.wait(lane, copied, WaitReason::limit);
}

void GradientOffload::host_waits() {
  for (const auto& [unit, event] : unfinished_) builder_.host_wait(event, WaitReason::data, unit);
  unfinished_.clear();
  copied_from_.fill(kNoEvent);
}

void GradientOffload::append(const Gradient& gradient, BufferId& sum) {
  const int unit = gradient.unit;
  const bool first = sum == kNoBuffer;
  const DType dtype = builder_.dtype_of(gradient.buffer);
  const bool is_sum = first && dtype == DType::f32 && gradient.factor == 1.0F;
  const auto on_host = [&](BufferRole role, DType of) {
    return builder_.new_buffer(role, of, gradient.numel * size_of(of), unit, -1, MemorySpace::host);
  };
  const BufferId copy = on_host(is_sum ? BufferRole::gradient_shard : BufferRole::offloaded_gradient, dtype);
  builder_.wait(Lane::device_to_host, gradient.ready, WaitReason::data);
  builder_.transfer(gradient.buffer, copy, unit, false, {.allocates = {copy}, .frees = {gradient.buffer}});
  const EventId copied = builder_.record(EventRole::copied_to_host, unit);
  if (gradient.lane != Lane::compute) copied_from_[index_of(gradient.lane)] = copied;
  unfinished_[unit] = copied;
  if (is_sum) {
    sum = copy;
    return;
  }
  const bool host_adds = !first && finishes_on_device();
  if (host_adds) builder_.host_wait(copied, WaitReason::limit, unit);
  if (first) sum = on_host(BufferRole::gradient_shard, DType::f32);
  builder_.wait(Lane::host_compute, copied, WaitReason::data);
  builder_.append(
      OpKind::finish_gradient, {.lane = Lane::host_compute, .unit = unit},
      Accumulate{.from = copy, .sum = sum, .count = gradient.numel, .factor = gradient.factor, .overwrite = first},
      {.allocates = {first ? sum : kNoBuffer}, .frees = {copy}});
  unfinished_[unit] = builder_.record(EventRole::gradient_ready, unit);
  if (host_adds) builder_.host_wait(unfinished_[unit], WaitReason::limit, unit);
}

}  // namespace fsdpbench::schedule
