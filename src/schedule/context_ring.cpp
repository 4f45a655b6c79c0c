#include "schedule/context_ring.h"

#include <algorithm>
#include <utility>

namespace fsdpbench::schedule {

ContextRing::ContextRing(StepBuilder& builder, OpKind kind, int unit, int module,
                         const std::vector<plan::ModulePart>& parts)
    : builder_(builder),
      parts_(parts),
      kind_(kind),
      unit_(unit),
      module_(module),
      backward_(kind == OpKind::backward),
      sends_(static_cast<int>(
          std::ranges::count(parts, plan::ModulePart::Exchange::send_recv, &plan::ModulePart::exchange))) {
  const plan::ModulePart& first = parts.front();
  for (int i = 0; i < (backward_ ? 2 : sends_ + 1); ++i) {
    buffers_.push_back(builder.new_buffer(BufferRole::exchange, first.dtype, first.bytes(1), unit, module));
  }
}

BufferId ContextRing::read_by(int part) const {
  if (backward_) return part % 2 == 1 ? at(part / 2 % 2) : kNoBuffer;
  return part > 0 ? at(part - 1) : kNoBuffer;
}

BufferId ContextRing::written_by(int part) const {
  if (backward_) return part % 2 == 0 ? at(part / 2 % 2) : kNoBuffer;
  return part == 0 ? at(0) : kNoBuffer;
}

void ContextRing::before(int part) {
  const int exchange = backward_ ? (part % 2 == 0 ? part / 2 - 1 : -1) : part - 2;
  if (exchange < 0) return;
  builder_.wait(Lane::compute, exchanged_[exchange], WaitReason::data);
}

void ContextRing::after(int part) {
  const bool sends = parts_[part].exchange == plan::ModulePart::Exchange::send_recv;
  if (backward_) {
    if (!sends) return;
    builder_.wait(Lane::tensor, part_done(part), WaitReason::data);
    return send(part, part / 2 % 2, (part / 2 + 1) % 2);
  }
  // Exchange i, which comes after part i, waits for step i-2, which is part i-1.
  if (part == 0 || part + 1 < sends_) done_.push_back(part_done(part));
  if (!sends) return;
  if (part == 0) builder_.wait(Lane::tensor, done_.front(), WaitReason::data);
  if (part > 1) builder_.wait(Lane::tensor, done_[part - 1], WaitReason::limit);
  send(part, part, part + 1);
}

EventId ContextRing::part_done(int part) {
  return builder_.record(EventRole::part_done, id_of_part(kind_, module_, part));
}

void ContextRing::send(int part, int from, int to) {
  const plan::ModulePart& sent = parts_[part];
  builder_.append(
      OpKind::context_send_recv, {.lane = Lane::tensor, .unit = unit_, .module = module_},
      Collective{
          .group = Group::context, .input = at(from), .output = at(to), .count = sent.count, .dtype = sent.dtype});
  exchanged_.push_back(builder_.record(EventRole::exchanged, id_of_part(kind_, module_, part)));
}
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
  constexpr int kMostParts = 2 * 4096 + 1;  // of the backward of a ring of all ranks that mesh.context allows
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
  const Group rows = builder_.policy.separate_exchanges ? Group::expert : Group::shard;  // of the same ranks, if so
  const Group group = part.of_experts() ? rows : part.of_context ? Group::context : Group::tensor;
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
