// torchtitan's settings of FSDP2.
#include <array>

#include "config/words/words.h"

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
