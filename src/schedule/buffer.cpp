#include "schedule/buffer.h"

#include "base/enum_table.h"

namespace fsdpbench::schedule {
namespace {

constexpr EnumNames<BufferRole> kRoleNames{"master_shard",
                                           "first_moment",
                                           "second_moment",
                                           "master_replicated",
                                           "first_moment_replicated",
                                           "second_moment_replicated",
                                           "replicated_parameters",
                                           "device_shard",
                                           "host_shard",
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
                                           "exchange",
                                           "gradients",
                                           "gradients_replicated",
                                           "accumulated",
                                           "accumulated_replicated",
                                           "reduce_input",
                                           "reduce_input_replicated",
                                           "reduce_output",
                                           "partial_shard",
                                           "gradient_shard",
                                           "offloaded_gradient",
                                           "gradient_replicated",
                                           "norm_partial",
                                           "norm_gathered",
                                           "clip_factor",
                                           "loss"};

}  // namespace

std::string_view to_string(BufferRole role) { return kRoleNames[role]; }

MemoryCategory category_of(BufferRole role) {
  switch (role) {
    case BufferRole::master_shard:
    case BufferRole::master_replicated:
    case BufferRole::replicated_parameters:
    case BufferRole::device_shard:
    case BufferRole::host_shard:
    case BufferRole::group_shard: return MemoryCategory::parameter_shards;
    case BufferRole::first_moment:
    case BufferRole::second_moment:
    case BufferRole::first_moment_replicated:
    case BufferRole::second_moment_replicated: return MemoryCategory::optimizer;
    case BufferRole::cast_shard:
    case BufferRole::reduce_input:
    case BufferRole::reduce_input_replicated:
    case BufferRole::reduce_output:
    case BufferRole::norm_partial:
    case BufferRole::norm_gathered:
    case BufferRole::clip_factor: return MemoryCategory::communication_buffers;
    case BufferRole::gathered:
    case BufferRole::unsharded: return MemoryCategory::unsharded_parameters;
    case BufferRole::gradients:
    case BufferRole::gradients_replicated:
    case BufferRole::accumulated:
    case BufferRole::accumulated_replicated:
    case BufferRole::partial_shard:
    case BufferRole::gradient_shard:
    case BufferRole::offloaded_gradient:
    case BufferRole::gradient_replicated: return MemoryCategory::gradients;
    case BufferRole::batch_inputs:
    case BufferRole::batch_targets:
    case BufferRole::saved:
    case BufferRole::boundary:
    case BufferRole::d_stream:
    case BufferRole::workspace:
    case BufferRole::exchange:
    case BufferRole::loss: break;
  }
  return MemoryCategory::activations;
}

}  // namespace fsdpbench::schedule
