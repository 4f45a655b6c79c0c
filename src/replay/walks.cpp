#include "replay/walks.h"

#include <algorithm>
#include <cmath>

namespace fsdpbench::replay {

Walk::Walk(const schedule::Schedules& schedules, const plan::Groups& groups, const OpTimes& times)
    : schedules_(schedules),
      groups_(groups),
      times_(times),
      ranks_(times.ranks_differ() ? static_cast<std::size_t>(groups.ranks()) : 1) {
  for (const schedule::Schedule& schedule : schedules.steps) {
    programs_.push_back(compile(schedule, schedules.event_count));
  }
  last_.begin_ns.assign(ranks_, 0);
  last_.end_ns.assign(ranks_, 0);
  if (times.link_factor.empty()) return;
  for (std::size_t g = 0; g < plan::kGroupCount; ++g) {
    const auto group = static_cast<plan::Group>(g);
    slowest_link_[g].assign(group_count(group), 0);
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      double& slowest = slowest_link_[g][group_number(group, rank)];
      slowest = std::max(slowest, times.link_factor[rank]);
    }
  }
}

std::size_t Walk::group_size(plan::Group group) const {
  return ranks_ == 1 ? 1 : static_cast<std::size_t>(groups_.size(group));
}

std::size_t Walk::group_stride(plan::Group group) const {
  return ranks_ == 1 ? 1 : static_cast<std::size_t>(groups_.members(group, 0).stride);
}

std::size_t Walk::group_number(plan::Group group, std::size_t rank) const {
  return ranks_ == 1 ? 0 : static_cast<std::size_t>(groups_.number(group, static_cast<int>(rank)));
}

void Walk::collective_ns(std::size_t op, std::size_t first, std::span<double> by_group) const {
  const OpCost& cost = costs()[op];
  const std::vector<double>& slowest = slowest_link_[static_cast<std::size_t>(schedule().ops[op].group())];
  if (slowest.empty()) {
    std::ranges::fill(by_group, cost.run_ns + cost.link_ns);
  } else {
    for (std::size_t g = 0; g < by_group.size(); ++g) {
      by_group[g] = cost.run_ns + static_cast<double>(std::llround(cost.link_ns * slowest[first + g]));
    }
  }
  times_.jitter.apply(static_cast<std::int64_t>(step_), op, first, false, by_group, cost.scatter);
}

std::int64_t Walk::own_link_ns(std::size_t op, std::size_t rank, double group_ns) const {
  const plan::Group group = schedule().ops[op].group();
  const std::vector<double>& slowest = slowest_link_[static_cast<std::size_t>(group)];
  if (slowest.empty()) return std::llround(group_ns);
  const double latency = std::min(costs()[op].run_ns, group_ns);
  return std::llround(latency + (group_ns - latency) * link_factor(rank) / slowest[group_number(group, rank)]);
}

}  // namespace fsdpbench::replay
