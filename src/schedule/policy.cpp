#include "schedule/policy.h"

#include <algorithm>

namespace fsdpbench::schedule {

Policy make_policy(const config::RunConfig& config) {
  Policy policy;
  policy.fsdp = config.fsdp;
  policy.accumulate = static_cast<int>(config.train.accumulate);
  policy.accumulate_mode = config.train.accumulate_mode;
  policy.optimizer = config.train.optimizer;
  policy.clip = config.train.clip_norm > 0;
  policy.host_sync_after_layer = config.inject.host_sync_after_layer;
  return policy;
}

bool strategy_reshards(config::Strategy strategy) {
  return strategy == config::Strategy::full_shard || strategy == config::Strategy::hybrid_shard;
}

bool reshards_after_forward(const Policy& policy, const plan::Plan& plan, int unit) {
  using Mode = config::ReshardAfterForward::Mode;
  if (!plan.shares_units()) return false;  // no_shard: nothing to win
  const config::ReshardAfterForward& reshard = policy.fsdp.reshard_after_forward;
  switch (reshard.mode) {
    case Mode::always: return true;
    case Mode::never: return false;
    case Mode::group: return reshard.group > 1;  // a group of one keeps everything
    case Mode::automatic: break;
  }
  // Backward begins with the root: gathering it again at once would only cost time.
  return strategy_reshards(policy.fsdp.strategy) && unit != plan::Plan::kRoot;
}

bool reshards_after_backward(const Policy& policy, bool last_micro) {
  using Mode = config::ReshardAfterForward::Mode;
  if (last_micro) return true;
  if (!policy.fsdp.reshard_after_backward) return false;
  const bool reduces = policy.accumulate_mode != config::AccumulateMode::no_sync;
  if (reduces || !policy.fsdp.keep_unreduced) return true;
  // FSDP1 asks the strategy, not the unit: a root that forward keeps is freed with the others.
  const Mode forward = policy.fsdp.reshard_after_forward.mode;
  return forward == Mode::automatic ? strategy_reshards(policy.fsdp.strategy) : forward != Mode::never;
}

bool prefetches_across_microbatches(const Policy& policy, const plan::Plan& plan) {
  using Mode = config::Prefetch::Mode;
  const Mode mode = policy.fsdp.backward_prefetch.mode;
  if (mode != Mode::explicit_ && mode != Mode::ahead && mode != Mode::pre) return false;
  return !policy.fsdp.wait_each_backward && !policy.fsdp.gradients_after_views &&
         !plan.units[plan::Plan::kRoot].has_parameters();
}

GradientFactors gradient_factors(const config::Fsdp& fsdp, const plan::Mesh& mesh) {
  GradientFactors factors;
  const int ranks = mesh.data_ranks();
  if (fsdp.gradient_divide_factor > 0) {
    const auto factor = static_cast<float>(1.0 / fsdp.gradient_divide_factor);
    (fsdp.gradient_scaling == config::GradientScaling::average && mesh.shard > 1 ? factors.shard : factors.after) =
        factor;
    return factors;
  }
  switch (fsdp.gradient_scaling) {
    case config::GradientScaling::average:
      factors.shard = 1.0F / static_cast<float>(mesh.shard);
      factors.replicate = 1.0F / static_cast<float>(mesh.replicate);
      break;
    case config::GradientScaling::sum: factors.after = 1.0F / static_cast<float>(ranks); break;
    case config::GradientScaling::pre_post_divide: {
      int before = 1;
      while (ranks % before == 0 && ranks / before > before) before *= 2;
      factors.before = 1.0F / static_cast<float>(before);
      factors.after = static_cast<float>(before) / static_cast<float>(ranks);
      break;
    }
  }
  return factors;
}

}  // namespace fsdpbench::schedule
