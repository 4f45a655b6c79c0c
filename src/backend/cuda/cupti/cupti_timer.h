#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/cupti/assemble.h"
#include "backend/cuda/cupti/collector.h"
#include "backend/cuda/op_timer.h"

namespace fsdpbench::backend::cuda {

/// Longest wait of settle().
struct TimerPatience {
  std::chrono::milliseconds whole{2000};  ///< for records that should come
  std::chrono::milliseconds grace{50};    ///< for those that perhaps do not exist: of copies without bytes
};

/// Times ops by what CUPTI records of the device.
///
/// Each op pushes an id of its own on the issuing thread, so that CUPTI says for every call which op made it, and
/// makes one call that does nothing, its mark. When settle() has seen the marks of all ops and one more, then all that
/// this thread called in between has arrived too, because CUPTI records a thread's calls in order; so an op without
/// records did launch nothing and need not be waited for. A launch whose kernel has not come yet is waited for.
///
/// NCCL may launch from a thread of its own, whose calls have no id; they go to the op on their stream that was being
/// issued at that time. For this the communicator must not return from an op before NCCL has launched it.
class CuptiTimer final : public OpTimer {
 public:
  using Patience = TimerPatience;
  /// `collector` must be started and outlive the timer; `at_end` is called when the timer goes.
  CuptiTimer(Collector& collector, std::function<void()> at_end, Patience patience = {});
  ~CuptiTimer() override;
  CuptiTimer(const CuptiTimer&) = delete;
  CuptiTimer& operator=(const CuptiTimer&) = delete;

  void begin(Lane lane, cudaStream_t stream, std::int32_t step, std::int32_t op, Stamp* stamp) override;
  void end(Lane lane, cudaStream_t stream) override;
  void settle() override;
  Activities take_activities() override;
  Facts facts() const override;

  const TimerCounts& counts() const { return counts_; }

 private:
  StreamKey key_of(cudaStream_t stream);
  void mark(std::uint32_t number);
  void wait_for_records();

  Collector& collector_;
  const std::function<void()> at_end_;
  const Patience patience_;
  const std::uint32_t timer_;
  std::uint32_t device_ = 0;
  std::uint32_t first_ = 0;  // number of ops_.front()
  std::vector<IssuedOp> ops_;
  bool open_ = false;
  bool has_marks_ = true;
  std::int64_t without_records_ = 0;  // settle() saw nothing so often
  int in_a_row_ = 0;                  // of these the last ones
  std::vector<std::pair<cudaStream_t, StreamKey>> streams_;
  NameList names_;
  std::vector<Activity> activities_;
  TimerCounts counts_;
};

}  // namespace fsdpbench::backend::cuda
