#include <algorithm>
#include <array>

#include "config/words/words.h"

// torch.nn.parallel.DistributedDataParallel.

namespace fsdpbench::dialects {

const Words& pytorch_ddp_words() {
  static constexpr auto kMeanings = std::to_array<Meaning>({{"fsdp.strategy", "ddp", "no_shard"}});
  static constexpr auto kParts = std::to_array<std::string_view>({"DistributedDataParallel"});
  static const Words kWords{
      .name = "pytorch-ddp",
      .meanings = kMeanings,
      .traces = {
          .parts = kParts, .of_one_program = true, .program = {.data_parallel = "PyTorch DistributedDataParallel"}}};
  return kWords;
}

}  // namespace fsdpbench::dialects

// torch.distributed.fsdp.FullyShardedDataParallel.

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

// torch.distributed.fsdp.fully_shard: gathers in order of use, prefetches one unit in backward.

namespace fsdpbench::dialects {
namespace {

/// FSDP2 writes "FSDP::all_gather (layers.0)", and no brackets for the root; a prefetch "… for layers.1".
std::optional<std::string> unit_word(std::string_view name) {
  if (!name.starts_with("FSDP::")) return std::nullopt;
  if (const auto place = name.find("_prefetch for "); place != std::string_view::npos) {
    return std::string(name.substr(place + std::string_view("_prefetch for ").size()));
  }
  const auto open = name.find(" (");
  const std::string_view verb = name.substr(6, open == std::string_view::npos ? open : open - 6);
  static constexpr std::array<std::string_view, 8> kOfUnits{"all_gather",
                                                            "pre_forward",
                                                            "post_forward",
                                                            "pre_backward",
                                                            "post_backward",
                                                            "post_backward_reduce",
                                                            "post_backward_accumulate",
                                                            "post_backward_reshard"};
  if (std::ranges::find(kOfUnits, verb) == kOfUnits.end()) return std::nullopt;
  if (open == std::string_view::npos) return std::string();
  const auto close = name.rfind(')');
  return std::string(name.substr(open + 2, close == std::string_view::npos ? close : close - open - 2));
}

}  // namespace

const Words& pytorch_fsdp2_words() {
  // The defaults of config::Fsdp: what any other preset changes is here, so that a later preset changes all that an
  // earlier one did.
  static constexpr auto kDefaults = std::to_array<Setting>({
      {"fsdp.layout", "per_param"},
      {"fsdp.forward_prefetch", "implicit"},
      {"fsdp.learn_execution_order", false},
      {"fsdp.backward_prefetch", "pre"},
      {"fsdp.all_gather_limit", "fsdp2_event"},
      {"fsdp.reduce_scatter_buffers", std::int64_t{1}},
      {"fsdp.gradient_scaling", "average"},
      {"fsdp.keep_unreduced", false},
      {"fsdp.gradients_after_views", false},
  });
  static constexpr auto kPresets = std::to_array<Preset>({{"fsdp2", "", kDefaults}});
  static constexpr auto kMeanings = std::to_array<Meaning>({
      {"fsdp.preset", "fullyshard", "fsdp2"},
      {"fsdp.preset", "fsdpv2", "fsdp2"},
      {"fsdp.layout", "perparameter", "per_param"},
      {"fsdp.layout", "dtensor", "per_param"},
      {"fsdp.reshard_after_forward", "none", "auto"},
  });
  static constexpr auto kKeys = std::to_array<KeyWord>({
      {"offloadpolicy", "fsdp.cpu_offload"},
      {"setreducescattermaxinputbuffers", "fsdp.reduce_scatter_buffers"},
      {"setseparatereducescattergroup", "fsdp.separate_reduce_scatter_comm"},
      {"setforcesumreductionforcomms", "fsdp.gradient_scaling"},
      {"setgradientdividefactor", "fsdp.gradient_divide_factor"},
      {"setsymmmemforcomm", "nccl.register_buffers"},
      {"setallocatememoryfromprocessgroupforcomm", "nccl.register_buffers"},
      {"setmodulestoforwardprefetch", "fsdp.forward_prefetch"},
      {"setmodulestobackwardprefetch", "fsdp.backward_prefetch"},
      {"setreshardafterforward", "fsdp.reshard_after_forward"},
      {"setreshardafterbackward", "fsdp.reshard_after_backward"},
      {"setislastbackward", "fsdp.wait_each_backward"},
      {"setrequiresgradientsync", "train.accumulate_mode"},
      {"setrequiresallreduce", "train.accumulate_mode"},
  });
  static constexpr auto kParts = std::to_array<std::string_view>({"FSDP::"});
  static constexpr auto kMeant = std::to_array<std::string_view>({"fsdp2"});
  static constexpr auto kMeantExperts = std::to_array<std::string_view>({"torchtitan-moe"});
  static constexpr auto kLayoutCopies =
      std::to_array<std::string_view>({"split_with_sizes_copy", "all_gather_copy_out", "chunk_cat"});
  static constexpr auto kCopies =
      std::to_array<std::string_view>({"split_with_sizes_copy", "chunk_cat", "CatArrayBatchedCopy",
                                       "all_gather_copy_in", "copy_in", "copy_out", "fsdp::"});
  static const Words kWords{
      .name = "pytorch-fsdp2",
      .presets = kPresets,
      .meanings = kMeanings,
      .keys = kKeys,
      .traces = {.parts = kParts,
                 .of_one_program = true,
                 .program = {.sharded = "PyTorch FSDP2 (fully_shard)"},
                 .presets = kMeant,
                 .expert_presets = kMeantExperts,
                 .layout_copies = kLayoutCopies,
                 .copies = kCopies,
                 .prefetch = "_prefetch",
                 .forward_prefetch = "FSDP::forward_prefetch for",
                 .backward_prefetch = "FSDP::backward_prefetch for",
                 .copy_out = "FSDP::all_gather_copy_out",
                 .after_forward = "FSDP::post_forward",
                 .after_backward = "FSDP::post_backward_reshard",
                 .drops_gathers = "FSDP::root_post_backward_callback",
                 .unit = unit_word},
      .remedies =
          Remedies{.prefetch_forward = "module.set_modules_to_forward_prefetch([next, the one after])",
                   .prefetch_backward = "module.set_modules_to_backward_prefetch([previous, the one before])",
                   .no_limit = "",
                   .separate_reductions = "module.set_separate_reduce_scatter_group()",
                   .accumulate = "set_requires_gradient_sync(False) on all but the last microbatch",
                   .keep_after_forward = "reshard_after_forward=False for this module alone",
                   .keep_after_backward = "set_reshard_after_backward(False, recurse=False) on this module until the "
                                          "last microbatch",
                   .prefetch_less = "shorter lists in set_modules_to_forward_prefetch and "
                                    "set_modules_to_backward_prefetch, in the order in which modules run",
                   .no_reentrant = "checkpoint(…, use_reentrant=False), or no set_modules_to_forward_prefetch"}};
  return kWords;
}

}  // namespace fsdpbench::dialects
