#pragma once

#include <cuda_runtime_api.h>
#include <cstdint>
#include <vector>

#include "backend/cuda/op_timer.h"

namespace fsdpbench::backend::cuda {

/// CUDA events of the current device, made when they run out and used again and again.
class EventStore {
 public:
  /// `flags`: cudaEventDisableTiming or cudaEventDefault.
  explicit EventStore(unsigned flags) : flags_(flags) {}
  ~EventStore();
  EventStore(const EventStore&) = delete;
  EventStore& operator=(const EventStore&) = delete;

  /// Belongs to the store; the caller's until give_back().
  cudaEvent_t take();
  void give_back(cudaEvent_t event) { free_.push_back(event); }

 private:
  const unsigned flags_;
  std::vector<cudaEvent_t> all_;
  std::vector<cudaEvent_t> free_;
};

/// Stamps from two CUDA events around each op. What an event says is a time since another one; the time line of the
/// host comes in when stamps are settled, by an event that the host sees happen on an idle GPU.
class EventTimer : public OpTimer {
 public:
  EventTimer();
  ~EventTimer() override;

  void begin(Lane lane, cudaStream_t stream, std::int32_t step, std::int32_t op, Stamp* stamp) override;
  void end(Lane lane, cudaStream_t stream) override;
  void settle() override;
  Facts facts() const override;

 private:
  struct Timed {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    Stamp* stamp = nullptr;
    std::int64_t issued_ns = 0;  ///< it began no sooner
  };
  /// An event and the host's time between whose bounds it happened.
  struct Anchor {
    cudaEvent_t event = nullptr;
    std::int64_t earliest_ns = 0;
    std::int64_t latest_ns = 0;
    std::int64_t width_ns() const { return latest_ns - earliest_ns; }
  };
  Anchor drop_anchor();
  std::int64_t time_of(cudaEvent_t event, const Anchor& anchor) const;

  cudaStream_t stream_ = nullptr;
  EventStore events_{cudaEventDefault};
  std::vector<Timed> pending_;
  std::int64_t worst_width_ns_ = 0;
};

}  // namespace fsdpbench::backend::cuda
