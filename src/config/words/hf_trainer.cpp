#include <array>

#include "config/words/words.h"

// Hugging Face Accelerate's settings of FSDP.

namespace fsdpbench::dialects {

const Words& accelerate_words() {
  static constexpr auto kKeys = std::to_array<KeyWord>({
      {"fsdpforwardprefetch", "fsdp.forward_prefetch"},
      {"fsdpbackwardprefetch", "fsdp.backward_prefetch"},
      {"fsdpautowrappolicy", "fsdp.wrap"},
      {"fsdpminnumparams", "fsdp.wrap"},
      {"fsdpactivationcheckpointing", "fsdp.activation_checkpointing"},
      {"dpshardsize", "mesh.shard"},
      {"dpreplicatesize", "mesh.replicate"},
      {"parallelismconfigdpshardsize", "mesh.shard"},
      {"parallelismconfigdpreplicatesize", "mesh.replicate"},
      {"numprocesses", "mesh.ranks"},
      {"synceachbatch", "train.accumulate_mode"},
  });
  static const Words kWords{.name = "accelerate", .keys = kKeys};
  return kWords;
}

}  // namespace fsdpbench::dialects

// The Trainer of Hugging Face Transformers.

namespace fsdpbench::dialects {

const Words& hf_trainer_words() {
  static constexpr auto kKeys = std::to_array<KeyWord>({
      {"gradientcheckpointing", "fsdp.activation_checkpointing"},
      {"perdevicetrainbatchsize", "train.batch_per_rank"},
      {"maxsteps", "train.steps"},
      {"maxgradnorm", "train.clip_norm"},
      {"adamepsilon", "train.epsilon"},
  });
  static const Words kWords{.name = "hf-trainer", .keys = kKeys};
  return kWords;
}

}  // namespace fsdpbench::dialects
