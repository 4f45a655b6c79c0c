#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/memory_space.h"

namespace fsdpbench::schedule {

/// Index into Schedule::buffers.
using BufferId = int;
inline constexpr BufferId kNoBuffer = -1;

/// Contents of a buffer.
enum class BufferRole : std::uint8_t {
  master_shard,  ///< fp32 parameters that this rank owns
  first_moment,  ///< AdamW state of the shard
  second_moment,
  master_replicated,  ///< fp32 parameters under the shard threshold
  first_moment_replicated,
  second_moment_replicated,
  replicated_parameters,  ///< master_replicated in the compute dtype
  device_shard,           ///< fsdp.cpu_offload: what the device has of the host's master_shard; or the shard in the
                          ///< compute dtype, beside it (fsdp.cast_in_optimizer)
  host_shard,             ///< the host's master_shard in the compute dtype, on its way to device_shard
  cast_shard,             ///< the shard in the compute dtype, input of a flat gather
  gathered,               ///< all-gather output; in views layouts the parameters themselves
  unsharded,              ///< parameters copied out of `gathered`; persistent where a unit stays gathered
  group_shard,            ///< larger shard kept between forward and backward
  batch_inputs,
  batch_targets,
  saved,     ///< tensors one module keeps for its backward
  boundary,  ///< one module's output, the next one's input
  d_stream,  ///< gradient of the boundary, updated in place from module to module
  workspace,
  exchange,   ///< what ranks that split a module exchange between the parts of a pass
  gradients,  ///< unsharded gradients of one unit, in Plan::gradient_dtype
  gradients_replicated,
  accumulated,  ///< unsharded gradients summed over microbatches, fp32
  accumulated_replicated,
  reduce_input,  ///< gradients in reduce dtype, laid out for the reduce-scatter
  reduce_input_replicated,
  reduce_output,        ///< this rank's part after the reduction, reduce dtype
  partial_shard,        ///< reduce-scattered sum over microbatches, before the replicas' all-reduce, fp32
  gradient_shard,       ///< final gradient of the shard, fp32
  offloaded_gradient,   ///< a reduced gradient that has come to the host, to be added there
  gradient_replicated,  ///< final gradient of the replicated parameters, fp32
  norm_partial,         ///< this rank's sum of squares, one fp64
  norm_gathered,        ///< all ranks' sums of squares, one fp64 each
  clip_factor,          ///< what gradients are multiplied by, one float
  loss,                 ///< one float a microbatch
};

/// The enumerator's own name.
std::string_view to_string(BufferRole role);
/// Category in which such a buffer's memory counts.
MemoryCategory category_of(BufferRole role);

/// A piece of memory that a schedule uses.
struct Buffer {
  BufferRole role = BufferRole::workspace;
  MemoryCategory category = MemoryCategory::activations;
  DType dtype = DType::f32;
  int unit = -1;    ///< or -1
  int module = -1;  ///< or -1
  int micro = 0;
  std::int64_t bytes = 0;
  bool persistent = false;  ///< lives from before the first step to after the last; never allocated by an op
  MemorySpace space = MemorySpace::device;
  bool operator==(const Buffer&) const = default;
};

}  // namespace fsdpbench::schedule
