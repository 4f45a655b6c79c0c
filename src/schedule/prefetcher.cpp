#include "schedule/prefetcher.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fsdpbench::schedule {
namespace {

std::int64_t numel(const plan::Plan& plan, int unit) { return plan.units[unit].layout.parameter_numel(); }

}  // namespace

FetchTrace::FetchTrace(const Policy& policy, const plan::Plan& plan) : policy_(policy), plan_(plan) {
  const int units = plan.with_modules;
  for (int u = 0; u < units; ++u) uses_.push_back(u);
  uses_.push_back(plan::Plan::kRoot);
  for (int u = units - 1; u > plan::Plan::kRoot; --u) uses_.push_back(u);
  begin();
}

void FetchTrace::begin() {
  at_ = queue_ = 0;
  taken_.assign(plan_.units.size(), -1);
}

std::vector<int> FetchTrace::next(int unit, const std::vector<bool>& missing, std::int64_t live) {
  const auto take = [&] {
    const int u = uses_[queue_];
    taken_[u] = static_cast<int>(queue_++);
    return u;
  };
  while (taken_[unit] < static_cast<int>(at_)) take();
  ++at_;
  std::vector<int> wanted;
  const config::Prefetch& rate = policy_.fsdp.forward_prefetch;
  std::int64_t budget = rate.mode == config::Prefetch::Mode::rate ? rate.elements : 0;
  if (policy_.fsdp.max_live_parameters > 0) budget = std::min(budget, policy_.fsdp.max_live_parameters - live);
  std::int64_t sum = 0;
  while (sum < budget && queue_ < uses_.size()) {
    const int u = take();
    if (!missing[u] || std::ranges::count(wanted, u) > 0) continue;
    wanted.push_back(u);
    sum += numel(plan_, u);
  }
  return wanted;
}

bool FetchTrace::keeps(int unit) const {
  if (taken_[unit] > static_cast<int>(at_)) return true;
  std::int64_t distance = 0;
  for (std::size_t use = at_; use < uses_.size() && distance < policy_.fsdp.max_reuse_distance; ++use) {
    if (uses_[use] == unit) return true;
    distance += numel(plan_, uses_[use]);
  }
  return false;
}

Prefetcher::Prefetcher(StepBuilder& builder, Gatherer& gatherer)
    : builder_(builder),
      gatherer_(gatherer),
      trace_(builder.policy, builder.plan),
      first_trained_(builder.plan.shapes.first_trained()),
      order_known_(!builder.policy.fsdp.learn_execution_order) {}

void Prefetcher::begin_forward() {
  trace_.begin();
  if (builder_.micro == 0 || builder_.policy.fsdp.wait_each_backward) {
    used_.clear();
    last_use_.assign(builder_.plan.units.size(), 0);
  }
  complete_after_.assign(builder_.plan.shapes.modules.size(), {});
}

void Prefetcher::begin_backward() { used_in_backward_.assign(builder_.plan.units.size(), false); }

bool Prefetcher::frees_after_forward(int unit) const {
  return reshards_after_forward(builder_.policy, builder_.plan, unit) && !(order_known_ && trace_.keeps(unit));
}

std::vector<int> Prefetcher::complete_after(int module) const {
  const std::vector<int>& units = complete_after_[module];
  return {units.rbegin(), units.rend()};
}

void Prefetcher::enter(int u, int module) {
  if (!forward()) used_in_backward_[u] = u != kRoot;
  if (prefetch().mode == Prefetch::Mode::ahead) {
    issue(u, false, module);
    prefetch_beside(u, module);
  } else if (prefetch().mode == Prefetch::Mode::window && builder_.policy.fsdp.gathers_ascend) {
    std::vector<int> together = window(u, prefetch());
    next_of_trace(u);  // of a window it says nothing, but counts this hook, and so knows what is used again soon
    const auto own = [&](int target) { return target == u || target == experts_of(u); };
    together.push_back(u);
    if (experts_of(u) != kNone) together.push_back(experts_of(u));
    std::ranges::sort(together, {}, [&](int target) {  // a block, its experts, the next block
      return std::pair(unit_at(target).is_experts() ? unit_at(target).members.experts_of : target, target);
    });
    for (int target : together) issue_one(target, !own(target), module);
    if (experts_of(u) != kNone) gatherer_.wait_for_unshard(experts_of(u));
  } else {
    // FSDP2 goes through a module's parameter groups one by one.
    issue_one(u, false, module);
    gatherer_.wait_for_unshard(u);
    if (experts_of(u) != kNone) {
      issue_one(experts_of(u), false, module);
      gatherer_.wait_for_unshard(experts_of(u));
    }
    prefetch_beside(u, module);
    return;
  }
  gatherer_.wait_for_unshard(u);
}

// A reentrant checkpoint runs the whole forward again, hooks and all, and only then there is a graph whose hooks can
// prefetch for backward. FSDP2's hook of forward gathers its list whatever phase it is in; the one after forward frees
// nothing in backward (pytorch#175406).
void Prefetcher::enter_again(int u) {
  used_in_backward_[u] = true;
  gatherer_.unshard(u, false);
  gatherer_.wait_for_unshard(u);
  const config::Prefetch& ahead = builder_.policy.fsdp.forward_prefetch;
  if (ahead.mode != Prefetch::Mode::explicit_) return;
  for (int next = u + 1; next <= std::min(u + ahead.depth, with_modules() - 1); ++next) gatherer_.unshard(next, true);
}

void Prefetcher::enter_experts(int experts, bool recomputes) {
  gatherer_.unshard(experts, false);
  gatherer_.wait_for_unshard(experts);
  if (recomputes) return;
  if (builder_.plan.orders_experts) {
    prefetch_in_order(experts);
  } else if (!forward() && prefetches_backward(builder_.policy.fsdp)) {
    prefetch_by_notes(experts);
  }
}

void Prefetcher::note_use(int u) {
  if (!unit_at(u).has_parameters()) return;
  last_use_[u] = used_.size();
  used_.push_back(u);
}

void Prefetcher::leave_again(int u) { prefetch_backward(u); }

// FSDP1's gather makes the views of a unit's parameters, and autograd goes back from what was made last to what was
// made first. So it comes to those views, and with them to the unit's reduction, after the backward of all that was
// computed since: of a prefetched unit one module later. FSDP2 hooks on to the inputs of a unit instead.
void Prefetcher::issue(int u, bool prefetch, int module) {
  issue_one(u, prefetch, module);
  if (unit_at(u).has_experts()) issue_one(unit_at(u).experts, prefetch, module);
}

void Prefetcher::issue_one(int u, bool prefetch, int module) {
  const bool does = gatherer_.unshard(u, prefetch);
  const bool counts = builder_.policy.fsdp.gradients_after_views ? does : !prefetch;
  if (forward() && counts) complete_after_[module].push_back(u);
}

void Prefetcher::prefetch_beside(int u, int module) {
  const std::vector<int> traced = next_of_trace(u);
  switch (prefetch().mode) {
    case Prefetch::Mode::window:
      for (int target : window(u, prefetch())) issue_one(target, true, module);
      return;
    case Prefetch::Mode::rate:
      gatherer_.unshard_together(traced, true);
      if (!forward() || !builder_.policy.fsdp.gradients_after_views) return;
      for (int target : traced) {  // one before this unit is for its backward, which has views of its own
        if (target > u && gatherer_.gathered(target)) complete_after_[module].push_back(target);
      }
      return;
    default:
      if (forward()) {
        prefetch_forward(u, module);
      } else if (unit_at(u).has_parameters()) {
        prefetch_backward(u);
      }
  }
}

/// Units that the hook of this unit gathers ahead. A window and a rate count elements, and "post" has a hook of its
/// own.
int Prefetcher::depth_at(int u) const {
  switch (prefetch().mode) {
    case Prefetch::Mode::pre: return 1;
    case Prefetch::Mode::explicit_:
    case Prefetch::Mode::ahead:
      // The root runs its first module only after its own list; PyTorch's users set lists on the blocks.
      if (u == kRoot) return forward() && !builder_.policy.fsdp.root_prefetches_forward ? 0 : 1;
      return prefetch().depth;
    case Prefetch::Mode::none:
    case Prefetch::Mode::implicit:
    case Prefetch::Mode::post:
    case Prefetch::Mode::window:
    case Prefetch::Mode::rate: break;
  }
  return 0;
}

void Prefetcher::prefetch_forward(int u, int module) {
  const int depth = depth_at(u);
  if (depth == 0 || !order_known_) return;
  // A learned order is one of gathers: nothing hangs on to a root that has none.
  if (builder_.policy.fsdp.learn_execution_order && !unit_at(u).has_parameters()) return;
  if (builder_.plan.orders_experts) return prefetch_in_order(u);
  const int last = std::min(u + depth, with_modules() - 1);
  for (int next = u + 1; next <= last; ++next) issue(next, true, module);
}

void Prefetcher::prefetch_backward(int u) {
  if (u == kRoot && !builder_.policy.fsdp.root_prefetches_backward) return;
  if (builder_.plan.orders_experts) return prefetch_in_order(u);
  if (builder_.plan.nests_experts) return prefetch_nested(u);
  prefetch_before(u, depth_at(u));
  prefetch_across(u);
}

/// A list of modules names blocks and the experts in them. The root has none, nor have experts, and the first block's
/// would be empty.
void Prefetcher::prefetch_nested(int u) {
  if (!prefetches_backward(builder_.policy.fsdp)) return;
  const bool listed = prefetch().mode == Prefetch::Mode::explicit_ && u > kRoot + 1;
  if (!listed) return prefetch_by_notes(u);
  for (int target = u - 1; target > kRoot && target >= u - prefetch().depth; --target) {
    gatherer_.unshard(target, true);
    if (unit_at(target).has_experts()) gatherer_.unshard(unit_at(target).experts, true);
  }
}

/// The unit whose use was noted before this one's last. Where a recomputation notes uses, too (fsdp.recompute_frees),
/// that is one whose backward is over: nobody waits for its gather (VeOmni#1043).
void Prefetcher::prefetch_by_notes(int u) {
  if (const std::size_t last = last_use_[u]; last > 0) gatherer_.unshard(used_[last - 1], true);
}

/// Megatron-FSDP's rewrite: a list of all modules a direction, a block before its experts in both.
void Prefetcher::prefetch_in_order(int u) {
  const int depth = depth_at(u);
  for (int ahead = 0; ahead < depth; ++ahead) {
    u = next_in_order(u);
    if (u == kNone) return;
    gatherer_.unshard(u, true);
  }
}

int Prefetcher::next_in_order(int u) const {
  if (unit_at(u).has_experts()) return unit_at(u).experts;
  const int block = unit_at(u).is_experts() ? unit_at(u).members.experts_of : u;
  const int next = forward() ? block + 1 : (block == kRoot ? with_modules() : block) - 1;
  return next > kRoot && next < with_modules() ? next : kNone;
}

void Prefetcher::prefetch_across(int u) {
  const int last = with_modules() - 1;
  if (u != kRoot + 1 || builder_.micro == 0) return;
  if (prefetches_across_microbatches(builder_.policy, builder_.plan) && gatherer_.missing(last)) {
    unshard_for_backward(last);
  }
}

void Prefetcher::leave_backward(int u) {
  if (prefetch().mode == Prefetch::Mode::post && u != kRoot && !unit_at(u).is_experts()) prefetch_before(u, 1);
}

/// FSDP2 prefetches a module's parameter groups for backward in reverse order.
void Prefetcher::unshard_for_backward(int u) {
  if (experts_of(u) != kNone) gatherer_.unshard(experts_of(u), true);
  gatherer_.unshard(u, true);
}

void Prefetcher::prefetch_before(int u, int depth) {
  // Post-forward order: 1, 2, …, n, root. What comes before the root is the last unit.
  const int from = u == kRoot ? with_modules() : u;
  // FSDP1 knows that it stops at the first unit that trains, since outputs below need no gradient; FSDP2 goes by the
  // order of forward alone.
  const int first = builder_.policy.fsdp.gradients_after_views ? builder_.plan.unit_of_module[first_trained_] : kRoot;
  // Without a list, which the root never has, a unit of one parameter group goes back by one group, not by one module:
  // of a block with experts it leaves the other group to the block's own hook.
  const bool listed = prefetch().mode == Prefetch::Mode::explicit_ && u != kRoot;
  const bool one_group = !listed && experts_of(u) == kNone;
  for (int target = from - 1; target > kRoot && target >= std::max(first, from - depth); --target) {
    if (used_in_backward_[target]) continue;
    if (one_group && experts_of(target) != kNone) {
      gatherer_.unshard(experts_of(target), true);
    } else {
      unshard_for_backward(target);
    }
  }
}

/// The units after this one, until those before the last hold as many elements as the window.
std::vector<int> Prefetcher::window(int u, const Prefetch& prefetch) const {
  if (!order_known_ || (!forward() && u == kRoot && !builder_.policy.fsdp.root_prefetches_backward)) return {};
  const int units = with_modules();
  std::vector<int> targets;
  std::vector<std::int64_t> beside;  // what is decided on and not issued yet
  const auto bytes = [&](int target) {
    return unit_at(target).layout.gathered_numel() * size_of(builder_.plan.param_dtype);
  };
  for (const int own : {u, experts_of(u)}) {
    if (own > kRoot && gatherer_.missing(own)) beside.push_back(bytes(own));
  }
  std::int64_t sum = 0;
  bool full = false;
  const auto take = [&](int target) {
    full = full || sum >= prefetch.elements;
    if (full || target == kNone) return;
    sum += unit_at(target).layout.parameter_numel();
    if (!gatherer_.missing(target)) return;
    full = !gatherer_.allows_prefetch(target, beside);
    if (full) return;
    targets.push_back(target);
    beside.push_back(bytes(target));
  };
  int target = forward() ? u + 1 : (u == kRoot ? units : u) - 1;
  for (; target > kRoot && target < units && !full; target += forward() ? 1 : -1) {
    const int experts = experts_of(target);  // they count by themselves, behind their block, and going back before it
    for (const int next : {forward() ? target : experts, forward() ? experts : target}) take(next);
  }
  return targets;
}

std::vector<int> Prefetcher::next_of_trace(int u) {
  std::vector<bool> missing;
  for (int other = 0; other < static_cast<int>(builder_.plan.units.size()); ++other) {
    missing.push_back(gatherer_.missing(other));
  }
  std::vector<int> wanted = trace_.next(u, missing, gatherer_.live_elements());
  if (!order_known_) wanted.clear();
  return wanted;
}

}  // namespace fsdpbench::schedule
