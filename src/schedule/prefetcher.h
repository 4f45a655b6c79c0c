#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/communication.h"
#include "schedule/gatherer.h"
#include "schedule/policy.h"
#include "schedule/step_builder.h"

namespace fsdpbench::schedule {

/// The learned order in which a microbatch uses units (the root, the others; backward, the root and the others in
/// reverse), what a prefetch at a rate takes from it, and which units are kept because they are used again soon.
/// DeepSpeed's coordinator, with units for parameters.
///
/// Each hook takes its own unit out of the queue of coming uses, then (fsdp.forward_prefetch = "rate:N") units until
/// those that are missing hold N elements, fewer if fsdp.max_live_parameters leaves less; what it takes is asked for
/// before it is added, so that the last one overshoots. A unit that the queue has lost for a later use than the next
/// stays gathered: nobody would fetch it again.
class FetchTrace {
 public:
  FetchTrace(const Policy& policy, const plan::Plan& plan);

  /// A microbatch begins.
  void begin();
  /// The next hook, which is `unit`'s: its parameters are gathered. Returns what to gather now: missing units, in order
  /// of use. `missing[u]`: unit u is not gathered. `live`: elements gathered.
  std::vector<int> next(int unit, const std::vector<bool>& missing, std::int64_t live);
  /// Whether `unit`, whose use is over, is to stay gathered.
  bool keeps(int unit) const;

 private:
  const Policy& policy_;
  const plan::Plan& plan_;
  std::vector<int> uses_;   // units
  std::size_t at_ = 0;      // the next hook's use
  std::size_t queue_ = 0;   // the first use that nothing has taken
  std::vector<int> taken_;  // by unit: its last use that was taken, -1 for none
};

/// Gathers of the hook before a unit's computation: the unit itself, and what fsdp.forward_prefetch or
/// fsdp.backward_prefetch asks for beside it. It also knows what follows from where in forward a gather was issued:
/// whether the unit is kept until backward, and when its gradients are complete.
class Prefetcher {
 public:
  /// Both must outlive it.
  Prefetcher(StepBuilder& builder, Gatherer& gatherer);

  /// A microbatch's forward or backward begins.
  void begin_forward();
  void begin_backward();
  /// The hook before the computation of `unit`, which begins with `module` (the root: with the first): issues gathers
  /// and lets the compute lane wait for the unit's own.
  void enter(int unit, int module = 0);
  /// fsdp.checkpoint_reentrant: the two hooks in enter()'s place in backward, before a recomputation and after it.
  void enter_again(int unit);
  void leave_again(int unit);
  /// fsdp.expert_unit = module: the hook before the experts of a block compute, with the block's own parameters whole.
  void enter_experts(int experts, bool recomputes);
  /// Notes a use: the hook after a unit's forward has noted that it was used. FSDP2 goes back along these notes.
  void note_use(int unit);
  /// The unit's backward is over and its parameters are freed: what fsdp.backward_prefetch = "post" gathers then.
  void leave_backward(int unit);
  /// The microbatch's backward is over: from now on the order of units is known.
  void end_backward() { order_known_ = true; }

  /// Whether the unit is freed after its forward, which is over.
  bool frees_after_forward(int unit) const;
  /// Units whose gradients are complete once the backward of `module` is over, in this order.
  std::vector<int> complete_after(int module) const;
  /// fsdp.learn_execution_order: a backward is over, if only of the step before.
  bool order_known() const { return order_known_; }

 private:
  using Prefetch = config::Prefetch;

  const plan::Unit& unit_at(int u) const { return builder_.plan.units[u]; }
  bool forward() const { return builder_.phase == Phase::forward; }
  void issue(int unit, bool prefetch, int module);
  void issue_one(int unit, bool prefetch, int module);
  void unshard_for_backward(int unit);
  /// Those that are gathered at the hooks of the unit itself.
  int experts_of(int unit) const { return builder_.plan.nests_experts ? kNone : unit_at(unit).experts; }
  int with_modules() const { return builder_.plan.with_modules; }
  void prefetch_beside(int unit, int module);
  void prefetch_forward(int unit, int module);
  void prefetch_backward(int unit);
  void prefetch_before(int unit, int depth);
  void prefetch_nested(int unit);
  void prefetch_by_notes(int unit);
  void prefetch_in_order(int unit);
  int next_in_order(int unit) const;
  void prefetch_across(int unit);
  int depth_at(int unit) const;
  std::vector<int> window(int unit, const Prefetch& prefetch) const;
  std::vector<int> next_of_trace(int unit);
  const Prefetch& prefetch() const {
    return forward() ? builder_.policy.fsdp.forward_prefetch : builder_.policy.fsdp.backward_prefetch;
  }

  StepBuilder& builder_;
  Gatherer& gatherer_;
  FetchTrace trace_;
  const int first_trained_;                       // module: no hook below it asks for parameters in backward
  bool order_known_;                              // survives the step
  std::vector<std::vector<int>> complete_after_;  // by module: units, the last one to be complete first
  std::vector<bool> used_in_backward_;            // by unit: its backward has begun
  std::vector<int> used_;                         // units in the order in which their forward ended
  std::vector<std::size_t> last_use_;             // by unit: its last place in used_
};

}  // namespace fsdpbench::schedule
