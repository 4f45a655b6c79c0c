// torch.distributed.fsdp.FullyShardedDataParallel.
#include <array>

#include "config/words/words.h"

namespace fsdpbench::dialects {

const Words& pytorch_fsdp1_words() {
  static constexpr auto kDefaults = std::to_array<Setting>({
      {"fsdp.layout", "flat"},
      {"fsdp.learn_execution_order", true},
      {"fsdp.all_gather_limit", "fsdp1_queue:2"},
      {"fsdp.reduce_scatter_buffers", std::int64_t{0}},
      {"fsdp.gradient_scaling", "pre_post_divide"},
      {"fsdp.keep_unreduced", true},
      {"fsdp.gradients_after_views", true},
  });
  static constexpr auto kPresets = std::to_array<Preset>({{"fsdp1", "fsdp2", kDefaults}});
  static constexpr auto kMeanings = std::to_array<Meaning>({
      {"fsdp.preset", "fullysharddataparallel", "fsdp1"},
      {"fsdp.preset", "fullyshardeddataparallel", "fsdp1"},
      {"fsdp.preset", "fsdpv1", "fsdp1"},
      {"fsdp.strategy", "hybridshardzero2", "hybrid_shard_grad_op"},
      {"fsdp.layout", "flatparam", "flat"},
      {"fsdp.layout", "flatparameter", "flat"},
      {"fsdp.backward_prefetch", "backwardpre", "pre"},
      {"fsdp.backward_prefetch", "backwardpost", "post"},
      {"fsdp.wrap", "transformerblock", "block"},
  });
  static constexpr std::string_view kForwardPrefetch =
      "FSDP1's forward_prefetch=True is 1 (one unit ahead), its False is \"implicit\" (the host runs ahead).";
  static constexpr std::string_view kBackwardPrefetch = "PyTorch's BACKWARD_PRE is \"pre\", BACKWARD_POST is \"post\".";
  static constexpr std::string_view kLimit =
      "FSDP1's limit_all_gathers=True is \"fsdp1_queue:2\", its False is \"unlimited\".";
  static constexpr auto kAnswers = std::to_array<Answer>({
      {"fsdp.forward_prefetch", "true", kForwardPrefetch},
      {"fsdp.forward_prefetch", "false", kForwardPrefetch},
      {"fsdp.backward_prefetch", "true", kBackwardPrefetch},
      {"fsdp.backward_prefetch", "false", kBackwardPrefetch},
      {"fsdp.all_gather_limit", "true", kLimit},
      {"fsdp.all_gather_limit", "false", kLimit},
  });
  static constexpr auto kKeys = std::to_array<KeyWord>({
      {"shardingstrategy", "fsdp.strategy"},
      {"offloadparams", "fsdp.cpu_offload"},
      {"limitallgathers", "fsdp.all_gather_limit"},
      {"mixedprecision", "fsdp.param_dtype"},
      {"autowrappolicy", "fsdp.wrap"},
      {"minnumparams", "fsdp.wrap"},
      {"nosync", "train.accumulate_mode"},
  });
  static constexpr auto kParts = std::to_array<std::string_view>({"FullyShardedDataParallel"});
  static constexpr auto kMeant = std::to_array<std::string_view>({"fsdp1"});
  static const Words kWords{.name = "pytorch-fsdp1",
                            .presets = kPresets,
                            .meanings = kMeanings,
                            .answers = kAnswers,
                            .keys = kKeys,
                            .traces = {.parts = kParts,
                                       .of_one_program = true,
                                       .program = {.sharded = "PyTorch FSDP1 (FullyShardedDataParallel)"},
                                       .presets = kMeant,
                                       .forward_prefetch = "FullyShardedDataParallel._pre_forward_prefetch",
                                       .backward_prefetch = "FullyShardedDataParallel._pre_backward_prefetch",
                                       .post_backward_prefetch = "FullyShardedDataParallel._post_backward_prefetch",
                                       .limiter = "rate_limiter"},
                            .remedies = Remedies{.prefetch_forward = "forward_prefetch=True",
                                                 .prefetch_backward = "backward_prefetch=BackwardPrefetch.BACKWARD_PRE",
                                                 .no_limit = "limit_all_gathers=False",
                                                 .separate_reductions = "",
                                                 .accumulate = "no_sync()",
                                                 .keep_after_forward = "ShardingStrategy.SHARD_GRAD_OP for this module",
                                                 .prefetch_less = "forward_prefetch=False"}};
  return kWords;
}

}  // namespace fsdpbench::dialects
