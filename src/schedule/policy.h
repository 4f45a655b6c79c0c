#pragma once

#include <cstdint>
#include <vector>

#include "config/run_config.h"
#include "plan/plan.h"

namespace fsdpbench::schedule {

/// Choices that decide the order of a step besides the plan; taken from the configuration.
struct Policy {
  config::Fsdp fsdp;
  int accumulate = 1;
  config::AccumulateMode accumulate_mode = config::AccumulateMode::reduce_each;
  config::Optimizer optimizer = config::Optimizer::adamw;
  bool clip = false;
  std::int64_t host_sync_after_layer = -1;
};

/// The policy of a valid configuration.
Policy make_policy(const config::RunConfig& config);

/// Whether the strategy reshards after forward: units but the root are freed after it.
bool strategy_reshards(config::Strategy strategy);
/// Whether a unit's parameters are freed after its forward and gathered again for its backward: the strategy's rule,
/// the root's rule, the override.
bool reshards_after_forward(const Policy& policy, const plan::Plan& plan, int unit);
/// Whether units are freed after a microbatch's backward; after the last one's they always are.
bool reshards_after_backward(const Policy& policy, bool last_micro);

/// Whether units are gathered for their backward before it is their turn.
inline bool prefetches_backward(const config::Fsdp& fsdp) {
  return fsdp.backward_prefetch.mode != config::Prefetch::Mode::none;
}
/// Whether the first unit's backward prefetches the last unit of the microbatch before. FSDP2 (FSDP1 has no such
/// setting) forgets the order of units where a backward ends as the last one. Otherwise the next microbatch's units
/// follow on; a root with parameters stands between them.
bool prefetches_across_microbatches(const Policy& policy, const plan::Plan& plan);

/// Factors that turn a sum over all ranks that see different samples into the mean.
/// before * collectives * after = 1 / data ranks.
struct GradientFactors {
  float before = 1.0F;     ///< on the unsharded gradient
  float shard = 1.0F;      ///< in the reduction over the shard group
  float replicate = 1.0F;  ///< in the reduction over the replicas
  float after = 1.0F;      ///< on the reduced gradient
};

/// FSDP1 divides by the largest power of two that its rule reaches before, by the rest after:
/// f = 1; while W % f == 0 and W / f > f: f *= 2. fsdp.gradient_divide_factor stands for the number of ranks: sums are
/// divided by it on the reduced gradient, or, as FSDP2's PREMUL_SUM does, in the reduction over the shard group.
GradientFactors gradient_factors(const config::Fsdp& fsdp, const plan::Mesh& mesh);

}  // namespace fsdpbench::schedule
