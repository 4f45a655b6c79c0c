#include "replay/issue_times.h"

#include <map>
#include <tuple>

#include "base/duration.h"

namespace fsdpbench::replay {
namespace {

using schedule::Op;
using schedule::OpKind;

// Kind, phase, unit, module, microbatch, and how many equal ones came before it.
using SameOp = std::tuple<OpKind, schedule::Phase, int, int, int, int>;

/// Of each op of a schedule but the host's, which take none; no two are equal.
std::vector<SameOp> names_of(const schedule::Schedule& schedule) {
  std::map<SameOp, int> seen;
  std::vector<SameOp> names;
  for (const Op& op : schedule.ops) {
    SameOp name{op.kind, op.phase, op.unit, op.module, op.micro, 0};
    std::get<5>(name) = seen[name]++;
    names.push_back(name);
  }
  return names;
}

struct Mean {
  double sum = 0;
  int count = 0;
  void add(std::int64_t ns) {
    sum += static_cast<double>(ns);
    ++count;
  }
  double value() const { return count > 0 ? sum / count : 0; }
};

}  // namespace

IssueTimes::IssueTimes(const schedule::Schedule& from, const schedule::Schedule& to) : from_(from), to_(to) {
  std::map<SameOp, int> known;
  const std::vector<SameOp> names = names_of(from);
  for (std::size_t i = 0; i < names.size(); ++i) known.emplace(names[i], static_cast<int>(i));
  for (const SameOp& name : names_of(to)) {
    const auto at = known.find(name);
    same_.push_back(at == known.end() ? -1 : at->second);
  }
}

std::vector<std::int64_t> IssueTimes::of(const MeasuredTimes& measured, std::size_t step, std::size_t rank,
                                         double more_ns) const {
  const std::span<const std::int64_t> took = measured.issue_ns(step, rank);
  std::map<OpKind, Mean> by_kind;
  Mean all;
  for (std::size_t i = 0; i < took.size(); ++i) {
    if (took[i] == MeasuredTimes::kNone) continue;
    by_kind[from_.ops[i].kind].add(took[i]);
    all.add(took[i]);
  }
  std::vector<std::int64_t> result;
  for (std::size_t i = 0; i < to_.ops.size(); ++i) {
    if (to_.ops[i].is_host()) {
      result.push_back(0);
      continue;
    }
    const std::int64_t same = same_[i] < 0 ? MeasuredTimes::kNone : took[static_cast<std::size_t>(same_[i])];
    const auto kind = by_kind.find(to_.ops[i].kind);
    const double ns = same != MeasuredTimes::kNone ? static_cast<double>(same)
                      : kind != by_kind.end()      ? kind->second.value()
                                                   : all.value();
    result.push_back(whole_ns(ns + more_ns));
  }
  return result;
}

}  // namespace fsdpbench::replay
