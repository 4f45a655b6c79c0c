#include "schedule/tensor_exchanges.h"

#include <utility>

namespace fsdpbench::schedule {

void TensorExchanges::append(OpKind kind, int unit, int module, int index, const plan::ModulePart& part,
                             BufferId buffer) {
  constexpr int kMostParts = 4;
  const int pass = kind == OpKind::forward ? 0 : kind == OpKind::recompute ? 1 : 2;
  const int id = (module * 3 + pass) * kMostParts + index;  // a block's recomputation and backward share a phase
  const bool gathers = part.exchange == plan::ModulePart::Exchange::gather;
  builder_.wait(Lane::tensor, builder_.record(EventRole::part_done, id), WaitReason::data);
  builder_.append(
      gathers ? OpKind::tensor_all_gather : OpKind::tensor_all_reduce,
      {.lane = Lane::tensor, .unit = unit, .module = module},
      Collective{.group = Group::tensor, .input = buffer, .output = buffer, .count = part.count, .dtype = part.dtype});
  pending_ = builder_.record(EventRole::exchanged, id);
}

void TensorExchanges::settle() {
  if (pending_ != kNoEvent) builder_.wait(Lane::compute, std::exchange(pending_, kNoEvent), WaitReason::data);
}

}  // namespace fsdpbench::schedule
