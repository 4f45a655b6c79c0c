#pragma once

#include <vector>

#include "account/run_view.h"

namespace fsdpbench::testing {

/// Nanoseconds; host ops have no begin.
struct Times {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t issued = 0;
  std::int64_t arrived = 0;
  std::int64_t core_wait = 0;  ///< and these two are lengths
  std::int64_t link = 0;
};

/// A run written by hand. Every step has a schedule of its own, so ops are added to the step that was opened last.
struct HandRun {
  explicit HandRun(int ranks = 1) : traces(static_cast<std::size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) traces[static_cast<std::size_t>(rank)].rank = rank;
    schedules.event_count = 8;
  }

  /// Opens a step of this window on all ranks.
  void step(std::int64_t begin, std::int64_t end) { step(std::vector<trace::StepWindow>(traces.size(), {begin, end})); }
  void step(const std::vector<trace::StepWindow>& windows) {
    schedules.steps.emplace_back();
    for (std::size_t rank = 0; rank < traces.size(); ++rank) traces[rank].steps.push_back(windows[rank]);
  }

  /// Adds an op with equal times on all ranks, or one entry a rank. The reference is good until the next op.
  schedule::Op& op(schedule::OpKind kind, Lane lane, Times times) {
    return op(kind, lane, std::vector<Times>(traces.size(), times));
  }
  schedule::Op& op(schedule::OpKind kind, Lane lane, const std::vector<Times>& times) {
    const auto number = static_cast<std::int32_t>(schedules.steps.size() - 1);
    std::vector<schedule::Op>& ops = schedules.steps.back().ops;
    for (std::size_t rank = 0; rank < traces.size(); ++rank) {
      const Times& t = times[rank];
      traces[rank].records.push_back(
          {number, static_cast<std::int32_t>(ops.size()), t.issued, t.begin, t.end, t.arrived, t.core_wait, t.link});
    }
    schedule::Op& added = ops.emplace_back();
    added.kind = kind;
    added.lane = lane;
    return added;
  }
  schedule::Op& collective(schedule::OpKind kind, Lane lane, const std::vector<Times>& times,
                           schedule::Group group = schedule::Group::shard, std::int64_t count = 0) {
    schedule::Op& added = op(kind, lane, times);
    added.work = schedule::Collective{.group = group, .count = count};
    return added;
  }
  schedule::Op& collective(schedule::OpKind kind, Lane lane, Times times,
                           schedule::Group group = schedule::Group::shard, std::int64_t count = 0) {
    return collective(kind, lane, std::vector<Times>(traces.size(), times), group, count);
  }
  schedule::Op& forward(Times times, int unit = 1) {
    schedule::Op& added = op(schedule::OpKind::forward, Lane::compute, times);
    added.unit = unit;
    return added;
  }

  account::RunView view() const { return {schedules, traces}; }

  schedule::Schedules schedules;
  std::vector<trace::RankTrace> traces;
};

}  // namespace fsdpbench::testing
