#include "schedule/reduce_inputs.h"

#include <algorithm>

namespace fsdpbench::schedule {
namespace {

/// Megatron-FSDP's rule: a unit of communication is never less than two mean units.
std::int64_t most_elements(const StepBuilder& builder) {
  if (builder.policy.fsdp.reduce_scatter_elements == 0) return 0;
  const std::int64_t units = builder.plan.with_modules - 1;  // a block's experts belong to its unit
  std::int64_t all = 0;
  for (const plan::Unit& unit : builder.plan.units) all += unit.layout.parameter_numel();
  all -= builder.plan.units.front().layout.parameter_numel();
  return std::max(builder.policy.fsdp.reduce_scatter_elements, units == 0 ? 0 : 2 * all / units);
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
  const auto buffers = static_cast<std::size_t>(builder_.policy.fsdp.reduce_scatter_buffers);
  if (most_elements_ > 0) {
    const auto elements = [&] {
      std::int64_t sum = 0;
      for (const Input& input : inputs_) sum += input.numel;
      return sum;
    };
    while (elements() > most_elements_) release_down_to(inputs_.size() - 1);
  } else if (buffers > 0) {
    release_down_to(fresh ? buffers - 1 : buffers);
  }
}

}  // namespace fsdpbench::schedule
