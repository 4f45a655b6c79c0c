#include "replay/make_replay.h"

#include <algorithm>
#include <array>

#include "replay/walks.h"

namespace fsdpbench::replay {

bool links_are_shared(const schedule::Schedules& schedules, const plan::Groups& groups, const OpTimes& times) {
  if (!times.given.empty() && !times.given_share_links) return false;
  constexpr int kFabrics = 8;
  for (std::size_t step = 0; step < schedules.steps.size(); ++step) {
    std::array<plan::Group, kFabrics> user{};
    const std::vector<schedule::Op>& ops = schedules.steps[step].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (!ops[i].is_collective() || groups.size(ops[i].group()) == 1) continue;
      plan::Group& known = user.at(static_cast<std::size_t>(times.of_step(step)[i].fabric));
      if (known != plan::Group::none && known != ops[i].group()) return true;
      known = ops[i].group();
    }
  }
  return false;
}

std::unique_ptr<Replay> make_replay(const schedule::Schedules& schedules, const plan::Groups& groups,
                                    const OpTimes& times) {
  return links_are_shared(schedules, groups, times) ? walk_in_time_order(schedules, groups, times)
                                                    : walk_in_issue_order(schedules, groups, times);
}

std::int64_t max_plus_bound(const schedule::Schedule& schedule, int event_count, const plan::Groups& groups,
                            std::vector<OpDurations> by_rank) {
  const schedule::Schedules schedules{{schedule}, event_count};
  OpTimes times;
  times.given.push_back(std::move(by_rank));
  const auto replay = walk_in_issue_order(schedules, groups, times);
  replay->step({});
  return static_cast<std::int64_t>(*std::ranges::max_element(replay->last_step().end_ns));
}

}  // namespace fsdpbench::replay
