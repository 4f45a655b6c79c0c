// Megatron-FSDP, the first version and its rewrite of 2026.
#include <array>

#include "config/words/words.h"

namespace fsdpbench::dialects {

const Words& megatron_fsdp_words() {
  static constexpr auto kV1 = std::to_array<Setting>({
      {"fsdp.layout", "flat"},
      {"fsdp.forward_prefetch", "window:500000000"},
      {"fsdp.backward_prefetch", "window:500000000"},
      {"fsdp.all_gather_limit", "unlimited"},
      {"fsdp.gathers_ascend", true},
      {"fsdp.gathers_follow_compute", true},
      {"fsdp.root_prefetches_backward", false},
      {"fsdp.reduce_scatter_elements", std::int64_t{1'000'000'000}},
  });
  static constexpr auto kV2 = std::to_array<Setting>({
      {"fsdp.layout", "flat"},
      {"fsdp.reshard_after_forward", true},
      {"fsdp.forward_prefetch", "explicit:1"},
      {"fsdp.backward_prefetch", "explicit:1"},
      {"fsdp.all_gather_limit", "unlimited"},
      {"fsdp.free_lane", "all_gather"},
      {"fsdp.gradient_copy_in", true},
  });
  // megatron_fsdp/param_and_grad_buffer.py of August 2026: a bucket of a unit's experts beside that of the rest,
  // gathered and freed with it, reduced as its gradients become complete.
  static constexpr auto kExperts = std::to_array<Setting>({{"fsdp.expert_unit", "bucket"}});
  // mcore_fsdp_adapter.py and experimental/module.py of August 2026: fully_shard on the experts of a layer, without
  // what sends rows, and on the layer; two static orders of all modules.
  static constexpr auto kV2Experts = std::to_array<Setting>({{"fsdp.expert_unit", "ordered_module"}});
  static constexpr auto kPresets = std::to_array<Preset>({{"megatron-v1", "fsdp2", kV1},
                                                          {"megatron-v2", "fsdp2", kV2},
                                                          {"megatron-moe", "megatron-v1", kExperts},
                                                          {"megatron-v2-moe", "megatron-v2", kV2Experts}});
  static constexpr auto kMeanings = std::to_array<Meaning>({
      {"fsdp.preset", "megatronfsdp", "megatron-v1"},
      {"fsdp.strategy", "optimgradsparams", "full_shard"},
      {"fsdp.strategy", "optimgrads", "shard_grad_op"},
  });
  static constexpr auto kAnswers = std::to_array<Answer>({
      {"fsdp.preset", "megatron", "Megatron-FSDP is \"megatron-v1\", its rewrite of 2026 \"megatron-v2\"."},
      {"fsdp.strategy", "optim",
       "ZeRO-1 shards the optimizer only: that is fsdp.preset = \"deepspeed-z1\"; \"shard_grad_op\" (ZeRO-2) shards "
       "gradients, too."},
  });
  static constexpr auto kKeys = std::to_array<KeyWord>({
      {"zerodpstrategy", "fsdp.strategy"},
      {"dataparallelshardingstrategy", "fsdp.strategy"},
      {"fsdpdoublebuffer", "fsdp.all_gather_limit"},
      {"unifycommunicationstream", "fsdp.reduce_lane"},
      {"gradcommdtype", "fsdp.reduce_dtype"},
      {"megatronfsdpgradcommdtype", "fsdp.reduce_dtype"},
      {"suggestedcommunicationunitsize", "fsdp.forward_prefetch"},
      {"createallgathergroup", "fsdp.separate_reduce_scatter_comm"},
      {"fsdpgroupag", "fsdp.separate_reduce_scatter_comm"},
      {"averageincollective", "fsdp.gradient_scaling"},
      {"ddpaverageincollective", "fsdp.gradient_scaling"},
      {"ncclub", "nccl.register_buffers"},
      {"usencclub", "nccl.register_buffers"},
      {"fsdpunitmodules", "fsdp.wrap"},
      {"recomputegranularity", "fsdp.activation_checkpointing"},
      {"recomputemodules", "fsdp.checkpoint_keeps"},
      {"numdistributedoptimizerinstances", "mesh.replicate"},
      {"tensormodelparallelsize", "mesh.tensor"},
      {"sequenceparallel", "mesh.sequence_parallel"},
      {"microbatchsize", "train.batch_per_rank"},
      {"globalbatchsize", "train.batch_global"},
      {"seqlength", "train.seq_len"},
      {"expertmodelparallelsize", "mesh.expert"},
      {"clipgrad", "train.clip_norm"},
      {"adambeta1", "train.beta1"},
      {"adambeta2", "train.beta2"},
      {"adameps", "train.epsilon"},
      {"numlayers", "model.layers"},
      {"hiddensize", "model.width"},
      {"linearqkv", "model.fused_projections"},
  });
  static constexpr auto kParts =
      std::to_array<std::string_view>({"megatron", "Megatron", "MCoreFSDP", "RegisterFSDPBackwardFunction"});
  static constexpr auto kMeant = std::to_array<std::string_view>({"megatron-v2", "megatron-v1"});
  static constexpr auto kMeantExperts = std::to_array<std::string_view>({"megatron-v2-moe", "megatron-moe"});
  static const Words kWords{.name = "megatron-fsdp",
                            .presets = kPresets,
                            .meanings = kMeanings,
                            .answers = kAnswers,
                            .keys = kKeys,
                            .traces = {.parts = kParts,
                                       .of_one_program = true,
                                       .program = {.sharded = "Megatron-FSDP"},
                                       .presets = kMeant,
                                       .expert_presets = kMeantExperts},
                            .remedies = Remedies{.prefetch_forward = "suggested_communication_unit_size",
                                                 .prefetch_backward = "suggested_communication_unit_size",
                                                 .no_limit = "",
                                                 .separate_reductions = "a process group of its own for all-gathers",
                                                 .accumulate = "gradient accumulation"}};
  return kWords;
}

}  // namespace fsdpbench::dialects
