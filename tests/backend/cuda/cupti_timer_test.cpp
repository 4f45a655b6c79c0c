// The timer of ops, from what CUPTI records.
#include <gmock/gmock.h>

#include <map>
#include <thread>

#include "backend/cuda/cupti_support.h"
#include "backend/cuda/fake/fake_stream.h"
#include "base/clock.h"

namespace fsdpbench::backend::cuda {
namespace {

using ::testing::HasSubstr;

TEST_F(CuptiTest, SetsUpInTheOrderThatCuptiWants) {
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  const std::vector<std::string> calls = cupti::calls();
  const auto at = [&](const std::string& call) {
    return std::ranges::find_if(calls, [&](const std::string& c) { return c.starts_with(call); }) - calls.begin();
  };
  EXPECT_LT(at("cuptiSubscribe"), at("cuptiActivityRegisterTimestampCallback"));
  EXPECT_LT(at("cuptiActivityRegisterTimestampCallback"), at("cuptiActivitySetAttribute"));
  EXPECT_LT(at("cuptiActivitySetAttribute"), at("cuptiActivityRegisterCallbacks"));
  EXPECT_LT(at("cuptiActivityRegisterCallbacks"), at("cuptiActivityEnable "));
  EXPECT_EQ(cupti::count_of("cuptiActivitySetAttribute 0"), 0);  // the device's buffers stay as they are
  collector.stop();
  EXPECT_EQ(cupti::count_of("cuptiActivityFlushAll forced"), 1);
  EXPECT_EQ(cupti::calls().back(), "cuptiUnsubscribe");
}

TEST_F(CuptiTest, WhatMustComeBeforeTheCallbacksIsSetOnceForAllSessions) {
  Collector collector(cupti::api(), kFew);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(collector.start(), "");
    collector.stop();
  }
  EXPECT_EQ(cupti::count_of("cuptiActivityRegisterTimestampCallback"), 1);
  const auto attribute = [](CUpti_ActivityAttribute a) { return "cuptiActivitySetAttribute " + std::to_string(a); };
  EXPECT_EQ(cupti::count_of(attribute(CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER)), 1);
  EXPECT_EQ(cupti::count_of(attribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER)), 1);
  EXPECT_TRUE(collector.notes().empty());
  EXPECT_EQ(cupti::count_of("cuptiSubscribe"), 3);
}

/// Calls known to CUPTI that leave a record.
std::vector<std::pair<CUpti_ActivityKind, CUpti_CallbackId>> recorded_calls() {
  std::vector<std::pair<CUpti_ActivityKind, CUpti_CallbackId>> all;
  for (const CallKind& of : kCallKinds) {
    for (CUpti_CallbackId id = 1; id < of.count; ++id) {
      if (cupti::records(of.kind, id)) all.emplace_back(of.kind, id);
    }
  }
  return all;
}

TEST_F(CuptiTest, RecordsTheCallsThatAreWantedAndNoOtherThoughTheContextIsOlder) {
  ASSERT_TRUE(fake::has_context());
  Collector collector(cupti::api(), kFew);
  std::vector<std::pair<CUpti_ActivityKind, CUpti_CallbackId>> wanted;
  for (const KnownCall& call : known_calls()) wanted.emplace_back(call.kind, call.id);
  for (int i = 0; i < 3; ++i) {  // CUPTI forgets with the kind what was switched off
    ASSERT_EQ(collector.start(), "");
    EXPECT_THAT(recorded_calls(), ::testing::UnorderedElementsAreArray(wanted)) << "start " << i;
    collector.stop();
    EXPECT_THAT(recorded_calls(), ::testing::IsEmpty()) << "stop " << i;
  }
}

TEST_F(CuptiTest, TheStandInHasTheSwitchesOfTheRealOne) {
  const CuptiApi api = cupti::api();
  constexpr auto kKind = CUPTI_ACTIVITY_KIND_RUNTIME;
  constexpr CUpti_CallbackId kMalloc = CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020;
  constexpr CUpti_CallbackId kFree = CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020;
  const auto recorded = [&] { return std::pair{cupti::records(kKind, kMalloc), cupti::records(kKind, kFree)}; };
  EXPECT_NE(api.enable_runtime_api(0, 1), CUPTI_SUCCESS);
  EXPECT_NE(api.enable_runtime_api(99999, 1), CUPTI_SUCCESS);
  api.enable_runtime_api(kMalloc, 1);
  EXPECT_EQ(recorded(), (std::pair{false, false}));  // the context is older
  api.enable(kKind);
  EXPECT_EQ(recorded(), (std::pair{true, true}));
  api.enable_runtime_api(kMalloc, 0);
  EXPECT_EQ(recorded(), (std::pair{false, true}));
  api.enable(kKind);
  EXPECT_EQ(recorded(), (std::pair{true, true}));
  api.disable(kKind);
  api.enable_runtime_api(kMalloc, 1);
  EXPECT_EQ(recorded(), (std::pair{false, false}));

  cupti::reset();
  fake::reset();
  api.enable_runtime_api(kMalloc, 1);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(recorded(), (std::pair{true, false}));
  api.enable_runtime_api(kFree, 1);
  EXPECT_EQ(recorded(), (std::pair{true, true}));
}

TEST_F(CuptiTest, AnAttributeThatCuptiRefusesIsSaidAndOpsAreTimedAllTheSame) {
  cupti::fail("cuptiActivitySetAttribute", CUPTI_ERROR_NOT_SUPPORTED);
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  CuptiTimer timer(collector, nullptr, kShort);
  Stamp stamp;
  op(timer, 0, stamp, 1, 5000);
  timer.settle();
  EXPECT_EQ(stamp.begin_ns, 5000);
  EXPECT_THAT(facts(timer)["record buffers"], HasSubstr("CUPTI cannot "));
  EXPECT_EQ(collector.notes().size(), 2U);
  collector.stop();
}

TEST_F(CuptiTest, ALaunchWithinALaunchIsOneLaunch) {
  for (const bool one_number : {true, false}) {
    cupti::reset();
    Collector collector(cupti::api(), kFew);
    ASSERT_EQ(collector.start(), "");
    CuptiTimer timer(collector, nullptr, {std::chrono::hours(1), std::chrono::hours(1)});
    Stamp stamp;
    timer.begin(Lane::compute, stream_, 0, 0, &stamp);
    cupti::launch_kernel_by_driver({"gemm", 0, number_, 700, 800, 0}, one_number);
    timer.end(Lane::compute, stream_);
    timer.settle();  // would wait for what the outer call leaves
    EXPECT_EQ(stamp.begin_ns, 700);
    EXPECT_EQ(stamp.end_ns, 800);
    EXPECT_EQ(timer.counts().missing, 0);
    EXPECT_EQ(timer.take_activities().all.size(), 1U);
    collector.stop();
  }
}

TEST_F(CuptiTest, SaysWhyItCannotBeUsed) {
  const auto reason = [&](const std::string& function, CUptiResult status) {
    cupti::reset();
    cupti::fail(function, status);
    Collector collector(cupti::api(), kFew);
    return collector.start();
  };
  EXPECT_THAT(reason("cuptiSubscribe", CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED),
              HasSubstr("Another profiler (nsys, ncu or PyTorch's) is attached"));
  EXPECT_EQ(cupti::count_of("cuptiUnsubscribe"), 0);
  EXPECT_THAT(reason("cuptiActivityEnable", CUPTI_ERROR_INSUFFICIENT_PRIVILEGES), HasSubstr("not permitted"));
  EXPECT_EQ(cupti::count_of("cuptiUnsubscribe"), 1);
  EXPECT_THAT(reason("cuptiActivityRegisterTimestampCallback", CUPTI_ERROR_UNKNOWN), HasSubstr("the fake says so"));
  cupti::reset();
  for (const std::uint32_t version : {26U, 140000U}) {
    cupti::set_version(version);
    Collector other(cupti::api(), kFew);
    EXPECT_THAT(other.start(), HasSubstr("has version " + std::to_string(version)));
  }
  EXPECT_EQ(cupti::count_of("cuptiSubscribe"), 0);
}

TEST_F(CuptiTest, TimesOpsAndTellsTheirWorks) {
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  CuptiTimer timer(collector, nullptr, kShort);
  for (int round = 0; round < 5; ++round) {
    std::vector<Stamp> stamps(6);
    const std::int64_t later = now_ns() + 1'000'000'000;
    for (int i = 0; i < 6; ++i) op(timer, i, stamps[static_cast<std::size_t>(i)], i, later + 10'000 * i);
    cupti::shuffle(static_cast<unsigned>(round));
    timer.settle();
    for (int i = 1; i < 6; ++i) {
      const Stamp& stamp = stamps[static_cast<std::size_t>(i)];
      EXPECT_EQ(stamp.begin_ns, later + 10'000 * i);
      EXPECT_EQ(stamp.end_ns, stamp.begin_ns + 1000 * i - 100);
    }
    EXPECT_EQ(stamps[0].begin_ns, stamps[0].end_ns);  // launched nothing
    EXPECT_GT(stamps[0].begin_ns, 0);
    const Activities works = timer.take_activities();
    EXPECT_EQ(works.all.size(), 15U);
    EXPECT_TRUE(std::ranges::is_sorted(works.all, {}, &Activity::begin_ns));
    EXPECT_EQ(works.all.front().op, 1);
    EXPECT_EQ(works.all.front().step, 3);
    EXPECT_TRUE(timer.take_activities().all.empty());
  }
  EXPECT_EQ(timer.counts().without_times, 0);
  EXPECT_EQ(collector.table().size(), 0U);
  EXPECT_THAT(facts(timer)["timer"], HasSubstr("CUPTI 13.0"));
  EXPECT_EQ(facts(timer).size(), 2U);  // and the ops without work
  collector.stop();
}

TEST_F(CuptiTest, WaitsForLateRecords) {
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  CuptiTimer timer(collector, nullptr, CuptiTimer::Patience{});
  Stamp stamp;
  timer.begin(Lane::compute, stream_, 0, 0, &stamp);
  const std::uint32_t correlation = cupti::new_correlation();
  cupti::record(fake::owner_record(correlation, cupti::pushed_id()));
  cupti::record(fake::call_record(correlation, CUPTI_ACTIVITY_KIND_RUNTIME,
                                  CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, 1, 1, 2));
  timer.end(Lane::compute, stream_);
  int flushes = 0;
  cupti::at_flush([&](std::uint32_t flag) {
    EXPECT_EQ(flag, 0U);  // by force it would come incomplete, and never again
    if (++flushes == 4) cupti::record(fake::kernel_record(correlation, {"late", 0, number_, 700, 800, 0}));
  });
  timer.settle();
  EXPECT_GE(flushes, 4);
  EXPECT_EQ(stamp.begin_ns, 700);
  EXPECT_EQ(stamp.end_ns, 800);
  cupti::at_flush(nullptr);
  collector.stop();
}

TEST_F(CuptiTest, OpsWhoseRecordsNeverComeHaveNoStampAndAreCounted) {
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  CuptiTimer timer(collector, nullptr, kShort);
  Stamp good, bad;
  op(timer, 0, good, 1, 5000);
  timer.begin(Lane::compute, stream_, 0, 1, &bad);
  const std::uint32_t correlation = cupti::new_correlation();
  cupti::record(fake::owner_record(correlation, cupti::pushed_id()));
  cupti::record(fake::call_record(correlation, CUPTI_ACTIVITY_KIND_RUNTIME,
                                  CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000, 1, 1, 2));
  timer.end(Lane::compute, stream_);
  cupti::drop(3);
  timer.settle();
  EXPECT_EQ(good.begin_ns, 5000);
  EXPECT_EQ(bad.begin_ns, 0);
  EXPECT_EQ(bad.end_ns, 0);
  const auto known = facts(timer);
  EXPECT_THAT(known.at("ops without times"), HasSubstr("1: "));
  EXPECT_THAT(known.at("records dropped"), HasSubstr("3: "));
  EXPECT_THAT(known.at("launches without record"), HasSubstr("1: "));
  collector.stop();
}

TEST_F(CuptiTest, CallsThatAreNotAmongTheKnownOnesAreNotWaitedFor) {
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  CuptiTimer timer(collector, nullptr, {std::chrono::hours(1), std::chrono::hours(1)});
  Stamp stamp;
  timer.begin(Lane::compute, stream_, 0, 0, &stamp);
  cupti::launch_kernel({"gemm", 0, number_, 700, 800, 0});
  const std::uint32_t correlation = cupti::new_correlation();
  cupti::record(fake::owner_record(correlation, cupti::pushed_id()));
  cupti::record(fake::call_record(correlation, CUPTI_ACTIVITY_KIND_RUNTIME,
                                  CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020, 1, 1, 2));
  timer.end(Lane::compute, stream_);
  timer.settle();  // would not come back
  EXPECT_EQ(stamp.end_ns, 800);
  EXPECT_EQ(timer.counts().without_times, 0);
  collector.stop();
}

TEST_F(CuptiTest, LateRecordsDoNotCountForTheNextStep) {
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  CuptiTimer timer(collector, nullptr, kShort);
  Stamp first;
  timer.begin(Lane::compute, stream_, 0, 0, &first);
  const std::uint64_t id = cupti::pushed_id();
  timer.end(Lane::compute, stream_);
  cupti::at_flush([](std::uint32_t) { cupti::discard(); });
  timer.settle();
  EXPECT_EQ(first.begin_ns, 0);
  // Its marks come now, and with them the next step would seem complete.
  Stamp second;
  op(timer, 1, second, 1, 7000);
  int flushes = 0;
  cupti::at_flush([&](std::uint32_t) {
    if (++flushes > 1) return;
    cupti::hold();
    for (std::uint32_t i = 0; i < 2; ++i) {
      const std::uint32_t correlation = cupti::new_correlation();
      cupti::record(fake::owner_record(correlation, id + i));
      cupti::record(fake::call_record(correlation, CUPTI_ACTIVITY_KIND_RUNTIME,
                                      CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020, 1, 1, 2));
    }
  });
  timer.settle();
  EXPECT_EQ(second.begin_ns, 7000);
  EXPECT_GE(flushes, 2);
  EXPECT_EQ(timer.counts().without_times, 1);
  cupti::at_flush(nullptr);
  collector.stop();
}

TEST_F(CuptiTest, WorkOutsideOfOpsIsNobodysButCountedDuringAStep) {
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  CuptiTimer timer(collector, nullptr, kShort);
  cupti::launch_kernel({"warm_up", 0, number_, 10, 20, 0});
  Stamp first, second;
  op(timer, 0, first, 1, 5000);
  cupti::launch_kernel({"between", 0, number_, 6000, 6100, 0});
  op(timer, 1, second, 1, 7000);
  cupti::launch_kernel({"read_loss", 0, number_, 9000, 9100, 0});
  timer.settle();
  EXPECT_EQ(first.end_ns, 5900);
  EXPECT_EQ(second.begin_ns, 7000);
  EXPECT_EQ(timer.take_activities().all.size(), 2U);
  EXPECT_EQ(timer.counts().foreign, 1);
  EXPECT_EQ(collector.table().size(), 0U);
  collector.stop();
}

TEST_F(CuptiTest, WithoutAnyRecordNoOpHasAStamp) {
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  CuptiTimer timer(collector, nullptr, kShort);
  cupti::at_flush([](std::uint32_t) { cupti::discard(); });
  std::vector<Stamp> stamps(3, {1, 1, 0});
  for (int settles = 1; settles <= 2; ++settles) {
    for (int i = 0; i < 3; ++i) op(timer, i, stamps[static_cast<std::size_t>(i)], i, 5000);
    timer.settle();
    for (const Stamp& stamp : stamps) EXPECT_EQ(stamp.begin_ns, 0);
    EXPECT_EQ(timer.counts().without_times, 3 * settles);
  }
  // Nor will there be one later: the next steps do not wait for it.
  const int flushes = cupti::count_of("cuptiActivityFlushAll");
  op(timer, 3, stamps[0], 1, 5000);
  timer.settle();
  EXPECT_EQ(cupti::count_of("cuptiActivityFlushAll"), flushes + 1);
  EXPECT_THAT(facts(timer)["steps without records"], HasSubstr("3: "));
  // If they come all the same, they count.
  cupti::at_flush(nullptr);
  op(timer, 4, stamps[0], 1, 5000);
  timer.settle();
  EXPECT_EQ(stamps[0].begin_ns, 5000);
  EXPECT_THAT(facts(timer)["steps without records"], HasSubstr("3: "));
  collector.stop();
}

TEST_F(CuptiTest, ACuptiThatDoesNotRecordMarksStillTimes) {
  cupti::ignore_marks();
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  CuptiTimer timer(collector, nullptr, kShort);
  for (int round = 0; round < 2; ++round) {
    Stamp stamp;
    op(timer, 0, stamp, 1, 5000);
    timer.settle();
    EXPECT_EQ(stamp.begin_ns, 5000);
  }
  EXPECT_EQ(facts(timer).count("op marks"), 1U);
  collector.stop();
}

TEST_F(CuptiTest, RanksOfOneProcessGetTheirOwnOps) {
  Collector collector(cupti::api(), kFew);
  ASSERT_EQ(collector.start(), "");
  constexpr int kRanks = 4;
  std::vector<std::thread> ranks;
  std::array<int, kRanks> wrong{};
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] {
      cudaStream_t stream = nullptr;
      cudaStreamCreate(&stream);
      std::uint32_t number = 0;
      cupti::api().get_stream_id(nullptr, stream, 0, &number);
      CuptiTimer timer(collector, nullptr, CuptiTimer::Patience{});
      for (int step = 0; step < 20; ++step) {
        std::array<Stamp, 5> stamps{};
        for (int i = 0; i < 5; ++i) {
          timer.begin(Lane::compute, stream, step, i, &stamps[static_cast<std::size_t>(i)]);
          const auto at = static_cast<std::uint64_t>(1000 + 100 * rank + i);
          cupti::launch_kernel({"k", 0, number, at, at + 50, 0});
          timer.end(Lane::compute, stream);
        }
        timer.settle();
        for (int i = 0; i < 5; ++i) {
          const Stamp& stamp = stamps[static_cast<std::size_t>(i)];
          wrong[static_cast<std::size_t>(rank)] +=
              stamp.begin_ns != 1000 + 100 * rank + i || stamp.end_ns != stamp.begin_ns + 50;
        }
      }
      wrong[static_cast<std::size_t>(rank)] += static_cast<int>(timer.counts().without_times);
      cudaStreamDestroy(stream);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, (std::array<int, kRanks>{}));
  collector.stop();
}

TEST_F(CuptiTest, TheLastTimerOfARunSwitchesOff) {
  ::setenv("FSDPBENCH_FAKE_CUPTI", "1", 1);
  std::string why_not;
  const std::int64_t memory = fake::live_bytes(0);
  std::unique_ptr<OpTimer> first = make_cupti_timer(&why_not);
  ASSERT_NE(first, nullptr) << why_not;
  std::unique_ptr<OpTimer> second = make_cupti_timer(&why_not);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(cupti::count_of("cuptiSubscribe"), 1);
  EXPECT_EQ(fake::live_bytes(0), memory);  // of the trial
  EXPECT_TRUE(first->take_activities().all.empty());
  first.reset();
  EXPECT_EQ(cupti::count_of("cuptiUnsubscribe"), 0);
  second.reset();
  EXPECT_EQ(cupti::count_of("cuptiUnsubscribe"), 1);
  cupti::fail("cuptiSubscribe", CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  EXPECT_EQ(make_cupti_timer(&why_not), nullptr);
  EXPECT_THAT(why_not, HasSubstr("Another profiler"));
}

}  // namespace
}  // namespace fsdpbench::backend::cuda
