#include "engine/root_clock.h"

#include <gtest/gtest.h>

namespace fsdpbench::engine {
namespace {

trace::RankTrace some_trace() {
  trace::RankTrace trace;
  trace.steps = {{1000, 5000}};
  trace.records = {{0, 0, 1100, 1200, 1300, 1250}, {0, 1, 1400, 0, 0, 0}};
  trace.memory.resize(1);
  trace.memory[0].time_ns = 1500;
  trace.memory[0].reserved = 4096;
  trace.activities.resize(1);
  trace.activities[0].begin_ns = 1210;
  trace.activities[0].end_ns = 1290;
  return trace;
}

TEST(RootClock, MovesEveryKnownTimeAndNothingElse) {
  trace::RankTrace trace = some_trace();
  move_to_root_clock(trace, launch::ClockCorrection({.offset_ns = 10'000, .residual_ns = 5, .at_ns = 20'000}));
  EXPECT_EQ(trace.steps[0].begin_ns, 11'000);
  EXPECT_EQ(trace.steps[0].end_ns, 15'000);
  EXPECT_EQ(trace.records[0].issued_ns, 11'100);
  EXPECT_EQ(trace.records[0].begin_ns, 11'200);
  EXPECT_EQ(trace.records[0].end_ns, 11'300);
  EXPECT_EQ(trace.records[0].peers_arrived_ns, 11'250);
  EXPECT_EQ(trace.records[1].issued_ns, 11'400);
  EXPECT_EQ(trace.records[1].begin_ns, 0);
  EXPECT_EQ(trace.memory[0].time_ns, 11'500);
  EXPECT_EQ(trace.memory[0].reserved, 4096);
  EXPECT_EQ(trace.activities[0].begin_ns, 11'210);
  EXPECT_EQ(trace.activities[0].end_ns, 11'290);
  EXPECT_EQ(trace.activities[0].launch_begin_ns, 0);
}

TEST(RootClock, OneClockNeedsNoMoving) {
  trace::RankTrace trace = some_trace();
  move_to_root_clock(trace, launch::ClockCorrection({.same_clock = true}));
  EXPECT_EQ(trace.steps[0].begin_ns, 1000);
}

}  // namespace
}  // namespace fsdpbench::engine
