#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/communicator.h"
#include "backend/device.h"
#include "base/lane_pool.h"
#include "hardware/gpu_health.h"
#include "launch/clock_offset.h"
#include "trace/record.h"

namespace fsdpbench::engine {

/// Steps that one rank has completed, readable by another thread while the rank trains on: whoever must save it when
/// the run cannot end as it should. Thread-safe.
class DoneSteps {
 public:
  struct Snapshot {
    std::int64_t steps = 0;  ///< warm-up included
    trace::RankTrace trace;  ///< of the measured ones among them; its activities only after the rank has ended
  };
  /// A copy of what was published last.
  Snapshot snapshot() const;

  /// The rank has done `steps` steps, and `trace` holds the measured ones. It may grow meanwhile, within the capacity
  /// that it has, and must live until the next call or withdraw().
  void publish(const trace::RankTrace& trace, std::int64_t steps);
  /// `trace` is about to go: keeps a copy of what was published.
  void withdraw();

  /// The rank has thrown, and not because another one had.
  void fail() { failed_ = true; }
  bool failed() const { return failed_; }

 private:
  const trace::RankTrace* trace_ = nullptr;  // only the first elements, as many as published, are looked at
  std::int64_t steps_ = 0;
  std::size_t windows_ = 0;
  std::size_t records_ = 0;
  std::size_t samples_ = 0;
  trace::RankTrace kept_;
  std::atomic<bool> failed_ = false;
  mutable std::mutex mutex_;

  trace::RankTrace copy() const;
};

/// Withdraws at the end of a scope.
class Publication {
 public:
  explicit Publication(DoneSteps* done) : done_(done) {}
  ~Publication() {
    if (done_ != nullptr) done_->withdraw();
  }
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;

  /// As DoneSteps::publish; nothing without a DoneSteps.
  void publish(const trace::RankTrace& trace, std::int64_t steps) {
    if (done_ != nullptr) done_->publish(trace, steps);
  }

 private:
  DoneSteps* done_;
};

/// Results of one rank of a run.
struct RankOutcome {
  trace::RankTrace trace;  ///< measured steps only
  PoolStatistics memory;
  PoolStatistics host_memory;
  backend::WireBytes wire_bytes{};  ///< of the measured steps
  backend::Facts device;            ///< Device::facts()
  std::optional<GpuHealth> gpu;     ///< Device::health()
  std::int64_t early_ns = 0;        ///< DeviceRecords::early_ns()
  std::string host;                 ///< name of the machine
};

/// `outcome` as bytes, for a process of the same program on a machine of the same kind.
std::string to_bytes(const RankOutcome& outcome);

/// Reads what to_bytes() wrote. Throws BackendError if the bytes are of another layout, too few or too many.
RankOutcome outcome_from_bytes(std::string_view bytes);

/// Takes out of the trace what belongs to no step before `steps`: a step that was cut short has left some.
void cut_trace(trace::RankTrace& trace, std::int64_t steps, std::int64_t warmup);
/// Cuts its trace, and its bytes by the steps that are left: those of a step are the same in all steps.
void cut_outcome(RankOutcome& outcome, std::int64_t steps, std::int64_t warmup);

/// Moves all times of a rank's trace onto rank 0's clock. Times that are 0 mean "not known" and stay.
void move_to_root_clock(trace::RankTrace& trace, const launch::ClockCorrection& clock);
/// Moves the times of its GPU's samples.
void move_to_root_clock(GpuHealth& gpu, const launch::ClockCorrection& clock);

}  // namespace fsdpbench::engine
