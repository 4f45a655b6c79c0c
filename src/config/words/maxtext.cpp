// MaxText, and XLA on GPUs, which schedules what MaxText writes down.
#include <array>

#include "config/words/words.h"

namespace fsdpbench::dialects {

const Words& maxtext_words() {
  // A scan over layers with rematerialisation: one collective in flight, reductions one iteration late.
  static constexpr auto kXla = std::to_array<Setting>({
      {"fsdp.layout", "flat"},
      {"fsdp.forward_prefetch", "none"},
      {"fsdp.backward_prefetch", "none"},
      {"fsdp.all_gather_limit", "unlimited"},
      {"fsdp.gathers_follow_compute", true},
      {"fsdp.reduce_lane", "all_gather"},
      {"fsdp.reduce_lag", std::int64_t{1}},
      {"fsdp.activation_checkpointing", true},
  });
  static constexpr auto kPipelined =
      std::to_array<Setting>({{"fsdp.forward_prefetch", "explicit:1"}, {"fsdp.backward_prefetch", "explicit:1"}});
  static constexpr auto kPresets =
      std::to_array<Preset>({{"xla", "fsdp2", kXla}, {"xla-pipelined", "xla", kPipelined}});
  static constexpr auto kKeys = std::to_array<KeyWord>({
      {"rematpolicy", "fsdp.activation_checkpointing"},
      {"icifsdpparallelism", "mesh.shard"},
      {"dcndataparallelism", "mesh.replicate"},
      {"perdevicebatchsize", "train.batch_per_rank"},
      {"maxtargetlength", "train.seq_len"},
      {"gradientclippingthreshold", "train.clip_norm"},
      {"adamb1", "train.beta1"},
      {"adamb2", "train.beta2"},
      {"adamweightdecay", "train.weight_decay"},
      {"basenumdecoderlayers", "model.layers"},
      {"baseembdim", "model.width"},
      {"basenumqueryheads", "model.heads"},
      {"basenumkvheads", "model.kv_heads"},
      {"basemlpdim", "model.ffn_width"},
      {"ropemaxtimescale", "model.rope_theta"},
      {"logitsviaembedding", "model.tied_head"},
      {"fusedqkv", "model.fused_projections"},
      {"fusedmlp", "model.fused_projections"},
  });
  static constexpr auto kParts = std::to_array<std::string_view>({"ThunkExecutor", "XlaModule"});
  static constexpr auto kMeant = std::to_array<std::string_view>({"xla", "xla-pipelined"});
  static const Words kWords{.name = "maxtext",
                            .presets = kPresets,
                            .keys = kKeys,
                            .traces = {.parts = kParts,
                                       .program = {.sharded = "fully sharded data parallel training compiled by XLA"},
                                       .presets = kMeant}};
  return kWords;
}

}  // namespace fsdpbench::dialects
