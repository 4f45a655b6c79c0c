#include "app/acceptance/stage_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace fsdpbench::app {
namespace {

using ::testing::HasSubstr;

/// An acceptance on a clock that the test turns.
struct Turned {
  double now = 100;
  std::vector<std::string> said;
  StageClock clock{300, [this] { return now; }, [this](const std::string& text) { said.push_back(text); }};
};

TEST(StageClockTest, SaysWhatAStageWillTakeAndKeepsWhatItTook) {
  Turned t;
  t.clock.begin("pairs", 2.5);
  t.now += 4;
  t.clock.begin("steps");
  t.now += 6;
  t.clock.end();
  ASSERT_EQ(t.clock.stages().size(), 2U);
  EXPECT_DOUBLE_EQ(t.clock.stages()[0].took_s, 4);
  EXPECT_DOUBLE_EQ(t.clock.stages()[1].took_s, 6);
  EXPECT_EQ(t.said[0], "0.0 s of 5 min 00 s: pairs, about 3 s");
  EXPECT_EQ(t.said[1], "4 s of 5 min 00 s: steps");
  EXPECT_DOUBLE_EQ(t.clock.left_s(), 290);
}

TEST(StageClockTest, WhatIsLeftShrinksWhatComes) {
  Turned t;
  EXPECT_EQ(t.clock.fitting(20, 6, 1, 0.5), 20);
  t.now += 280;  // 20 s are left
  EXPECT_EQ(t.clock.fitting(20, 6, 1, 0.5), 10);
  t.clock.begin("arms");
  EXPECT_THAT(t.clock.stages().back().note, HasSubstr("10 of 20 repetitions: 20 s of the budget are left"));
  EXPECT_FALSE(t.clock.stages().back().skipped);
  t.now += 13;  // 7 s
  EXPECT_EQ(t.clock.fitting(20, 6, 1, 0.5), 6) << "no fewer than say something";
  t.now += 3;  // 4 s
  EXPECT_EQ(t.clock.fitting(20, 6, 1, 0.5), 0);
  t.clock.begin("collectives");  // which are measured all the same
  EXPECT_EQ(t.clock.stages().back().note, "the fewest repetitions: 4 s of the budget are left");
  EXPECT_EQ(t.clock.fitting(20, 6, 1, 0.5), 0);
  t.clock.skip("soak", "the budget is spent");
  EXPECT_TRUE(t.clock.stages().back().skipped);
  EXPECT_EQ(t.clock.stages().back().note, "the budget is spent");
}

TEST(StageClockTest, WhatAStageLeavesOutIsNotedWhileItIsUnderWay) {
  Turned t;
  t.now += 280;
  (void)t.clock.fitting(20, 6, 1, 0.5);
  t.clock.begin("arms");
  t.clock.note("4 of 10 rounds");
  EXPECT_EQ(t.clock.stages().back().note, "10 of 20 repetitions: 20 s of the budget are left; 4 of 10 rounds");
  EXPECT_EQ(t.said.back(), "4 of 10 rounds");
}

TEST(StageClockTest, DurationsAreRead) {
  EXPECT_DOUBLE_EQ(duration_s("5m"), 300);
  EXPECT_DOUBLE_EQ(duration_s("90"), 90);
  EXPECT_DOUBLE_EQ(duration_s("1.5h"), 5400);
  for (const char* wrong : {"", "m", "5 minutes", "-3", "0", "1e9h", "nan"}) {
    EXPECT_THROW(duration_s(wrong), ConfigError) << wrong;
  }
}

}  // namespace
}  // namespace fsdpbench::app
