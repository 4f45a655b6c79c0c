// torchtitan's settings of FSDP2.
#include <array>

#include "dialects/words/words.h"

namespace fsdpbench::dialects {

const Words& torchtitan_words() {
  static constexpr auto kKeys = std::to_array<KeyWord>({
      {"dpshard", "mesh.shard"},
      {"dpreplicate", "mesh.replicate"},
      {"dataparallelsharddegree", "mesh.shard"},
      {"dataparallelreplicatedegree", "mesh.replicate"},
      {"tensorparalleldegree", "mesh.tensor"},
      {"fsdpreshardafterforward", "fsdp.reshard_after_forward"},
      {"mixedprecisionreduce", "fsdp.reduce_dtype"},
      {"mixedprecisionparam", "fsdp.param_dtype"},
      {"selectiveacoption", "fsdp.checkpoint_every"},
      {"enablefsdpsymmmem", "nccl.register_buffers"},
      {"localbatchsize", "train.batch_per_rank"},
      {"maxnorm", "train.clip_norm"},
      {"nlayers", "model.layers"},
      {"dim", "model.width"},
  });
  static const Words kWords{.name = "torchtitan", .keys = kKeys};
  return kWords;
}

}  // namespace fsdpbench::dialects
