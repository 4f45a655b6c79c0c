#include "account/step_view.h"

#include <algorithm>
#include <array>
#include <utility>

namespace fsdpbench::account {

namespace {

StepEdges edges_of(const StepRecords& step) {
  StepEdges edges;
  std::array<int, kLaneCount> last_on_lane;
  std::array<int, schedule::kGroupCount> last_on_communicator;
  last_on_lane.fill(-1);
  last_on_communicator.fill(-1);
  std::vector<int> recorder(static_cast<std::size_t>(step.event_count()), -1);
  int host = -1;
  const std::vector<schedule::Op>& ops = step.schedule().ops;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const schedule::Op& o = ops[i];
    const int index = static_cast<int>(i);
    edges.host_before.push_back(host);
    std::vector<int>& recorders = edges.recorders.emplace_back();
    for (const schedule::Wait& wait : o.waits) recorders.push_back(recorder[static_cast<std::size_t>(wait.event)]);
    edges.communicator_before.push_back(-1);
    if (o.is_host()) {
      edges.lane_before.push_back(-1);
      host = index;
      continue;
    }
    int& on_lane = last_on_lane[index_of(o.lane)];
    edges.lane_before.push_back(on_lane);
    on_lane = index;
    if (o.is_collective()) {
      int& on_communicator = last_on_communicator[static_cast<std::size_t>(o.group())];
      edges.communicator_before.back() = on_communicator;
      on_communicator = index;
    }
    if (o.record != schedule::kNoEvent) recorder[static_cast<std::size_t>(o.record)] = index;
  }
  return edges;
}

}  // namespace

StepView::StepView(const StepRecords& step, int rank)
    : StepView(step.schedule().ops, step.of(rank), step.window(rank), edges_of(step)) {}

StepView::StepView(std::span<const schedule::Op> ops, std::span<const trace::Record> records,
                   const trace::StepWindow& window, StepEdges edges)
    : ops_(ops), records_(records), window_(window), edges_(std::move(edges)) {
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const schedule::Op& o = ops_[i];
    classes_.push_back(classify(o));
    if (o.is_host() || o.has_work()) {
      done_.push_back(records_[i].end_ns);
      continue;
    }
    std::int64_t done = records_[i].issued_ns;
    const auto wait_for = [&](int before) {
      if (before >= 0) done = std::max(done, done_[static_cast<std::size_t>(before)]);
    };
    wait_for(edges_.lane_before[i]);
    for (const int before : edges_.recorders[i]) wait_for(before);
    done_.push_back(done);
  }
}

}  // namespace fsdpbench::account
