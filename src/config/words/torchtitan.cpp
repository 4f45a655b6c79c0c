#include <array>

#include "config/words/words.h"

// SimpleFSDP: torchtitan's graph trainer, ordered by a compiler's pass.

namespace fsdpbench::dialects {

const Words& simplefsdp_words() {
  static constexpr auto kDefaults = std::to_array<Setting>({
      {"fsdp.forward_prefetch", "ahead:1"},
      {"fsdp.backward_prefetch", "ahead:1"},
      {"fsdp.all_gather_limit", "unlimited"},
      {"fsdp.gathers_follow_compute", true},
      {"fsdp.reduce_scatter_buffers", std::int64_t{2}},
      {"fsdp.head_unit", true},
  });
  static constexpr auto kPresets = std::to_array<Preset>({{"simplefsdp", "fsdp2", kDefaults}});
  // Whatever torch.compile made has these.
  static constexpr auto kParts = std::to_array<std::string_view>({"CompiledFxGraph", "_c10d_functional::"});
  static constexpr auto kMeant = std::to_array<std::string_view>({"simplefsdp", "xla", "xla-pipelined"});
  static const Words kWords{
      .name = "simplefsdp",
      .presets = kPresets,
      .traces = {.parts = kParts, .program = {.sharded = "compiled FSDP (SimpleFSDP)"}, .presets = kMeant}};
  return kWords;
}

}  // namespace fsdpbench::dialects

// torchtitan's settings of FSDP2.

namespace fsdpbench::dialects {

const Words& torchtitan_words() {
  // What it does once expert_parallel_degree is above 1 (distributed/fsdp.py of 0.3): the host waits for counts of rows
  // in each block, so modules to prefetch are listed.
  static constexpr auto kExperts = std::to_array<Setting>({
      {"fsdp.forward_prefetch", "explicit:1"},
      {"fsdp.backward_prefetch", "explicit:1"},
      {"fsdp.gradient_scaling", "sum"},
      {"fsdp.head_unit", true},
  });
  static constexpr auto kPresets = std::to_array<Preset>({{"torchtitan-moe", "fsdp2", kExperts}});
  static constexpr auto kKeys = std::to_array<KeyWord>({
      {"dpshard", "mesh.shard"},
      {"dpreplicate", "mesh.replicate"},
      {"dataparallelsharddegree", "mesh.shard"},
      {"dataparallelreplicatedegree", "mesh.replicate"},
      {"tensorparalleldegree", "mesh.tensor"},
      {"expertparalleldegree", "mesh.expert"},
      {"fsdpreshardafterforward", "fsdp.reshard_after_forward"},
      {"mixedprecisionreduce", "fsdp.reduce_dtype"},
      {"mixedprecisionparam", "fsdp.param_dtype"},
      {"selectiveacoption", "fsdp.checkpoint_every"},
      {"enablefsdpsymmmem", "nccl.register_buffers"},
      {"numsharedexperts", "model.shared_experts"},
      {"localbatchsize", "train.batch_per_rank"},
      {"maxnorm", "train.clip_norm"},
      {"nlayers", "model.layers"},
      {"dim", "model.width"},
  });
  static const Words kWords{.name = "torchtitan", .presets = kPresets, .keys = kKeys};
  return kWords;
}

}  // namespace fsdpbench::dialects
