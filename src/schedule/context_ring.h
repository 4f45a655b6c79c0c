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
  /// Of one pass of a block. `builder` and `parts` must outlive it.
  ContextRing(StepBuilder& builder, OpKind kind, int unit, int module, const std::vector<plan::ModulePart>& parts);

  /// To be allocated before the first part and freed after the last.
  const std::vector<BufferId>& buffers() const { return buffers_; }
  /// The keys and values that a part only reads; kNoBuffer if there are none.
  BufferId read_by(int part) const;
  /// What a part writes, and reads if something came into it; kNoBuffer if there is nothing.
  BufferId written_by(int part) const;
  /// The compute lane's next op is this part: it waits for what it needs.
  void before(int part);
  /// The last op was this part: sends what is sent then.
  void after(int part);

 private:
  BufferId at(int index) const { return buffers_[static_cast<std::size_t>(index)]; }
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

}  // namespace fsdpbench::schedule
