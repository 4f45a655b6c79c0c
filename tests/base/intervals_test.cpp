#include "base/intervals.h"

#include <gtest/gtest.h>

#include <random>

namespace fsdpbench {
namespace {

TEST(Intervals, UniteMergesTouchingAndDropsEmpty) {
  EXPECT_EQ(unite({{5, 7}, {1, 3}, {3, 4}, {9, 9}, {12, 10}, {6, 8}}), (IntervalSet{{1, 4}, {5, 8}}));
}

TEST(Intervals, IntersectAndSubtract) {
  const IntervalSet a{{0, 10}, {20, 30}};
  const IntervalSet b{{5, 22}, {25, 26}};
  EXPECT_EQ(intersect(a, b), (IntervalSet{{5, 10}, {20, 22}, {25, 26}}));
  EXPECT_EQ(subtract(a, b), (IntervalSet{{0, 5}, {22, 25}, {26, 30}}));
  EXPECT_EQ(length(a), 20);
}

TEST(Intervals, ClipIsAnIntersectionWithOneSpan) {
  const IntervalSet set{{0, 10}, {20, 30}, {40, 50}};
  for (std::int64_t begin = -1; begin < 52; ++begin) {
    for (std::int64_t end = begin + 1; end < 53; ++end) {
      EXPECT_EQ(clip(set, {begin, end}), intersect(set, {{begin, end}})) << begin << " to " << end;
    }
  }
}

TEST(Intervals, AgreeWithABitmap) {
  constexpr int kSpan = 200;
  std::mt19937 random(11);
  std::uniform_int_distribution<std::int64_t> point(0, kSpan);
  for (int i = 0; i < 500; ++i) {
    std::vector<Interval> lists[2];
    std::vector<bool> bits[2] = {std::vector<bool>(kSpan), std::vector<bool>(kSpan)};
    for (int which : {0, 1}) {
      for (int k = 0; k < 8; ++k) {
        const Interval interval{point(random), point(random)};
        lists[which].push_back(interval);
        for (std::int64_t t = interval.begin; t < interval.end; ++t) bits[which][static_cast<std::size_t>(t)] = true;
      }
    }
    const IntervalSet a = unite(lists[0]), b = unite(lists[1]);
    std::int64_t either = 0, both = 0, only = 0;
    for (std::size_t t = 0; t < kSpan; ++t) {
      either += bits[0][t] || bits[1][t];
      both += bits[0][t] && bits[1][t];
      only += bits[0][t] && !bits[1][t];
    }
    EXPECT_EQ(length(unite(a, b)), either);
    EXPECT_EQ(length(intersect(a, b)), both);
    EXPECT_EQ(length(subtract(a, b)), only);
    for (const Interval& span : lists[1]) EXPECT_EQ(length_within(span, a), length(intersect(unite({span}), a)));
  }
}

}  // namespace
}  // namespace fsdpbench
