#pragma once

#include "schedule/step_builder.h"

namespace fsdpbench::schedule {

/// A number for part `index` of a pass of a module, whose kind is `kind`, for the name of an event: a block's
/// recomputation and backward share a phase.
int id_of_part(OpKind kind, int module, int index);

/// Exchanges of ranks that split a layer, between the parts of its passes (plan::ModulePart): on a lane of its own, so
/// that computation which needs nothing of it, such as copying out the next unit's parameters, goes on beside it.
///
/// [Note: rows of experts]
/// mesh.expert: tokens go to the ranks that have their experts, and come back. As torchtitan does it
/// (models/common/token_dispatcher.py), ranks first tell each other how many rows they will send, and the host waits
/// for these numbers, since it has to say how long the messages are: until then it issues nothing ahead. A backward
/// knows the numbers of its forward. A recomputation does all of it again, or where exchanges are kept
/// (fsdp.checkpoint_keeps), only waits for the numbers: those are kept on the device, and the host asks for them again.
class TensorExchanges {
 public:
  /// `builder` must outlive it.
  explicit TensorExchanges(StepBuilder& builder) : builder_(builder) {}

  /// The last appended op is part `index` of a pass, whose kind is `kind`: what is exchanged next waits for it. Returns
  /// its event.
  EventId computed(OpKind kind, int module, int index);
  /// Appends what happens to `buffer` after that part.
  void append(OpKind kind, int unit, int module, int index, const plan::ModulePart& part, BufferId buffer);
  /// The host waits for the last appended op, part `index` of a pass: for numbers that it was told before.
  void await_numbers(OpKind kind, int unit, int module, int index);
  /// The compute lane's next op reads what was exchanged last.
  void settle();
  /// The event of an exchange that nothing has waited for yet; kNoEvent if there is none.
  EventId pending() const { return pending_; }

 private:
  StepBuilder& builder_;
  EventId pending_ = kNoEvent;
};

}  // namespace fsdpbench::schedule
