#include "app/machine/other_work.h"

#include <gtest/gtest.h>

namespace fsdpbench::app {
namespace {

TEST(OtherWorkTest, TheMachinesTimeIsOfItsFirstLine) {
  const ProcessorTime time = machine_time("cpu  1000 200 300 8000 400 50 30 20 70 0\ncpu0 1 1 1 1 1 1 1 1\n", 100);
  EXPECT_DOUBLE_EQ(time.machine_s, 100);
  EXPECT_DOUBLE_EQ(time.busy_s, 16) << "neither idle nor waiting for a disk; a guest's time is in user's";
  EXPECT_EQ(machine_time("", 100).machine_s, 0);
  EXPECT_EQ(machine_time("MemTotal: 5 kB", 100).machine_s, 0);
  EXPECT_GT(processor_time().machine_s, 0);
}

TEST(OtherWorkTest, WhatRanksUseThemselvesIsNobodyElses) {
  const ProcessorUse busy{"a", {.machine_s = 100, .busy_s = 60, .own_s = 25}};
  EXPECT_DOUBLE_EQ(taken_by_others({busy, busy}, true), 0.35) << "two ranks of one process";
  EXPECT_DOUBLE_EQ(taken_by_others({busy, busy}, false), 0.10) << "two processes";
  const ProcessorUse worse{"b", {.machine_s = 100, .busy_s = 90, .own_s = 10}};
  EXPECT_DOUBLE_EQ(taken_by_others({busy, busy, worse}, false), 0.80) << "the busiest host";
  EXPECT_EQ(taken_by_others({}, false), 0);
  EXPECT_EQ(taken_by_others({{"c", {}}}, false), 0);
}

}  // namespace
}  // namespace fsdpbench::app
