#include "account/typical_stalls.h"

#include <algorithm>

#include "account/step_breakdown.h"

namespace fsdpbench::account {

std::string_view name_of(const ToldStall& told) { return told.jitter ? "jitter" : to_string(told.stall.cause); }

TypicalStalls::Before TypicalStalls::computations(const StepRecords& step, int rank) {
  const std::vector<schedule::Op>& ops = step.schedule().ops;
  const std::vector<OpKey> keys = op_keys(step.schedule());
  Before computations;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (classify(ops[i]) == OpClass::computation) computations.emplace_back(step.of(rank)[i].begin_ns, keys[i]);
  }
  std::ranges::sort(computations);
  return computations;
}

OpKey TypicalStalls::ended_by(const Before& computations, const Stall& stall) {
  const auto next = std::ranges::lower_bound(computations, stall.time.end, {}, [](const auto& c) { return c.first; });
  OpKey none;
  none.occurrence = -1;
  return next == computations.end() ? none : next->second;
}

TypicalStalls::TypicalStalls(const StepRecords& typical, const plan::Groups& groups,
                             const std::optional<LinkModel>& link, bool prefetches_backward,
                             const EvenRows& even_rows) {
  for (int rank = 0; rank < typical.ranks(); ++rank) {
    auto& mine = ns_.emplace_back();
    const Before before = computations(typical, rank);
    for (const Stall& stall : find_stalls(typical, groups, link, prefetches_backward, rank, even_rows)) {
      mine[ended_by(before, stall)][static_cast<std::size_t>(stall.cause)] += stall.time.end - stall.time.begin;
    }
  }
}

std::vector<ToldStall> TypicalStalls::tell(const StepRecords& step, int rank, const std::vector<Stall>& stalls) const {
  auto left = ns_[ns_.size() == 1 ? 0 : static_cast<std::size_t>(rank)];
  const Before before = computations(step, rank);
  std::vector<ToldStall> told;
  for (const Stall& stall : stalls) {
    std::int64_t& typical = left[ended_by(before, stall)][static_cast<std::size_t>(stall.cause)];
    const std::int64_t repeats = std::min(typical, stall.time.end - stall.time.begin);
    typical -= repeats;
    const std::int64_t until = stall.time.begin + repeats;
    if (repeats > 0) {
      told.push_back({stall, false});
      told.back().stall.time.end = until;
    }
    if (until < stall.time.end) {
      told.push_back({stall, true});
      told.back().stall.time.begin = until;
      told.back().stall.late_rank = -1;
    }
  }
  return told;
}

}  // namespace fsdpbench::account
