#include "engine/rank_outcome.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"

namespace fsdpbench::engine {
namespace {

RankOutcome full_outcome() {
  RankOutcome o;
  o.trace.rank = 3;
  o.trace.steps = {{10, 20}, {30, 45}};
  o.trace.records = {{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}, {12, 13, 14, 15, 16, 17}};
  trace::MemorySample sample;
  sample.time_ns = 99;
  sample.live[2] = 1 << 20;
  sample.reserved = 7;
  o.trace.memory = {sample};
  Activity activity;
  activity.kind = Activity::Kind::copy;
  activity.name = 1;
  activity.bytes = 4096;
  o.trace.activities = {activity};
  o.trace.activity_names = {"gemm", "", "a name with \n and \0 in it"};
  o.memory.peak_occupied_total = 12345;
  o.memory.live[1] = 6;
  o.wire_bytes = {1, 2, 3, 4};
  o.device = {{"timer", "events"}, {"nccl", ""}};
  o.host = "node7";
  o.host_memory.reserved = 4;
  o.early_ns = 9000;
  GpuHealth& gpu = o.gpu.emplace();
  gpu.unknown_because = "it was lost";
  gpu.limits.sm_mhz = 1980;
  GpuSample clock;
  clock.time_ns = 50;
  clock.sm_mhz = 1755;
  gpu.samples = {clock, clock};
  gpu.xids = {{60, 79}};
  gpu.xids_left_out = 1;
  gpu.errors.ecc_corrected = 2;
  return o;
}

TEST(OutcomeBytes, EverythingComesBack) {
  const RankOutcome sent = full_outcome();
  const RankOutcome read = outcome_from_bytes(to_bytes(sent));
  EXPECT_EQ(read.trace.rank, 3);
  ASSERT_EQ(read.trace.steps.size(), 2U);
  EXPECT_EQ(read.trace.steps[1].end_ns, 45);
  ASSERT_EQ(read.trace.records.size(), 3U);
  EXPECT_EQ(std::memcmp(read.trace.records.data(), sent.trace.records.data(), 3 * sizeof(trace::Record)), 0);
  ASSERT_EQ(read.trace.memory.size(), 1U);
  EXPECT_EQ(read.trace.memory[0].live, sent.trace.memory[0].live);
  EXPECT_EQ(read.trace.memory[0].reserved, 7);
  ASSERT_EQ(read.trace.activities.size(), 1U);
  EXPECT_EQ(read.trace.activities[0].kind, Activity::Kind::copy);
  EXPECT_EQ(read.trace.activities[0].bytes, 4096);
  EXPECT_EQ(read.trace.activity_names, sent.trace.activity_names);
  EXPECT_EQ(read.memory.peak_occupied_total, 12345);
  EXPECT_EQ(read.memory.live, sent.memory.live);
  EXPECT_EQ(read.wire_bytes, sent.wire_bytes);
  EXPECT_EQ(read.device, sent.device);
  EXPECT_EQ(read.host, "node7");
  EXPECT_EQ(read.early_ns, 9000);
  EXPECT_EQ(read.host_memory.reserved, 4);
  ASSERT_TRUE(read.gpu.has_value());
  EXPECT_EQ(read.gpu->unknown_because, "it was lost");
  EXPECT_EQ(read.gpu->limits.sm_mhz, 1980);
  EXPECT_FALSE(read.gpu->limits.power_mw.has_value());
  ASSERT_EQ(read.gpu->samples.size(), 2U);
  EXPECT_EQ(read.gpu->samples[1].sm_mhz, 1755);
  EXPECT_FALSE(read.gpu->samples[1].power_mw.has_value());
  ASSERT_EQ(read.gpu->xids.size(), 1U);
  EXPECT_EQ(read.gpu->xids[0].code, 79U);
  EXPECT_EQ(read.gpu->xids[0].time_ns, 60);
  EXPECT_EQ(read.gpu->samples[1].time_ns, 50);
  EXPECT_EQ(read.gpu->xids_left_out, 1);
  EXPECT_EQ(read.gpu->errors.ecc_corrected, 2U);
}

TEST(OutcomeBytes, AnEmptyOneToo) {
  const RankOutcome read = outcome_from_bytes(to_bytes(RankOutcome{}));
  EXPECT_TRUE(read.trace.records.empty());
  EXPECT_TRUE(read.device.empty());
  EXPECT_FALSE(read.gpu.has_value());
}

TEST(OutcomeBytes, EveryCutIsNoticed) {
  const std::string bytes = to_bytes(full_outcome());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(outcome_from_bytes(std::string_view(bytes).substr(0, size)), BackendError) << size;
  }
  try {
    outcome_from_bytes(bytes + "xy");
    FAIL();
  } catch (const BackendError& error) {
    EXPECT_STREQ(error.what(), "the outcome of a rank has 2 bytes too many");
  }
}

TEST(OutcomeBytes, ACountThatCannotBeIsNoticedBeforeMemoryIsTaken) {
  std::string bytes = to_bytes(RankOutcome{});
  const std::uint64_t huge = ~std::uint64_t{0} / 16;
  std::memcpy(bytes.data() + 16, &huge, sizeof huge);  // behind layout and rank: how many steps
  EXPECT_THROW(outcome_from_bytes(bytes), BackendError);
  bytes[0] ^= 1;
  try {
    outcome_from_bytes(bytes);
    FAIL();
  } catch (const BackendError& error) {
    EXPECT_STREQ(error.what(), "the outcome of a rank has another layout: do all ranks run the same program?");
  }
}

/// Three measured steps after one of warm-up, and the beginning of a fourth.
RankOutcome cut_short() {
  RankOutcome o;
  for (std::int32_t step = 1; step <= 4; ++step) {
    const std::int64_t begin = 1000 * step;
    if (step < 4) o.trace.steps.push_back({begin, begin + 500, begin + 600});
    o.trace.records.push_back({step, 0, begin, begin + 1, begin + 2, 0});
    Activity activity;
    activity.step = step;
    o.trace.activities.push_back(activity);
    for (const std::int64_t after : {400, 600, 601}) o.trace.memory.emplace_back().time_ns = begin + after;
  }
  o.wire_bytes = {30, 9, 0, 3};
  return o;
}

TEST(CutOutcome, KeepsWhatBelongsToTheStepsThatAllHaveDone) {
  struct Case {
    std::int64_t steps;
    std::size_t windows, records, samples;
    backend::WireBytes bytes;
  };
  for (const Case& c : {Case{5, 3, 4, 8, {30, 9, 0, 3}},
                        {4, 3, 3, 8, {30, 9, 0, 3}},
                        {3, 2, 2, 5, {20, 6, 0, 2}},
                        {2, 1, 1, 2, {10, 3, 0, 1}},
                        {1, 0, 0, 0, {}},
                        {0, 0, 0, 0, {}}}) {
    RankOutcome o = cut_short();
    cut_outcome(o, c.steps, 1);
    EXPECT_EQ(o.trace.steps.size(), c.windows) << c.steps;
    EXPECT_EQ(o.trace.records.size(), c.records) << c.steps;
    EXPECT_EQ(o.trace.activities.size(), c.records) << c.steps;
    EXPECT_EQ(o.trace.memory.size(), c.samples) << c.steps;
    EXPECT_EQ(o.wire_bytes, c.bytes) << c.steps;
  }
  RankOutcome nothing;
  cut_outcome(nothing, 3, 1);
  EXPECT_EQ(nothing.wire_bytes, backend::WireBytes{});
}

/// The lanes may end after the host has issued all.
TEST(CutOutcome, AStepEndsWithItsLastOp) {
  trace::RankTrace trace;
  trace.steps = {{1000, 1900, 1600}};
  for (const std::int64_t time : {1900, 1901}) trace.memory.emplace_back().time_ns = time;
  cut_trace(trace, 1, 0);
  EXPECT_EQ(trace.memory.size(), 1U);
}

trace::RankTrace some_trace() {
  trace::RankTrace trace;
  trace.steps = {{1000, 5000, 4000}};
  trace.records = {{0, 0, 1100, 1200, 1300, 1250}, {0, 1, 1400, 0, 0, 0}};
  trace.memory.resize(1);
  trace.memory[0].time_ns = 1500;
  trace.memory[0].reserved = 4096;
  trace.activities.resize(1);
  trace.activities[0].begin_ns = 1210;
  trace.activities[0].end_ns = 1290;
  trace.activities.push_back(trace.activities[0]);
  trace.activities[1].launch_begin_ns = 1150;
  trace.activities[1].launch_end_ns = 1160;
  return trace;
}

TEST(RootClock, MovesEveryKnownTimeAndNothingElse) {
  trace::RankTrace trace = some_trace();
  move_to_root_clock(trace, launch::ClockCorrection({.offset_ns = 10'000, .residual_ns = 5, .at_ns = 20'000}));
  EXPECT_EQ(trace.steps[0].begin_ns, 11'000);
  EXPECT_EQ(trace.steps[0].end_ns, 15'000);
  EXPECT_EQ(trace.steps[0].issued_ns, 14'000);
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
  EXPECT_EQ(trace.activities[1].launch_begin_ns, 11'150);
  EXPECT_EQ(trace.activities[1].launch_end_ns, 11'160);
}

TEST(RootClock, MovesTheSamplesAndFaultsOfAGpu) {
  GpuHealth gpu;
  gpu.samples.resize(1);
  gpu.samples[0].time_ns = 100;
  gpu.samples[0].until_ns = 200;
  gpu.xids = {{300, 79}};
  GpuHealth other = gpu;
  move_to_root_clock(gpu, launch::ClockCorrection({.offset_ns = 10'000, .residual_ns = 5, .at_ns = 20'000}));
  EXPECT_EQ(gpu.samples[0].time_ns, 10'100);
  EXPECT_EQ(gpu.samples[0].until_ns, 10'200);
  EXPECT_EQ(gpu.xids[0].time_ns, 10'300);
  EXPECT_EQ(gpu.xids[0].code, 79U);
  move_to_root_clock(other, launch::ClockCorrection({.offset_ns = 5, .same_clock = true}));
  EXPECT_EQ(other.samples[0].time_ns, 100);
  EXPECT_EQ(other.xids[0].time_ns, 300);
}

TEST(RootClock, OneClockNeedsNoMoving) {
  trace::RankTrace trace = some_trace();
  move_to_root_clock(trace, launch::ClockCorrection({.same_clock = true}));
  EXPECT_EQ(trace.steps[0].begin_ns, 1000);
}

}  // namespace
}  // namespace fsdpbench::engine
