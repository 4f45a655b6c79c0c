#include "replay/replay.h"

#include <algorithm>
#include <array>

namespace fsdpbench::replay {
namespace {

struct RankState {
  std::int64_t host = 0;
  std::array<std::int64_t, kLaneCount> lanes{};
  std::array<std::int64_t, schedule::kGroupCount> communicators{};
  std::vector<std::int64_t> events;
};

}  // namespace

std::int64_t max_plus_bound(const schedule::Schedule& schedule, int event_count, const plan::Groups& groups,
                            const std::vector<OpDurations>& by_rank) {
  const int ranks = groups.ranks();
  std::vector<RankState> states(static_cast<std::size_t>(ranks));
  for (RankState& state : states) state.events.assign(static_cast<std::size_t>(event_count), 0);
  std::vector<std::int64_t> ready(states.size());
  std::vector<std::int64_t> latest;  // by group: when its last rank was ready

  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const schedule::Op& op = schedule.ops[i];
    for (std::size_t r = 0; r < states.size(); ++r) {
      RankState& s = states[r];
      std::int64_t waits = 0;
      for (const schedule::Wait& wait : op.waits)
        waits = std::max(waits, s.events[static_cast<std::size_t>(wait.event)]);
      if (op.is_host()) {
        s.host = std::max(s.host, waits);
        if (op.kind == schedule::OpKind::host_sync) {
          for (std::int64_t lane : s.lanes) s.host = std::max(s.host, lane);
        }
        continue;
      }
      ready[r] = std::max({s.host, s.lanes[index_of(op.lane)], waits});
      if (op.is_collective()) ready[r] = std::max(ready[r], s.communicators[static_cast<std::size_t>(op.group())]);
    }
    if (op.is_host()) continue;
    if (op.is_collective()) {
      latest.assign(static_cast<std::size_t>(groups.count(op.group())), 0);
      for (int r = 0; r < ranks; ++r) {
        std::int64_t& last = latest[static_cast<std::size_t>(groups.number(op.group(), r))];
        last = std::max(last, ready[static_cast<std::size_t>(r)]);
      }
    }
    for (int r = 0; r < ranks; ++r) {
      RankState& s = states[static_cast<std::size_t>(r)];
      std::int64_t start = ready[static_cast<std::size_t>(r)];
      if (op.is_collective()) start = std::max(start, latest[static_cast<std::size_t>(groups.number(op.group(), r))]);
      const std::int64_t end = start + (op.has_work() ? by_rank[static_cast<std::size_t>(r)][i] : 0);
      s.lanes[index_of(op.lane)] = end;
      if (op.is_collective()) s.communicators[static_cast<std::size_t>(op.group())] = end;
      if (op.record != schedule::kNoEvent) s.events[static_cast<std::size_t>(op.record)] = end;
    }
  }
  std::int64_t makespan = 0;
  for (const RankState& s : states) {
    makespan = std::max(makespan, s.host);
    for (std::int64_t lane : s.lanes) makespan = std::max(makespan, lane);
  }
  return makespan;
}

}  // namespace fsdpbench::replay
