#pragma once

#include <vector>

#include "schedule/step_builder.h"

namespace fsdpbench::schedule {

/// [Note: rings of keys and values]
/// mesh.context_method = ring: what TransformerEngine does for --cp-comm-type p2p of Megatron (AttnFuncWithCPAndKVP2P,
/// transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py, commit d0067d0).
///
/// Forward. Step i of C computes attention with the keys and values that came in exchange i-1; step 0 with the rank's
/// own. Exchange i sends on what came in exchange i-1. It is issued before step i, on whose stream it waits for step
/// i-2, as two streams take turns; so it runs beside steps i-1 and i. Every exchange has a buffer of its own, and all
/// of them live until the pass ends. The keys and values that came last are what backward begins with.
///
/// Backward goes the other way round. Each of two buffers has room for keys and values and for their gradients. Step i
/// of C computes attention beside exchange i, and adds its gradients to those that came in it. Exchange 0 has keys and
/// values alone, the last one their gradients alone, those between both: the last step's keys and values are the
/// rank's own, and after it the gradients have come home. A step's exchange begins when the step before has added.
///
/// Parts of a forward: projections, then one for each step, the last one with all that follows. Of a backward: all that
/// comes before, then two for each step, which computes and adds; the last one with the projections.
class ContextRing {
 public:
  /// Ring of one pass of a block. `builder` and `parts` must outlive it.
  ContextRing(StepBuilder& builder, OpKind kind, int unit, int module, const std::vector<plan::ModulePart>& parts);

  /// To be allocated before the first part and freed after the last.
  const std::vector<BufferId>& buffers() const { return buffers_; }
  /// The keys and values that a part only reads; kNoBuffer if there are none.
  BufferId read_by(int part) const;
  /// Buffer that a part writes, and reads if something came into it; kNoBuffer if there is nothing.
  BufferId written_by(int part) const;
  /// The compute lane's next op is this part: it waits for what it needs.
  void before(int part);
  /// The last op was this part: sends what is sent then.
  void after(int part);

 private:
  BufferId at(int index) const { return buffers_[index]; }
  EventId part_done(int part);
  void send(int part, int from, int to);

  StepBuilder& builder_;
  const std::vector<plan::ModulePart>& parts_;
  OpKind kind_;
  int unit_, module_;
  bool backward_;
  int sends_ = 0;
  std::vector<BufferId> buffers_;
  std::vector<EventId> done_;       // by part of a forward
  std::vector<EventId> exchanged_;  // by exchange
};

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
