#pragma once

#include <cstdint>
#include <vector>

namespace fsdpbench {

/// A half-open span of time in nanoseconds.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool operator==(const Interval&) const = default;
};

/// Disjoint, sorted, non-empty intervals: what is left after union.
using IntervalSet = std::vector<Interval>;

/// Union of any intervals; empty and reversed ones are dropped.
IntervalSet unite(std::vector<Interval> intervals);
IntervalSet unite(const IntervalSet& a, const IntervalSet& b);
IntervalSet intersect(const IntervalSet& a, const IntervalSet& b);
/// Part of `a` that is not in `b`.
IntervalSet subtract(const IntervalSet& a, const IntervalSet& b);
/// The part of `set` in `span`, found in logarithmic time.
IntervalSet clip(const IntervalSet& set, const Interval& span);
/// Length in nanoseconds.
std::int64_t length(const IntervalSet& set);
/// Length of what of `span` is in `set`, found in logarithmic time: for many spans and one set.
std::int64_t length_within(const Interval& span, const IntervalSet& set);

}  // namespace fsdpbench
