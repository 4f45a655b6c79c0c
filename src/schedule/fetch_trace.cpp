#include "schedule/fetch_trace.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fsdpbench::schedule {
namespace {

std::int64_t numel(const plan::Plan& plan, int unit) {
  return plan.units[static_cast<std::size_t>(unit)].layout.parameter_numel();
}

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
    taken_[static_cast<std::size_t>(u)] = static_cast<int>(queue_++);
    return u;
  };
  while (taken_[static_cast<std::size_t>(unit)] < static_cast<int>(at_)) take();
  ++at_;
  std::vector<int> wanted;
  if (policy_.fsdp.forward_prefetch.mode != config::Prefetch::Mode::rate) return wanted;
  std::int64_t budget = policy_.fsdp.forward_prefetch.elements;
  if (policy_.fsdp.max_live_parameters > 0) budget = std::min(budget, policy_.fsdp.max_live_parameters - live);
  std::int64_t sum = 0;
  while (sum < budget && queue_ < uses_.size()) {
    const int u = take();
    if (!missing[static_cast<std::size_t>(u)] || std::ranges::count(wanted, u) > 0) continue;
    wanted.push_back(u);
    sum += numel(plan_, u);
  }
  return wanted;
}

bool FetchTrace::keeps(int unit) const {
  if (taken_[static_cast<std::size_t>(unit)] > static_cast<int>(at_)) return true;
  std::int64_t distance = 0;
  for (std::size_t use = at_; use < uses_.size() && distance < policy_.fsdp.max_reuse_distance; ++use) {
    if (uses_[use] == unit) return true;
    distance += numel(plan_, uses_[use]);
  }
  return false;
}

std::vector<int> gathers_a_microbatch(const Policy& policy, const plan::Plan& plan) {
  const int units = plan.with_modules;
  std::vector<int> gathers(plan.units.size(), 0);
  std::vector<bool> missing(plan.units.size(), true);
  for (int u = 0; u < units; ++u) {
    const plan::Unit& unit = plan.units[static_cast<std::size_t>(u)];
    if (!plan.shares_units() || !unit.has_sharded() || unit.stays_gathered)
      missing[static_cast<std::size_t>(u)] = false;
  }
  const std::vector<bool> never = missing;
  std::int64_t live = 0;
  const auto gather = [&](int u) {
    const auto i = static_cast<std::size_t>(u);
    if (!missing[i]) return;
    missing[i] = false;
    ++gathers[i];
    live += numel(plan, u);
  };
  const auto release = [&](int u) {
    const auto i = static_cast<std::size_t>(u);
    if (missing[i] || !never[i]) return;
    missing[i] = true;
    live -= numel(plan, u);
  };
  FetchTrace trace(policy, plan);
  const auto hook = [&](int u) {
    gather(u);
    for (int wanted : trace.next(u, missing, live)) gather(wanted);
  };
  const auto after_forward = [&](int u) {
    if (reshards_after_forward(policy, plan, u) && !trace.keeps(u)) release(u);
  };
  for (int u = 0; u < units; ++u) {
    hook(u);
    if (u != plan::Plan::kRoot) after_forward(u);
  }
  after_forward(plan::Plan::kRoot);
  hook(plan::Plan::kRoot);
  for (int u = units - 1; u > plan::Plan::kRoot; --u) {
    hook(u);
    release(u);
  }
  return gathers;
}

namespace {

/// The first unit that a backward gathers again. Below the first unit that trains only prefetches bring any, which go
/// by the order of forward alone (FSDP2).
int first_regathered(const Policy& policy, const plan::Plan& plan) {
  using Mode = config::Prefetch::Mode;
  const int first = plan.unit_of_module[static_cast<std::size_t>(plan.shapes.first_trained())];
  const config::Prefetch& prefetch = policy.fsdp.backward_prefetch;
  if (policy.fsdp.gradients_after_views) return first;
  if (prefetch.mode == Mode::pre) return first - 1;
  return prefetch.mode == Mode::explicit_ ? first - prefetch.depth : first;
}

/// Whether a recomputation in backward gathers this unit, whose own backward is over: fsdp.checkpoint_reentrant.
/// Each block is a unit: validate() sees to that.
bool comes_again_in_recomputation(const Policy& policy, int unit) {
  const config::Fsdp& fsdp = policy.fsdp;
  if (!fsdp.checkpoint_reentrant || !fsdp.activation_checkpointing) return false;
  if (fsdp.forward_prefetch.mode != config::Prefetch::Mode::explicit_) return false;
  for (int u = unit - 1; u > plan::Plan::kRoot && u >= unit - fsdp.forward_prefetch.depth; --u) {
    if ((u - 1) % fsdp.checkpoint_every == 0) return true;
  }
  return false;
}

/// fsdp.recompute_frees: the backward of a recomputed block gathers its experts once more, and those of the recomputed
/// block behind it, whose recomputation was noted last: nobody waits for these.
void add_after_recomputations(const Policy& policy, const plan::Plan& plan, std::vector<int>& unused) {
  const config::Fsdp& fsdp = policy.fsdp;
  if (!plan.nests_experts || !fsdp.activation_checkpointing || !fsdp.recompute_frees) return;
  const bool by_notes = prefetches_backward(fsdp);
  // What a microbatch's backward leaves gathered, the next forward uses.
  const int dropped = reshards_after_backward(policy, false) && fsdp.wait_each_backward ? policy.accumulate : 1;
  bool first = true;
  for (int u = plan::Plan::kRoot + 1; u < plan.with_modules; ++u) {
    const int experts = plan.units[static_cast<std::size_t>(u)].experts;
    if (experts < 0 || (u - 1) % fsdp.checkpoint_every != 0) continue;
    int& more = unused[static_cast<std::size_t>(experts)];
    if (reshards_after_forward(policy, plan, experts)) more += policy.accumulate;
    if (by_notes && !std::exchange(first, false)) more += dropped;
  }
}

}  // namespace

plan::Regathers regathers(const Policy& policy, const plan::Plan& plan) {
  plan::Regathers result;
  const std::vector<int> gathers = gathers_a_microbatch(policy, plan);
  std::ranges::transform(gathers, std::back_inserter(result.for_backward), [](int n) { return n > 1; });
  result.unused.assign(plan.units.size(), 0);
  const int first = first_regathered(policy, plan);
  for (int u = plan::Plan::kRoot + 1; u < std::min(first, plan.with_modules); ++u) {
    result.for_backward[static_cast<std::size_t>(u)] = false;
  }
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    if (const int of = plan.units[u].members.experts_of; of >= 0) {
      result.for_backward[u] = result.for_backward[static_cast<std::size_t>(of)];
    }
  }
  const int last = plan.with_modules - 1;
  const bool reaches_first_unit =
      plan.unit_of_module[static_cast<std::size_t>(plan.shapes.first_trained())] <= plan::Plan::kRoot + 1;
  if (policy.accumulate > 1 && last > plan::Plan::kRoot + 1 && reaches_first_unit &&
      prefetches_across_microbatches(policy, plan) && !plan.units[static_cast<std::size_t>(last)].stays_gathered) {
    ++result.unused[static_cast<std::size_t>(last)];
  }
  for (int u = plan::Plan::kRoot + 2; u < plan.with_modules; ++u) {
    if (comes_again_in_recomputation(policy, u)) {
      result.unused[static_cast<std::size_t>(u)] += reshards_after_backward(policy, false) ? policy.accumulate : 1;
    }
  }
  add_after_recomputations(policy, plan, result.unused);
  return result;
}

}  // namespace fsdpbench::schedule
