// Every key of [fsdp] changes the schedule, or what its ops take on a machine: one that does nothing fails here, and so
// does one that nobody has thought of here.
#include <gtest/gtest.h>

#include <map>

#include "account/run_metrics.h"
#include "config/cluster.h"
#include "support/presets.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using config::RunConfig;
using config::Value;

using Settings = std::vector<std::pair<std::string, Value>>;

/// Settings with which the key matters, and a value that it does not have then.
struct Change {
  Settings given;
  Value to;
  std::string preset = "fsdp2";
};

RunConfig base(const Change& change) {
  RunConfig c = testing::tiny_decoder();
  c.model.layers = 6;
  const std::int64_t unit = set_up(testing::settled(c)).plan.units[1].layout.parameter_numel();
  c = testing::with_scaled_preset(c, change.preset, unit);
  for (const auto& [key, value] : change.given) testing::set(c, key, value);
  return c;
}

Value text(const char* value) { return std::string(value); }
Value number(std::int64_t value) { return value; }

const std::map<std::string, Change>& changes() {
  const Value yes = true, no = false;
  static const Settings kSplitExperts{
      {"model.experts", number(4)}, {"model.active_experts", number(2)}, {"mesh.expert", number(2)}};
  static const std::map<std::string, Change> kChanges{
      {"strategy", {{}, text("shard_grad_op")}},
      {"layout", {{}, text("flat")}},
      {"reshard_after_forward", {{}, no}},
      {"reshard_after_backward", {{{"train.accumulate", number(2)}, {"train.accumulate_mode", text("no_sync")}}, no}},
      {"keep_unreduced",
       {{{"fsdp.strategy", text("shard_grad_op")},
         {"train.accumulate", number(2)},
         {"train.accumulate_mode", text("no_sync")}},
        yes}},
      {"wait_each_backward", {{{"train.accumulate", number(2)}}, no}},
      {"gradients_after_views", {{{"fsdp.forward_prefetch", number(1)}}, yes}},
      {"forward_prefetch", {{}, text("none")}},
      {"learn_execution_order", {{{"fsdp.forward_prefetch", number(1)}}, yes}},
      {"backward_prefetch", {{}, text("none")}},
      {"all_gather_limit", {{}, text("strict:1")}},
      {"reduce_scatter_buffers", {{}, number(2)}},
      {"separate_reduce_scatter_comm", {{}, yes}},
      {"wrap", {{}, text("blocks:2")}},
      {"param_dtype", {{}, text("bf16")}},
      {"reduce_dtype", {{}, text("bf16")}},
      {"state_dtype", {{}, text("bf16")}},
      {"gradient_scaling", {{}, text("pre_post_divide")}},
      {"activation_checkpointing", {{}, yes}},
      {"checkpoint_every", {{{"fsdp.activation_checkpointing", yes}}, number(2)}},
      {"recompute_share", {{{"fsdp.activation_checkpointing", yes}}, 0.5}},
      {"checkpoint_keeps", {{{"fsdp.activation_checkpointing", yes}}, text("products")}},
      {"checkpoint_reentrant", {{{"fsdp.activation_checkpointing", yes}, {"fsdp.forward_prefetch", number(1)}}, yes}},
      {"expert_unit", {kSplitExperts, text("module")}},
      {"recompute_frees",
       {{{"fsdp.expert_unit", text("module")},
         {"fsdp.activation_checkpointing", yes},
         kSplitExperts[0],
         kSplitExperts[1],
         kSplitExperts[2]},
        yes}},
      {"fp8_products", {{{"fsdp.param_dtype", text("bf16")}}, yes}},
      {"fp8_recipe", {{{"fsdp.param_dtype", text("bf16")}, {"fsdp.fp8_products", yes}}, text("tensorwise")}},
      {"shard_threshold", {{}, number(100)}},
      {"max_live_parameters", {{{"fsdp.max_reuse_distance", number(0)}}, number(1), "deepspeed-z3"}},
      {"max_reuse_distance", {{}, number(0), "deepspeed-z3"}},
      {"persistence_threshold", {{}, number(1'000'000)}},
      {"gathers_ascend", {{}, no, "megatron-v1"}},
      {"gathers_follow_compute", {{}, no, "megatron-v1"}},
      {"root_prefetches_forward", {{{"fsdp.forward_prefetch", number(1)}}, no}},
      {"root_prefetches_backward", {{}, no}},
      {"free_lane", {{}, text("compute"), "megatron-v2"}},
      {"reduce_bucket", {{}, number(1'000'000)}},
      {"reduce_by", {{}, text("all_reduce")}},
      {"reduce_lane", {{}, text("all_gather")}},
      {"reduce_lag", {{}, number(1)}},
      {"reductions_in_flight", {{}, number(1), "deepspeed-z3"}},
      {"reduce_scatter_elements", {{}, number(0), "megatron-v1"}},
      {"gradient_copy_in", {{}, no, "megatron-v2"}},
      {"head_unit", {{}, yes}},
      {"gradient_divide_factor", {{}, 2.0}},
      {"host_sync_at_group_shard", {{{"fsdp.reshard_after_forward", number(2)}}, yes}},
      {"keep_group_shard", {{{"fsdp.reshard_after_forward", number(2)}}, yes}},
      {"cpu_offload", {{}, text("all")}},
      {"cast_in_optimizer", {{{"fsdp.param_dtype", text("bf16")}}, yes}},
      {"fp32_gradients", {{{"fsdp.param_dtype", text("bf16")}}, yes}},
  };
  return kChanges;
}

double step_on_a_gpu_ms(const Setup& setup) {
  static const config::Cluster kCluster = config::load_cluster("dgx-h100");
  const Measurement m = simulate(setup, simulated_times(setup, &kCluster));
  return account::run_metrics({setup.schedules, m.traces, m.slowest_ns}, setup.plan.groups, 1).step_ms.median;
}

TEST(FsdpKey, ChangesTheScheduleOrWhatItsOpsTake) {
  for (const config::Field& field : config::fields()) {
    if (field.table != "fsdp" || field.key == "preset") continue;
    const auto found = changes().find(field.key);
    ASSERT_NE(found, changes().end()) << field.name() << ": say here what it changes";
    RunConfig c = base(found->second);
    const engine::Setup without = set_up(testing::settled(c));
    ASSERT_TRUE(field.read(c, found->second.to)) << field.name();
    const engine::Setup with = set_up(testing::settled(c));
    EXPECT_TRUE(without.schedules.steps != with.schedules.steps || step_on_a_gpu_ms(without) != step_on_a_gpu_ms(with))
        << field.name() << " does nothing";
  }
}

}  // namespace
}  // namespace fsdpbench::engine
