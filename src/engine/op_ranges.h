#pragma once

#include <cstdint>
#include <unordered_map>

#include "backend/device.h"
#include "plan/plan.h"
#include "schedule/schedule.h"
#include "trace/nvtx_range.h"

namespace fsdpbench::engine {

/// NVTX ranges around the ops of a run, on every backend: on the thread that runs a lane's tasks, or on the host for
/// ops without work on a lane. Names are registered once; without a tool nothing is kept and nothing is done.
class OpRanges {
 public:
  /// `plan` and `schedules` must outlive this object.
  OpRanges(const plan::Plan& plan, const schedule::Schedules& schedules);

  /// Around an op's work: before and after it is enqueued.
  void begin_on_lane(backend::Device& device, const schedule::Op& op, std::int64_t step) const {
    if (!names_.empty()) push_to_lane(device, op, step);
  }
  /// Ends what begin_on_lane() began.
  void end_on_lane(backend::Device& device, Lane lane) const {
    if (!names_.empty()) pop_from_lane(device, lane);
  }
  /// Around what the host does for an op without work.
  void begin_on_host(const schedule::Op& op, std::int64_t step) const;
  /// Ends what begin_on_host() began.
  void end_on_host() const;

 private:
  struct Label {
    trace::NvtxName name;
    std::int64_t bytes = 0;
  };
  void push_to_lane(backend::Device& device, const schedule::Op& op, std::int64_t step) const;
  void pop_from_lane(backend::Device& device, Lane lane) const;

  std::unordered_map<const schedule::Op*, Label> names_;  // empty: nobody listens
};

}  // namespace fsdpbench::engine
