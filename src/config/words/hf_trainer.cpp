// The Trainer of Hugging Face Transformers.
#include <array>

#include "config/words/words.h"

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
