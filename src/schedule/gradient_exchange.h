#pragma once

#include <cstdint>

#include "schedule/reduce_inputs.h"
#include "schedule/step_builder.h"

namespace fsdpbench::schedule {

/// fsdp.reduce_quantization: a unit's gradients are exchanged as quantised numbers and added up, instead of
/// reduce-scattered.
///
/// [Note: exchanged gradients]
/// quantize_gradients makes a part for each rank of the shard group. An all-to-all among fsdp.reduce_within neighbours
/// brings those that this rank has to add up; sum_quantized adds them and quantises the sums. An
/// all-to-all across brings the neighbourhoods' sums of this rank's own shard, and sum_quantized adds those to the
/// reduced gradient. If the neighbours are the whole group, the first exchange is all. Everything is on one lane.
class GradientExchange {
 public:
  /// All must outlive it. Inputs are freed by whom `inputs` says.
  GradientExchange(StepBuilder& builder, ReduceInputs& inputs, Lane lane)
      : builder_(builder), inputs_(inputs), lane_(lane) {}

  struct Gradients {
    int unit = 0;
    BufferId input = kNoBuffer;   ///< rank-major; the lane has waited for it
    std::int64_t numel = 0;       ///< of the input
    BufferId output = kNoBuffer;  ///< this rank's shard, not yet allocated
  };
  /// Appends the ops; the last one writes the output.
  void append(const Gradients& gradients);

 private:
  BufferId all_to_all(int unit, Group group, BufferId input, std::int64_t bytes_to_each);
  /// Parts become numbers or parts.
  void sum(int unit, BufferId from, BufferId to, std::int64_t bytes);
  BufferId new_message(int unit, std::int64_t bytes) {
    return builder_.new_buffer(BufferRole::exchanged, DType::u8, bytes, unit);
  }

  StepBuilder& builder_;
  ReduceInputs& inputs_;
  Lane lane_;
};

}  // namespace fsdpbench::schedule
