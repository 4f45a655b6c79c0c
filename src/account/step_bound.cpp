#include "account/step_bound.h"

#include <algorithm>
#include <array>

#include "base/lane.h"

namespace fsdpbench::account {

trace::StepBound step_bound(const StepView& step) {
  struct Place {
    std::int64_t end_ns = 0;
    std::int64_t own_ns = 0;  // what the op itself takes
    int after = -1;           // the op whose end it begins at
  };
  std::vector<Place> places(static_cast<std::size_t>(step.size()));
  int last = -1;  // to end, of all before
  const auto end_of = [&](int op) { return op < 0 ? std::int64_t{0} : places[op].end_ns; };
  for (int i = 0; i < step.size(); ++i) {
    const schedule::Op& op = step.op(i);
    const trace::Record& record = step.record(i);
    Place& place = places[i];
    const auto not_before = [&](int other) {
      if (end_of(other) > end_of(place.after)) place.after = other;
    };
    not_before(step.host_blocked_before(i));
    for (std::size_t w = 0; w < op.waits.size(); ++w) not_before(step.recorded_by(i, w));
    if (op.kind == schedule::OpKind::host_sync) not_before(last);
    if (!op.is_host()) not_before(step.lane_before(i));
    if (op.is_collective()) not_before(step.communicator_before(i));
    if (op.has_work()) place.own_ns = record.end_ns - std::max(record.begin_ns, record.peers_arrived_ns);
    place.end_ns = end_of(place.after) + place.own_ns;
    if (place.end_ns > end_of(last)) last = i;
  }
  trace::StepBound bound;
  bound.ns = end_of(last);
  std::array<std::int64_t, kLaneCount> by_lane{};
  for (int i = last; i >= 0; i = places[i].after) {
    by_lane[index_of(step.op(i).lane)] += places[i].own_ns;
  }
  const auto longest = std::ranges::max_element(by_lane);
  bound.lane = kLanes.at(static_cast<std::size_t>(longest - by_lane.begin()));
  bound.lane_ns = *longest;
  return bound;
}

}  // namespace fsdpbench::account
