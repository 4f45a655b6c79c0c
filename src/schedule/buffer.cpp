#include "schedule/buffer.h"

namespace fsdpbench::schedule {

std::string_view to_string(BufferRole role) {
  switch (role) {
    case BufferRole::master_shard: return "master_shard";
    case BufferRole::first_moment: return "first_moment";
    case BufferRole::second_moment: return "second_moment";
    case BufferRole::master_replicated: return "master_replicated";
    case BufferRole::first_moment_replicated: return "first_moment_replicated";
    case BufferRole::second_moment_replicated: return "second_moment_replicated";
    case BufferRole::replicated_parameters: return "replicated_parameters";
    case BufferRole::device_shard: return "device_shard";
    case BufferRole::host_shard: return "host_shard";
    case BufferRole::cast_shard: return "cast_shard";
    case BufferRole::gathered: return "gathered";
    case BufferRole::unsharded: return "unsharded";
    case BufferRole::group_shard: return "group_shard";
    case BufferRole::batch_inputs: return "batch_inputs";
    case BufferRole::batch_targets: return "batch_targets";
    case BufferRole::saved: return "saved";
    case BufferRole::boundary: return "boundary";
    case BufferRole::d_stream: return "d_stream";
    case BufferRole::workspace: return "workspace";
    case BufferRole::exchange: return "exchange";
    case BufferRole::gradients: return "gradients";
    case BufferRole::gradients_replicated: return "gradients_replicated";
    case BufferRole::accumulated: return "accumulated";
    case BufferRole::accumulated_replicated: return "accumulated_replicated";
    case BufferRole::reduce_input: return "reduce_input";
    case BufferRole::reduce_input_replicated: return "reduce_input_replicated";
    case BufferRole::reduce_output: return "reduce_output";
    case BufferRole::partial_shard: return "partial_shard";
    case BufferRole::gradient_shard: return "gradient_shard";
    case BufferRole::offloaded_gradient: return "offloaded_gradient";
    case BufferRole::gradient_replicated: return "gradient_replicated";
    case BufferRole::norm_partial: return "norm_partial";
    case BufferRole::norm_gathered: return "norm_gathered";
    case BufferRole::clip_factor: return "clip_factor";
    case BufferRole::loss: return "loss";
  }
  return "?";
}

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
