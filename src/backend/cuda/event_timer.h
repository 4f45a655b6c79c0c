#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backend/cuda/event_store.h"
#include "backend/cuda/op_timer.h"

namespace fsdpbench::backend::cuda {

/// Stamps from two CUDA events around each op. What an event says is a time since another one; the time line of the
/// host comes in when stamps are settled, by an event that the host sees happen on an idle GPU.
class EventTimer : public OpTimer {
 public:
  EventTimer();
  ~EventTimer() override;

  void begin(Lane lane, cudaStream_t stream, std::int32_t step, std::int32_t op, Stamp* stamp) override;
  void end(Lane lane, cudaStream_t stream) override;
  void begin_capture() override { capturing_ = true; }
  void end_capture(std::int32_t graph) override;
  void launched(std::int32_t graph) override;
  void settle() override;
  Facts facts() const override;

 private:
  struct Timed {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    Stamp* stamp = nullptr;
    std::int64_t issued_ns = 0;  ///< it began no sooner
    bool of_graph = false;       ///< its events are the graph's, which records them at every launch
  };
  /// An event and the host's time between whose bounds it happened.
  struct Anchor {
    cudaEvent_t event = nullptr;
    std::int64_t earliest_ns = 0;
    std::int64_t latest_ns = 0;
    std::int64_t width_ns() const { return latest_ns - earliest_ns; }
  };
  void record(cudaEvent_t event, cudaStream_t stream) const;
  Anchor drop_anchor();
  std::int64_t time_of(cudaEvent_t event, const Anchor& anchor) const;

  cudaStream_t stream_ = nullptr;
  EventStore events_{cudaEventDefault};
  std::vector<Timed> pending_;
  bool capturing_ = false;
  std::vector<Timed> captured_;  // in the capture that goes on
  std::map<std::int32_t, std::vector<Timed>> graphs_;
  std::int64_t worst_width_ns_ = 0;
};

}  // namespace fsdpbench::backend::cuda
