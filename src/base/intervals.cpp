#include "base/intervals.h"

#include <algorithm>

namespace fsdpbench {

IntervalSet unite(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  IntervalSet result;
  for (const Interval& i : intervals) {
    if (i.end <= i.begin) continue;
    if (!result.empty() && i.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, i.end);
    } else {
      result.push_back(i);
    }
  }
  return result;
}

IntervalSet unite(const IntervalSet& a, const IntervalSet& b) {
  std::vector<Interval> all = a;
  all.insert(all.end(), b.begin(), b.end());
  return unite(std::move(all));
}

IntervalSet intersect(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet result;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    const Interval common{std::max(i->begin, j->begin), std::min(i->end, j->end)};
    if (common.begin < common.end) result.push_back(common);
    if (i->end < j->end) {
      ++i;
    } else {
      ++j;
    }
  }
  return result;
}

IntervalSet subtract(const IntervalSet& a, const IntervalSet& b) {
  IntervalSet result;
  auto j = b.begin();
  for (Interval rest : a) {
    while (j != b.end() && j->end <= rest.begin) ++j;
    for (auto k = j; k != b.end() && k->begin < rest.end; ++k) {
      if (k->begin > rest.begin) result.push_back({rest.begin, k->begin});
      rest.begin = std::max(rest.begin, k->end);
    }
    if (rest.begin < rest.end) result.push_back(rest);
  }
  return result;
}

std::int64_t length(const IntervalSet& set) {
  std::int64_t sum = 0;
  for (const Interval& i : set) sum += i.end - i.begin;
  return sum;
}

IntervalSet clip(const IntervalSet& set, const Interval& span) {
  IntervalSet result;
  if (span.begin >= span.end) return result;
  for (auto i = std::ranges::upper_bound(set, span.begin, {}, &Interval::end); i != set.end() && i->begin < span.end;
       ++i) {
    result.push_back({std::max(span.begin, i->begin), std::min(span.end, i->end)});
  }
  return result;
}

std::int64_t length_within(const Interval& span, const IntervalSet& set) { return length(clip(set, span)); }

}  // namespace fsdpbench
