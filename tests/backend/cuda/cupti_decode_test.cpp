// Buffers of real CUPTI structs, read and joined.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "backend/cuda/cupti/assemble.h"
#include "backend/cuda/cupti/decode.h"
#include "backend/cuda/fake/cupti/fake_cupti.h"

namespace fsdpbench::backend::cuda {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr auto kRuntime = CUPTI_ACTIVITY_KIND_RUNTIME;
constexpr auto kDriver = CUPTI_ACTIVITY_KIND_DRIVER;
constexpr CUpti_CallbackId kLaunch = CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000;
constexpr CUpti_CallbackId kCopy = CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020;
constexpr CUpti_CallbackId kMark = CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020;

/// Records one after the other, 8-byte aligned, as in a buffer of CUPTI.
Bytes packed(const std::vector<Bytes>& records) {
  Bytes all;
  for (const Bytes& record : records) all.insert(all.end(), record.begin(), record.end());
  return all;
}

Decoded decode_bytes(Bytes bytes) { return decode(bytes.data(), bytes.size(), fake::cupti::api().get_next_record); }

template <typename Record>
Bytes record_bytes(const Record& record) {
  return fake::bytes_of(record);
}

TEST(CuptiDecode, ReadsEveryKindWithItsFields) {
  const Decoded all = decode_bytes(packed({
      record_bytes(fake::owner_record(5, 77)),
      record_bytes(fake::call_record(5, kDriver, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, 4711, 1000, 1500)),
      record_bytes(fake::kernel_record(5, {"ncclDevKernel_AllGather", 1, 20, 2000, 3000, 0})),
      record_bytes(fake::copy_record(6, {"", 1, 13, 4000, 4100, 4096})),
      record_bytes(fake::fill_record(8, {"", 1, 14, 5000, 5100, 64})),
  }));
  EXPECT_FALSE(all.damaged);
  EXPECT_EQ(all.unknown, 0);
  ASSERT_EQ(all.owners.size(), 1U);
  EXPECT_EQ(all.owners[0].correlation, 5U);
  EXPECT_EQ(all.owners[0].id, 77U);
  ASSERT_EQ(all.calls.size(), 1U);
  EXPECT_STREQ(all.calls[0].what->name, "cuLaunchKernelEx");
  EXPECT_EQ(all.calls[0].thread, 4711U);
  EXPECT_EQ(all.calls[0].begin_ns, 1000);
  EXPECT_EQ(all.calls[0].end_ns, 1500);
  ASSERT_EQ(all.works.size(), 3U);
  EXPECT_EQ(all.works[0].name, "ncclDevKernel_AllGather");
  EXPECT_EQ(all.works[0].device, 1U);
  EXPECT_EQ(all.works[0].stream, 20U);
  EXPECT_EQ(all.works[0].begin_ns, 2000);
  EXPECT_EQ(all.works[0].end_ns, 3000);
  EXPECT_EQ(all.works[1].kind, Activity::Kind::copy);
  EXPECT_EQ(all.works[1].name, "Memcpy HtoD (Pinned -> Device)");
  EXPECT_EQ(all.works[1].bytes, 4096);
  EXPECT_EQ(all.works[2].kind, Activity::Kind::fill);
  EXPECT_EQ(all.works[2].name, "Memset (Device)");
}

TEST(CuptiDecode, UnknownKindsAndCallsAreCountedOrLeftOut) {
  CUpti_ActivityName name{};
  name.kind = CUPTI_ACTIVITY_KIND_NAME;
  const Decoded all = decode_bytes(packed({
      record_bytes(name),
      record_bytes(fake::call_record(1, kRuntime, CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020, 1, 1, 2)),
      record_bytes(fake::kernel_record(2, {})),
  }));
  EXPECT_EQ(all.unknown, 1);
  EXPECT_TRUE(all.calls.empty());
  EXPECT_EQ(all.works.size(), 1U);
  EXPECT_FALSE(all.damaged);
}

TEST(CuptiDecode, ACutOffRecordEndsTheBuffer) {
  Bytes bytes = packed({record_bytes(fake::kernel_record(1, {})), record_bytes(fake::kernel_record(2, {}))});
  for (std::size_t missing : {8U, 64U, 120U}) {
    const Bytes cut(bytes.begin(), bytes.end() - static_cast<std::ptrdiff_t>(missing));
    const Decoded all = decode_bytes(cut);
    EXPECT_EQ(all.works.size(), 1U) << missing;
    EXPECT_TRUE(all.damaged) << missing;
  }
}

TEST(CuptiDecode, WhatCuptiRefusesEndsTheBuffer) {
  Bytes garbage(64, 0xee);
  const Decoded all = decode_bytes(packed({record_bytes(fake::kernel_record(1, {})), garbage}));
  EXPECT_EQ(all.works.size(), 1U);
  EXPECT_TRUE(all.damaged);
  EXPECT_FALSE(decode_bytes({}).damaged);
}

TEST(CuptiDecode, AKernelWithoutNameIsNoCrash) {
  const Decoded all = decode_bytes(record_bytes(fake::kernel_record(1, {.name = nullptr})));
  EXPECT_EQ(all.works.at(0).name, "unknown kernel");
}

// Joining and assembling.

struct Result {
  std::vector<Stamp> stamps;
  std::vector<Activity> activities;
  std::vector<std::string> names;
  TimerCounts counts;
};

/// Three ops of timer 1, numbers 10 to 12, issued at 100, 200, 300 on streams 7, 20, 7.
class CuptiJoin : public testing::Test {
 protected:
  std::uint64_t id(std::uint32_t op) { return OpId{1, op}.packed(); }

  void mark(std::uint32_t op) {
    const std::uint32_t correlation = 1000 + op;
    records.push_back(record_bytes(fake::owner_record(correlation, id(op))));
    records.push_back(record_bytes(fake::call_record(correlation, kRuntime, kMark, 1, 1, 2)));
  }
  void marks() {
    for (std::uint32_t op : {10U, 11U, 12U, 13U}) mark(op);
  }
  void launch(std::uint32_t correlation, std::uint32_t op, std::uint64_t at, CUpti_CallbackId what = kLaunch) {
    records.push_back(record_bytes(fake::owner_record(correlation, id(op))));
    records.push_back(record_bytes(fake::call_record(correlation, kRuntime, what, 1, at, at + 5)));
  }
  void kernel(std::uint32_t correlation, std::uint64_t begin, std::uint64_t end, std::uint32_t stream = 7,
              const char* name = "gemm") {
    records.push_back(record_bytes(fake::kernel_record(correlation, {name, 0, stream, begin, end, 0})));
  }

  Result assembled() {
    RecordTable table;
    for (const Bytes& record : records) table.add(decode_bytes(record));
    return assembled(table);
  }
  Result assembled(RecordTable& table) {
    Result result;
    result.stamps.assign(3, {1, 1, 0});
    const std::vector<IssuedOp> ops{{4, 0, Lane::compute, {0, 7}, 100, 110, &result.stamps[0]},
                                    {4, 1, Lane::all_gather, {0, 20}, 200, 210, &result.stamps[1]},
                                    {4, 2, Lane::compute, {0, 7}, 300, 310, &result.stamps[2]}};
    std::set<std::uint32_t> seen;
    const std::vector<Launch> launches = table.take(1, {{0, 7}, {0, 20}});
    for (const Launch& l : launches) {
      if (l.call && l.call->what->does == KnownCall::Does::mark) seen.insert(l.owner->op);
    }
    NameList names;
    assemble(ops, 10, launches, seen, names, result.activities, result.counts);
    std::ranges::sort(result.activities, {}, &Activity::begin_ns);
    result.names = names.take();
    return result;
  }

  std::vector<Bytes> records;
};

TEST_F(CuptiJoin, AStampSpansTheWorksOfItsOp) {
  marks();
  launch(1, 10, 101);
  launch(2, 10, 105);
  launch(3, 11, 201);
  launch(4, 12, 301);
  kernel(1, 400, 500);
  kernel(2, 510, 600);
  kernel(3, 450, 700, 20, "_ZN3foo3barEi");
  kernel(4, 610, 800);
  const Result r = assembled();
  EXPECT_EQ(r.stamps[0].begin_ns, 400);
  EXPECT_EQ(r.stamps[0].end_ns, 600);
  EXPECT_EQ(r.stamps[1].begin_ns, 450);
  EXPECT_EQ(r.stamps[1].end_ns, 700);
  EXPECT_EQ(r.stamps[2].begin_ns, 610);
  ASSERT_EQ(r.activities.size(), 4U);
  EXPECT_EQ(r.activities[1].op, 1);
  EXPECT_EQ(r.activities[1].step, 4);
  EXPECT_EQ(r.activities[1].stream, 20);
  EXPECT_EQ(r.names.at(static_cast<std::size_t>(r.activities[1].name)), "foo::bar(int)");
  EXPECT_EQ(r.names.at(static_cast<std::size_t>(r.activities[1].launch_name)), "cudaLaunchKernel");
  EXPECT_EQ(r.activities[1].launch_begin_ns, 201);
  EXPECT_EQ(r.counts.without_times, 0);
  EXPECT_EQ(r.counts.without_work, 0);
}

TEST_F(CuptiJoin, TheOrderOfRecordsDoesNotMatter) {
  marks();
  for (std::uint32_t i = 0; i < 3; ++i) {
    launch(i + 1, 10 + i, 101 + 100 * i);
    kernel(i + 1, 400 + 100 * i, 480 + 100 * i, i == 1 ? 20 : 7);
  }
  const Result first = assembled();
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::ranges::shuffle(records, random);
    const Result again = assembled();
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(again.stamps[i].begin_ns, first.stamps[i].begin_ns);
      EXPECT_EQ(again.stamps[i].end_ns, first.stamps[i].end_ns);
    }
    EXPECT_EQ(again.counts.without_times, 0);
    EXPECT_EQ(again.activities.size(), 3U);
  }
}

TEST_F(CuptiJoin, AnOpWithoutWorkTookPlaceWhenItWasIssuedOrItsLaneWasFree) {
  marks();
  launch(1, 10, 101);
  kernel(1, 400, 500);
  const Result r = assembled();
  EXPECT_EQ(r.stamps[1].begin_ns, 200);  // nothing before it on its lane
  EXPECT_EQ(r.stamps[1].end_ns, 200);
  EXPECT_EQ(r.stamps[2].begin_ns, 500);  // after the kernel of op 0
  EXPECT_EQ(r.stamps[2].end_ns, 500);
  EXPECT_EQ(r.counts.without_work, 2);
  EXPECT_EQ(r.counts.without_times, 0);
}

TEST_F(CuptiJoin, ACopyWithoutBytesIsNoLoss) {
  marks();
  launch(1, 10, 101, kCopy);
  const Result r = assembled();
  EXPECT_EQ(r.stamps[0].begin_ns, 100);
  EXPECT_EQ(r.counts.without_times, 0);
  EXPECT_EQ(r.counts.without_work, 3);
}

void expect_lost(const Result& r, std::size_t op) {
  EXPECT_EQ(r.stamps[op].begin_ns, 0);
  EXPECT_EQ(r.stamps[op].end_ns, 0);
  EXPECT_EQ(r.counts.without_times, 1);
}

TEST_F(CuptiJoin, ZeroTimesAreCountedAndTheOpHasNoStamp) {
  marks();
  launch(1, 10, 101);
  launch(2, 10, 102);
  kernel(1, 0, 0);
  kernel(2, 400, 500);
  const Result r = assembled();
  EXPECT_EQ(r.counts.zero_times, 1);
  EXPECT_EQ(r.activities.size(), 1U);
  expect_lost(r, 0);
}

TEST_F(CuptiJoin, AnEndOfZeroIsIncomplete) {
  marks();
  launch(1, 11, 201);
  kernel(1, 400, 0, 20);
  const Result r = assembled();
  EXPECT_EQ(r.counts.incomplete, 1);
  expect_lost(r, 1);
}

TEST_F(CuptiJoin, ALaunchWithoutItsKernelLosesTheOp) {
  marks();
  launch(1, 10, 101);
  kernel(1, 400, 500);
  launch(2, 10, 103);
  const Result r = assembled();
  EXPECT_EQ(r.counts.missing, 1);
  expect_lost(r, 0);
}

TEST_F(CuptiJoin, AFailedLaunchLeavesNoKernel) {
  marks();
  records.push_back(record_bytes(fake::owner_record(1, id(10))));
  CallRecord failed = fake::call_record(1, kRuntime, kLaunch, 1, 101, 102);
  failed.returnValue = 1;
  records.push_back(record_bytes(failed));
  const Result r = assembled();
  EXPECT_EQ(r.counts.missing, 0);
  EXPECT_EQ(r.counts.without_times, 0);
}

TEST_F(CuptiJoin, AMissingMarkMeansThatRecordsAreMissing) {
  for (std::uint32_t op : {10U, 11U, 13U}) mark(op);  // 12's is lost, and with it perhaps something of 11 or 12
  launch(1, 10, 101);
  kernel(1, 400, 500);
  const Result r = assembled();
  EXPECT_EQ(r.stamps[0].begin_ns, 400);
  EXPECT_EQ(r.stamps[1].begin_ns, 0);
  EXPECT_EQ(r.stamps[2].begin_ns, 0);
  EXPECT_EQ(r.counts.without_times, 2);
}

TEST_F(CuptiJoin, WithoutTheCallThereIsAStampButNoLaunch) {
  marks();
  records.push_back(record_bytes(fake::owner_record(1, id(10))));
  kernel(1, 400, 500);
  const Result r = assembled();
  EXPECT_EQ(r.counts.without_launch, 1);
  EXPECT_EQ(r.stamps[0].begin_ns, 400);
  EXPECT_EQ(r.activities.at(0).launch_begin_ns, 0);
  EXPECT_EQ(r.activities.at(0).launch_name, -1);
}

TEST_F(CuptiJoin, ACallThatIsNotAmongTheKnownOnesLosesNothing) {
  marks();
  launch(1, 10, 101);
  kernel(1, 400, 500);
  launch(2, 10, 103, CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020);
  const Result r = assembled();
  EXPECT_EQ(r.counts.missing, 0);
  EXPECT_EQ(r.counts.without_times, 0);
  EXPECT_EQ(r.stamps[0].end_ns, 500);
}

TEST_F(CuptiJoin, WithoutMarksAnOwnerAloneLosesTheOp) {
  launch(1, 10, 101);
  kernel(1, 400, 500);
  records.push_back(record_bytes(fake::owner_record(2, id(10))));
  const Result r = assembled();
  EXPECT_EQ(r.counts.missing, 1);
  expect_lost(r, 0);
}

TEST_F(CuptiJoin, AKernelBeforeItsLaunchKeepsItsTimesAndIsCounted) {
  marks();
  launch(1, 10, 101);
  kernel(1, 90, 180);
  const Result r = assembled();
  EXPECT_EQ(r.counts.before_launch, 1);
  EXPECT_EQ(r.stamps[0].begin_ns, 90);
}

TEST_F(CuptiJoin, TheSameRecordTwiceCountsOnce) {
  marks();
  launch(1, 10, 101);
  kernel(1, 400, 500);
  kernel(1, 400, 500);
  RecordTable table;
  for (const Bytes& record : records) table.add(decode_bytes(record));
  EXPECT_EQ(table.counts().duplicates, 1);
  EXPECT_EQ(assembled(table).activities.size(), 1U);
}

TEST_F(CuptiJoin, OfTwoCallsWithOneCorrelationTheOuterIsTheLaunch) {
  marks();
  records.push_back(record_bytes(fake::owner_record(1, id(10))));
  records.push_back(record_bytes(fake::call_record(1, kDriver, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 1, 102, 103)));
  launch(1, 10, 101);
  kernel(1, 400, 500);
  const Result r = assembled();
  ASSERT_EQ(r.activities.size(), 1U);
  EXPECT_EQ(r.names.at(static_cast<std::size_t>(r.activities[0].launch_name)), "cudaLaunchKernel");
}

TEST_F(CuptiJoin, CallsOfNcclsThreadsGoToTheOpOnTheirStream) {
  marks();
  const auto foreign = [&](std::uint32_t correlation, std::uint64_t at, std::uint32_t stream) {
    records.push_back(record_bytes(
        fake::call_record(correlation, kDriver, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, 99, at, at + 2)));
    kernel(correlation, at + 1000, at + 1100, stream, "ncclDevKernel_AllGather");
  };
  foreign(1, 205, 20);
  foreign(2, 206, 7);    // during op 1, but not on its stream
  foreign(3, 250, 20);   // between two ops
  foreign(4, 205, 300);  // another rank's
  const Result r = assembled();
  EXPECT_EQ(r.stamps[1].begin_ns, 1205);
  EXPECT_EQ(r.stamps[1].end_ns, 1305);
  EXPECT_EQ(r.activities.size(), 1U);
  EXPECT_EQ(r.counts.foreign, 2);
}

TEST(CuptiRecordTable, ForgetsWhatNobodyOwns) {
  RecordTable table(100);
  for (std::uint32_t i = 1; i <= 10'000; ++i) {
    Decoded some;
    some.works.push_back({.correlation = i, .begin_ns = 1, .end_ns = 2, .name = "k"});
    if (i % 2 == 0) some.calls.push_back({i, 1, 1, 2, find_call(kRuntime, kLaunch), false});
    table.add(std::move(some));
    EXPECT_LE(table.size(), 100U);
  }
  EXPECT_EQ(table.counts().without_launch, 4950);
}

TEST(CuptiRecordTable, KeepsWhatIsOwnedUntilItIsTaken) {
  RecordTable table(10);
  for (std::uint32_t i = 1; i <= 50; ++i) {
    Decoded some;
    some.owners.push_back({i, OpId{i <= 30 ? 1U : 2U, i}.packed()});
    table.add(std::move(some));
  }
  EXPECT_EQ(table.take(1, {}).size(), 30U);
  EXPECT_EQ(table.take(1, {}).size(), 0U);
  EXPECT_EQ(table.take(2, {}).size(), 20U);
}

TEST(CuptiCalls, NcclsLaunchIsAmongThem) {
  EXPECT_NE(find_call(kDriver, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx), nullptr);
  for (const CUpti_CallbackId id :
       {CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060, CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000,
        CUPTI_RUNTIME_TRACE_CBID_cudaMemset2DAsync_v3020, CUPTI_RUNTIME_TRACE_CBID_cudaMemset3DAsync_v3020,
        CUPTI_RUNTIME_TRACE_CBID_cudaMemcpy3DAsync_v3020, CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyBatchAsync_v12080}) {
    EXPECT_NE(find_call(kRuntime, id), nullptr) << id;
  }
  for (const CUpti_CallbackId id :
       {CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, CUPTI_DRIVER_TRACE_CBID_cuMemsetD2D32Async,
        CUPTI_DRIVER_TRACE_CBID_cuMemcpy2DAsync_v2, CUPTI_DRIVER_TRACE_CBID_cuMemcpy3DAsync_v2,
        CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync, CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync}) {
    EXPECT_NE(find_call(kDriver, id), nullptr) << id;
  }
  EXPECT_EQ(find_call(kRuntime, CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020), nullptr);
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
