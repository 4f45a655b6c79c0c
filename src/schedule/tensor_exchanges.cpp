#include "schedule/tensor_exchanges.h"

#include <utility>

namespace fsdpbench::schedule {

namespace {

OpKind kind_of(plan::ModulePart::Exchange exchange) {
  switch (exchange) {
    case plan::ModulePart::Exchange::gather: return OpKind::tensor_all_gather;
    case plan::ModulePart::Exchange::scatter: return OpKind::tensor_reduce_scatter;
    case plan::ModulePart::Exchange::dispatch: return OpKind::expert_dispatch;
    case plan::ModulePart::Exchange::combine: return OpKind::expert_combine;
    default: return OpKind::tensor_all_reduce;
  }
}

}  // namespace

int id_of_part(OpKind kind, int module, int index) {
  constexpr int kMostParts = 16;
  const int pass = kind == OpKind::forward ? 0 : kind == OpKind::recompute ? 1 : 2;
  return (module * 3 + pass) * kMostParts + index;
}

EventId TensorExchanges::computed(OpKind kind, int module, int index) {
  const EventId done = builder_.record(EventRole::part_done, id_of_part(kind, module, index));
  builder_.wait(Lane::tensor, done, WaitReason::data);
  return done;
}

void TensorExchanges::append(OpKind kind, int unit, int module, int index, const plan::ModulePart& part,
                             BufferId buffer) {
  const int id = id_of_part(kind, module, index);
  const At at{.lane = Lane::tensor, .unit = unit, .module = module};
  const Group group = part.of_experts() ? Group::expert : part.of_context ? Group::context : Group::tensor;
  if (part.told > 0) {
    builder_.append(
        OpKind::expert_counts, at,
        Collective{.group = group, .input = buffer, .output = buffer, .count = part.told, .dtype = DType::i32});
    builder_.host_wait(builder_.record(EventRole::counted, id), WaitReason::data, unit);
  }
  builder_.append(
      kind_of(part.exchange), at,
      Collective{.group = group, .input = buffer, .output = buffer, .count = part.count, .dtype = part.dtype});
  pending_ = builder_.record(EventRole::exchanged, id);
}

void TensorExchanges::await_numbers(OpKind kind, int unit, int module, int index) {
  builder_.host_wait(builder_.record(EventRole::counted, id_of_part(kind, module, index)), WaitReason::data, unit);
}

void TensorExchanges::settle() {
  if (pending_ != kNoEvent) builder_.wait(Lane::compute, std::exchange(pending_, kNoEvent), WaitReason::data);
}

}  // namespace fsdpbench::schedule
