#include "schedule/context_ring.h"

#include <algorithm>

#include "schedule/tensor_exchanges.h"

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
  builder_.wait(Lane::compute, exchanged_[static_cast<std::size_t>(exchange)], WaitReason::data);
}

void ContextRing::after(int part) {
  const bool sends = parts_[static_cast<std::size_t>(part)].exchange == plan::ModulePart::Exchange::send_recv;
  if (backward_) {
    if (!sends) return;
    builder_.wait(Lane::tensor, part_done(part), WaitReason::data);
    return send(part, part / 2 % 2, (part / 2 + 1) % 2);
  }
  // Exchange i, which comes after part i, waits for step i-2, which is part i-1.
  if (part == 0 || part + 1 < sends_) done_.push_back(part_done(part));
  if (!sends) return;
  if (part == 0) builder_.wait(Lane::tensor, done_.front(), WaitReason::data);
  if (part > 1) builder_.wait(Lane::tensor, done_[static_cast<std::size_t>(part) - 1], WaitReason::limit);
  send(part, part, part + 1);
}

EventId ContextRing::part_done(int part) {
  return builder_.record(EventRole::part_done, id_of_part(kind_, module_, part));
}

void ContextRing::send(int part, int from, int to) {
  const plan::ModulePart& sent = parts_[static_cast<std::size_t>(part)];
  builder_.append(
      OpKind::context_send_recv, {.lane = Lane::tensor, .unit = unit_, .module = module_},
      Collective{
          .group = Group::context, .input = at(from), .output = at(to), .count = sent.count, .dtype = sent.dtype});
  exchanged_.push_back(builder_.record(EventRole::exchanged, id_of_part(kind_, module_, part)));
}

}  // namespace fsdpbench::schedule
