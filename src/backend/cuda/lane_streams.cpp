#include "backend/cuda/lane_streams.h"

#include <fmt/format.h>

#include "backend/cuda/check.h"

namespace fsdpbench::backend::cuda {

LaneStreams::LaneStreams() {
  check(cudaDeviceGetStreamPriorityRange(&least_, &greatest_), "stream priorities");
  for (const Lane lane : kLanes) {
    const int priority = lane == Lane::compute ? least_ : greatest_;
    check(cudaStreamCreateWithPriority(&streams_[index_of(lane)], cudaStreamNonBlocking, priority),
          "creating a stream");
  }
}

LaneStreams::~LaneStreams() {
  for (cudaStream_t stream : streams_) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

std::string LaneStreams::priorities() const { return fmt::format("compute {}, others {}", least_, greatest_); }

}  // namespace fsdpbench::backend::cuda
