#include "schedule/gradient_exchange.h"

namespace fsdpbench::schedule {

void GradientExchange::append(const Gradients& gradients) {
  const int unit = gradients.unit;
  const plan::Groups& groups = builder_.plan.groups;
  const int within = groups.size(Group::reduce_within), across = groups.size(Group::reduce_across);
  const Quantization format = builder_.policy.fsdp.reduce_quantization;
  const std::int64_t count = builder_.plan.units[static_cast<std::size_t>(unit)].gradient_layout.shard_numel;
  const std::int64_t part = format.bytes(count);

  BufferId message = new_message(unit, part * within * across);
  const bool compute_frees = inputs_.compute_frees();
  builder_.append(OpKind::quantize_gradients, {.lane = lane_, .unit = unit},
                  Requantize{gradients.input, message,
                             within * across * (count * size_of(builder_.dtype_of(gradients.input)) + part)},
                  {.allocates = {message}, .frees = {compute_frees ? kNoBuffer : gradients.input}});
  if (compute_frees) {
    inputs_.add(gradients.input, builder_.record(EventRole::gradients_quantized, unit), unit, gradients.numel);
  }
  message = all_to_all(unit, Group::reduce_within, message, part * across);
  if (across > 1) {
    const BufferId sums = new_message(unit, part * across);
    sum(unit, message, sums, across * (within * part + part));
    message = all_to_all(unit, Group::reduce_across, sums, part);
  }
  const std::int64_t sources = across > 1 ? across : within;
  sum(unit, message, gradients.output, sources * part + count * size_of(builder_.dtype_of(gradients.output)));
}

BufferId GradientExchange::all_to_all(int unit, Group group, BufferId input, std::int64_t bytes_to_each) {
  const BufferId output = new_message(unit, bytes_to_each * builder_.plan.groups.size(group));
  builder_.append(
      OpKind::all_to_all, {.lane = lane_, .unit = unit},
      Collective{.group = group, .input = input, .output = output, .count = bytes_to_each, .dtype = DType::u8},
      {.allocates = {output}, .frees = {input}});
  return output;
}

void GradientExchange::sum(int unit, BufferId from, BufferId to, std::int64_t bytes) {
  builder_.append(OpKind::sum_quantized, {.lane = lane_, .unit = unit}, Requantize{from, to, bytes},
                  {.allocates = {to}, .frees = {from}});
}

}  // namespace fsdpbench::schedule
