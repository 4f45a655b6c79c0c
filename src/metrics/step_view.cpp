#include "metrics/step_view.h"

#include <algorithm>
#include <array>

namespace fsdpbench::metrics {

StepView::StepView(const StepRecords& step, int rank)
    : schedule_(&step.schedule()), records_(step.of(rank)), window_(step.window(rank)) {
  const std::size_t count = schedule_->ops.size();
  std::array<int, kLaneCount> last_on_lane;
  std::array<int, schedule::kGroupCount> last_on_communicator;
  last_on_lane.fill(-1);
  last_on_communicator.fill(-1);
  std::vector<int> recorder(static_cast<std::size_t>(step.event_count()), -1);
  int host = -1;
  for (std::size_t i = 0; i < count; ++i) {
    const schedule::Op& o = schedule_->ops[i];
    const int index = static_cast<int>(i);
    classes_.push_back(classify(o));
    host_before_.push_back(host);
    std::vector<int>& recorders = recorders_.emplace_back();
    for (const schedule::Wait& wait : o.waits) recorders.push_back(recorder[static_cast<std::size_t>(wait.event)]);
    communicator_before_.push_back(-1);
    if (o.is_host()) {
      lane_before_.push_back(-1);
      done_.push_back(records_[i].end_ns);
      host = index;
      continue;
    }
    int& on_lane = last_on_lane[index_of(o.lane)];
    lane_before_.push_back(on_lane);
    on_lane = index;
    if (o.is_collective()) {
      int& on_communicator = last_on_communicator[static_cast<std::size_t>(o.group())];
      communicator_before_.back() = on_communicator;
      on_communicator = index;
    }
    if (o.has_work()) {
      done_.push_back(records_[i].end_ns);
    } else {
      std::int64_t done = records_[i].issued_ns;
      if (lane_before_.back() >= 0) done = std::max(done, done_[static_cast<std::size_t>(lane_before_.back())]);
      for (int r : recorders) {
        if (r >= 0) done = std::max(done, done_[static_cast<std::size_t>(r)]);
      }
      done_.push_back(done);
    }
    if (o.record != schedule::kNoEvent) recorder[static_cast<std::size_t>(o.record)] = index;
  }
}

}  // namespace fsdpbench::metrics
