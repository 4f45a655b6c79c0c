#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <deque>
#include <string>

#include "backend/cuda/event_store.h"
#include "base/lane.h"

namespace fsdpbench::backend::cuda {

/// The ops that the host has issued and not seen complete: tells whether the GPU gets on, and if not, which op it
/// hangs in. One event an op, without timing.
class OpsUnderWay {
 public:
  /// `name` must outlive this; `step` and `op` are -1 where the op is none of a schedule's, `op`
  /// alone where it is a whole step.
  void add(Lane lane, cudaStream_t stream, const char* name, std::int32_t step, std::int32_t op);
  /// Looks which have completed; true if any has since the last call. On a GPU that has failed none has.
  bool advance();
  /// "all_gather (step 2, op 17) on lane all_gather": the first issued of those that have not completed, as of the
  /// last advance(); empty if there is none.
  std::string oldest() const;

 private:
  struct Op {
    std::int64_t number = 0;
    const char* name = "";
    std::int32_t step = -1;
    std::int32_t op = -1;
    cudaEvent_t done = nullptr;
  };
  bool advance(std::deque<Op>& ops);

  EventStore events_{cudaEventDisableTiming};
  std::array<std::deque<Op>, kLaneCount> lanes_;
  std::int64_t issued_ = 0;
  bool advanced_ = false;  // by add(), not told yet
};

}  // namespace fsdpbench::backend::cuda
