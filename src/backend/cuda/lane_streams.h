#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <string>

#include "base/lane.h"

namespace fsdpbench::backend::cuda {

/// One non-blocking stream a lane, on the current device. The compute lane has the least priority and all others the
/// greatest: a gather, or a copy that a gather waits for, that is ready shall not queue up behind the thread blocks of
/// a large kernel, for which it costs little.
class LaneStreams {
 public:
  LaneStreams();
  /// Queued work still runs.
  ~LaneStreams();
  LaneStreams(const LaneStreams&) = delete;
  LaneStreams& operator=(const LaneStreams&) = delete;

  cudaStream_t operator[](Lane lane) const { return streams_[index_of(lane)]; }
  /// "compute 0, others -5".
  std::string priorities() const;

 private:
  std::array<cudaStream_t, kLaneCount> streams_{};
  int least_ = 0;
  int greatest_ = 0;
};

}  // namespace fsdpbench::backend::cuda
