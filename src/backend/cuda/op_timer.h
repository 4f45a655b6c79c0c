#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>

#include "backend/device.h"
#include "base/lane.h"

namespace fsdpbench::backend::cuda {

/// Finds out when ops ran on their streams. One a rank; all calls come from the rank's host thread.
class OpTimer {
 public:
  virtual ~OpTimer() = default;

  /// Around what the host enqueues for one op. Ops do not nest.
  virtual void begin(Lane lane, cudaStream_t stream, std::int32_t step, std::int32_t op, Stamp* stamp) = 0;
  virtual void end(Lane lane, cudaStream_t stream) = 0;
  /// Writes all stamps since the last call. The streams must be idle.
  virtual void settle() = 0;
  virtual Activities take_activities() { return {}; }
  /// "timer" (what it is, for people) and whatever limits the figures: records dropped, incomplete, without time.
  virtual Facts facts() const = 0;
};

/// A timer from CUPTI's activity records, or null with one plain sentence in `why_not`: no CUPTI library, another
/// profiler attached, not permitted, or it records nothing, which is tried here. Lives in cupti/.
std::unique_ptr<OpTimer> make_cupti_timer(std::string* why_not);
/// A timer from CUDA events around each op: where another profiler has CUPTI, as nsys has, it is the only one.
std::unique_ptr<OpTimer> make_event_timer();

}  // namespace fsdpbench::backend::cuda
