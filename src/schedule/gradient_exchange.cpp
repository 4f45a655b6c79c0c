#include "schedule/gradient_exchange.h"

#include <algorithm>
#include <utility>

namespace fsdpbench::schedule {
namespace {

/// Megatron-FSDP's rule: a unit of communication is never less than two mean units.
std::int64_t most_elements(const StepBuilder& builder) {
  const std::int64_t asked = builder.policy.fsdp.reduce_scatter_elements;
  const std::int64_t units = builder.plan.with_modules - 1;  // a block's experts belong to its unit
  if (asked == 0 || units == 0) return asked;
  std::int64_t all = 0;
  for (const plan::Unit& unit : builder.plan.units) all += unit.layout.parameter_numel();
  all -= builder.plan.units.front().layout.parameter_numel();
  return std::max(asked, 2 * all / units);
}

}  // namespace

ReduceInputs::ReduceInputs(StepBuilder& builder) : builder_(builder), most_elements_(most_elements(builder)) {}

bool ReduceInputs::compute_frees() const {
  return builder_.policy.fsdp.reduce_scatter_buffers > 0 || most_elements_ > 0;
}

void ReduceInputs::add(BufferId buffer, EventId read, int unit, std::int64_t numel) {
  inputs_.push_back({buffer, read, unit, numel});
}

void ReduceInputs::release_down_to(std::size_t count) {
  while (inputs_.size() > count) {
    builder_.wait(Lane::compute, inputs_.front().read, WaitReason::reuse);
    builder_.append(OpKind::release, {.unit = inputs_.front().unit}, {}, {.frees = {inputs_.front().buffer}});
    inputs_.pop_front();
  }
}

void ReduceInputs::make_room(bool fresh) {
  const std::size_t buffers = builder_.policy.fsdp.reduce_scatter_buffers;
  if (most_elements_ > 0) {
    const auto elements = [&] {
      std::int64_t sum = 0;
      for (const Input& input : inputs_) sum += input.numel;
      return sum;
    };
    while (elements() > most_elements_) release_down_to(inputs_.size() - 1);
  } else {
    release_down_to(fresh ? buffers - 1 : buffers);
  }
}

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
    return builder_.new_buffer(role, of, gradient.numel * size_of(of), unit, kNone, MemorySpace::host);
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
