#include <array>

#include "schedule/buffer.h"
#include "schedule/op.h"

namespace fsdpbench::schedule {

std::string_view to_string(BufferRole role) {
  constexpr std::array<std::string_view, 31> kNames{"master_shard",
                                                    "first_moment",
                                                    "second_moment",
                                                    "master_replicated",
                                                    "first_moment_replicated",
                                                    "second_moment_replicated",
                                                    "replicated_parameters",
                                                    "cast_shard",
                                                    "gathered",
                                                    "unsharded",
                                                    "group_shard",
                                                    "batch_inputs",
                                                    "batch_targets",
                                                    "saved",
                                                    "boundary",
                                                    "d_stream",
                                                    "workspace",
                                                    "gradients",
                                                    "gradients_replicated",
                                                    "accumulated",
                                                    "accumulated_replicated",
                                                    "reduce_input",
                                                    "reduce_input_replicated",
                                                    "reduce_output",
                                                    "partial_shard",
                                                    "gradient_shard",
                                                    "gradient_replicated",
                                                    "norm_partial",
                                                    "norm_gathered",
                                                    "clip_factor",
                                                    "loss"};
  return kNames.at(static_cast<std::size_t>(role));
}

std::string_view to_string(OpKind kind) {
  constexpr std::array<std::string_view, 25> kNames{"load_batch",       "cast_replicated",
                                                    "cast_shard",       "copy_in",
                                                    "all_gather",       "copy_out",
                                                    "release",          "forward",
                                                    "recompute",        "backward",
                                                    "keep_group_shard", "reshard",
                                                    "post_backward",    "accumulate_gradients",
                                                    "reduce_cast",      "reduce_copy_in",
                                                    "reduce_scatter",   "all_reduce",
                                                    "finish_gradient",  "gradient_norm",
                                                    "gather_norm",      "clip",
                                                    "optimizer",        "host_wait",
                                                    "host_sync"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::string_view to_string(Phase phase) {
  constexpr std::array<std::string_view, 3> kNames{"forward", "backward", "optimizer"};
  return kNames.at(static_cast<std::size_t>(phase));
}

}  // namespace fsdpbench::schedule
