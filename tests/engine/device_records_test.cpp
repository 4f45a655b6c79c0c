#include "engine/device_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <tuple>
#include <vector>

namespace fsdpbench::engine {
namespace {

using ::testing::ElementsAre;
using Times = std::tuple<std::int64_t, std::int64_t>;

trace::Record issued_at(std::int64_t ns) {
  trace::Record record{};
  record.issued_ns = ns;
  return record;
}

TEST(DeviceRecords, AnOpGetsItsStamp) {
  DeviceRecords device;
  trace::Record record = issued_at(100);
  device.put({.begin_ns = 110, .end_ns = 150, .peers_arrived_ns = 120, .core_wait_ns = 5, .link_ns = 20}, record);
  EXPECT_EQ(Times(record.begin_ns, record.end_ns), Times(110, 150));
  EXPECT_EQ(Times(record.peers_arrived_ns, record.core_wait_ns), Times(120, 5));
  EXPECT_EQ(record.link_ns, 20);
  EXPECT_EQ(device.early_ns(), 0);
}

TEST(DeviceRecords, WhatBeginsALittleTooEarlyBeginsWhenItWasIssued) {
  struct Case {
    std::int64_t begin, end;
    Times expected;
    std::int64_t early;
  };
  constexpr std::int64_t kIssued = 1'000'000;
  for (const Case& c : {Case{kIssued, kIssued + 9, {kIssued, kIssued + 9}, 0},
                        {kIssued - 1, kIssued + 9, {kIssued, kIssued + 9}, 1},
                        {kIssued - 40'000, kIssued - 10, {kIssued, kIssued}, 40'000},
                        {kIssued - 50'000, kIssued + 1, {kIssued, kIssued + 1}, 50'000},
                        {kIssued - 50'001, kIssued + 1, {kIssued - 50'001, kIssued + 1}, 0}}) {
    DeviceRecords device;
    trace::Record record = issued_at(kIssued);
    device.put({.begin_ns = c.begin, .end_ns = c.end}, record);
    EXPECT_EQ(Times(record.begin_ns, record.end_ns), c.expected) << c.begin - kIssued;
    EXPECT_EQ(device.early_ns(), c.early);
    trace::Record later = issued_at(kIssued);
    device.put({.begin_ns = kIssued - 7, .end_ns = kIssued}, later);
    EXPECT_EQ(device.early_ns(), std::max<std::int64_t>(c.early, 7)) << "the most of all";
  }
}

Activity activity(std::int32_t op, std::int64_t launched, std::int64_t begin, std::int64_t end) {
  Activity one;
  one.op = op;
  one.launch_begin_ns = launched;
  one.begin_ns = begin;
  one.end_ns = end;
  return one;
}

/// Begins of the activities and ends of the ops, once a step with one op each from 1000 to 2000 has these activities.
TEST(DeviceRecords, AnActivityBeginsNeitherBeforeItsOpNorBeforeItsLaunchAndEndsWithItsOpAtTheLatest) {
  struct Case {
    Activity given;
    Times expected;
    std::int64_t op_end;
  };
  for (const Case& c : {Case{activity(0, 900, 1100, 1900), {1100, 1900}, 2000},
                        {activity(0, 900, 990, 1900), {1000, 1900}, 2000},
                        {activity(0, 1200, 1100, 1900), {1200, 1900}, 2000},
                        {activity(0, 2100, 1100, 1900), {2100, 2100}, 2100},
                        {activity(0, 900, 990, 2050), {1000, 2050}, 2050},
                        {activity(0, 900, 1100, 2050), {1100, 2050}, 2000},  // nothing is wrong with its begin
                        {activity(-1, 1200, 1100, 1900), {1100, 1900}, 2000}}) {
    DeviceRecords device;
    std::array<trace::Record, 1> ops{};
    ops[0].begin_ns = 1000;
    ops[0].end_ns = 2000;
    trace::RankTrace trace;
    device.add({{c.given}, {"kernel"}}, ops, trace);
    ASSERT_EQ(trace.activities.size(), 1U);
    EXPECT_EQ(Times(trace.activities[0].begin_ns, trace.activities[0].end_ns), c.expected);
    EXPECT_EQ(ops[0].end_ns, c.op_end);
  }
}

TEST(DeviceRecords, ANameKeepsItsNumberFromStepToStep) {
  DeviceRecords device;
  trace::RankTrace trace;
  const auto named = [](std::int32_t name, std::int32_t launch) {
    Activity one;
    one.name = name;
    one.launch_name = launch;
    return one;
  };
  device.add({{named(1, 0), named(0, -1)}, {"launch", "gemm"}}, {}, trace);
  device.add({{named(0, 1), named(1, 2), named(0, 0)}, {"copy", "gemm", "launch"}}, {}, trace);
  EXPECT_THAT(trace.activity_names, ElementsAre("launch", "gemm", "copy"));
  std::vector<std::array<std::int32_t, 2>> numbers;
  for (const Activity& one : trace.activities) numbers.push_back({one.name, one.launch_name});
  EXPECT_THAT(numbers,
              ElementsAre(std::array{1, 0}, std::array{0, -1}, std::array{2, 1}, std::array{1, 0}, std::array{2, 2}));
}

}  // namespace
}  // namespace fsdpbench::engine
