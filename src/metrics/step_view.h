#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "metrics/run_view.h"
#include "metrics/step_breakdown.h"
#include "schedule/schedule.h"
#include "trace/record.h"

namespace fsdpbench::metrics {

/// One rank's step with the edges that a list of records does not show: who ran before whom, who recorded what.
class StepView {
 public:
  StepView(const StepRecords& step, int rank);

  const schedule::Op& op(int i) const { return schedule_->ops[static_cast<std::size_t>(i)]; }
  const trace::Record& record(int i) const { return records_[static_cast<std::size_t>(i)]; }
  OpClass op_class(int i) const { return classes_[static_cast<std::size_t>(i)]; }
  int size() const { return static_cast<int>(schedule_->ops.size()); }
  const trace::StepWindow& window() const { return window_; }

  /// The op before op i on its lane, ops without work included; -1 if it is the first.
  int lane_before(int i) const { return lane_before_[static_cast<std::size_t>(i)]; }
  /// The collective before collective i on its communicator, whatever its lane; -1 if it is the first.
  int communicator_before(int i) const { return communicator_before_[static_cast<std::size_t>(i)]; }
  /// The op that recorded the event which wait w of op i refers to; -1: recorded in an earlier step, or never.
  int recorded_by(int i, std::size_t w) const { return recorders_[static_cast<std::size_t>(i)][w]; }
  /// The last op at which the host blocked before it issued op i; -1: it did not block in this step.
  int host_blocked_before(int i) const { return host_before_[static_cast<std::size_t>(i)]; }
  /// When op i was over: its end, or for an op without work when all it had to wait for was over.
  std::int64_t done(int i) const { return done_[static_cast<std::size_t>(i)]; }

 private:
  const schedule::Schedule* schedule_;
  std::span<const trace::Record> records_;
  trace::StepWindow window_;
  std::vector<OpClass> classes_;
  std::vector<int> lane_before_, communicator_before_, host_before_;
  std::vector<std::vector<int>> recorders_;
  std::vector<std::int64_t> done_;
};

}  // namespace fsdpbench::metrics
