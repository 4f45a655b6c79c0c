// Whole trainings on imagined GPUs, timed by CUPTI's records.
#include <gmock/gmock.h>

#include <map>
#include <sstream>
#include <utility>
#include <variant>
#include <vector>

#include "account/run_metrics.h"
#include "backend/cpu/backend.h"
#include "backend/cuda/emulated_support.h"
#include "backend/cuda/fake/cupti/fake_cupti.h"
#include "engine/run.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

Measurement run_timed(const RunConfig& config) {
  const backend::FakeGpus gpus(8);
  const testing::HashedBatches batches(static_cast<std::int32_t>(config.model.vocab));
  RunHooks hooks;
  hooks.keep_parameters = true;
  return run(*backend::make_cuda_with(backend::cpu::make_host_kernels), set_up(config), batches, hooks);
}

class CuptiTraining : public ::testing::TestWithParam<int> {};

RunConfig short_run(int ranks, Timer timer) {
  RunConfig config = testing::tiny_decoder();
  config.model.width = 32;
  config.train.steps = 2;
  config.mesh.ranks = ranks;
  config.device.backend = BackendKind::cuda;
  config.device.timer = timer;
  return testing::settled(config);
}

TEST_P(CuptiTraining, EveryOpHasItsTimesAndItsKernels) {
  const RunConfig config = short_run(GetParam(), Timer::cupti);
  const Measurement result = run_timed(config);

  // Throws where an op lies outside of its step, as one without times would.
  const engine::Setup p = set_up(config);
  const account::RunMetrics m = account::run_metrics({p.schedules, result.traces}, p.plan.groups, 1.0);
  EXPECT_GT(m.compute_ms, 0);

  for (const trace::RankTrace& trace : result.traces) {
    ASSERT_FALSE(trace.activities.empty());
    std::map<std::pair<int, int>, const trace::Record*> records;
    for (const trace::Record& record : trace.records) records[{record.step, record.op}] = &record;
    std::map<std::pair<int, int>, std::pair<std::int64_t, std::int64_t>> spans;
    for (const Activity& a : trace.activities) {
      const trace::Record& record = *records.at({a.step, a.op});
      EXPECT_LE(record.begin_ns, a.begin_ns);
      EXPECT_LE(a.end_ns, record.end_ns);
      EXPECT_LE(a.launch_begin_ns, a.begin_ns);
      EXPECT_LE(record.issued_ns, a.launch_begin_ns);
      auto [span, fresh] = spans.try_emplace({a.step, a.op}, a.begin_ns, a.end_ns);
      span->second.first = std::min(span->second.first, a.begin_ns);
      span->second.second = std::max(span->second.second, a.end_ns);
    }
    int computations = 0;
    for (const trace::Record& record : trace.records) {
      const schedule::Op& op =
          p.schedules.of_step(static_cast<std::size_t>(record.step)).ops[static_cast<std::size_t>(record.op)];
      if (!op.has_work()) continue;
      const auto span = spans.find({record.step, record.op});
      if (op.kind == schedule::OpKind::forward || op.kind == schedule::OpKind::backward) {
        ++computations;
        ASSERT_NE(span, spans.end());
      }
      if (GetParam() > 1 && op.is_collective()) {
        ASSERT_NE(span, spans.end()) << schedule::to_string(op.kind);
      }
      if (span == spans.end()) {
        EXPECT_EQ(record.begin_ns, record.end_ns);
      } else {
        EXPECT_EQ(record.begin_ns, span->second.first);
        EXPECT_EQ(record.end_ns, span->second.second);
      }
    }
    EXPECT_GT(computations, 0);
  }
}

TEST(CuptiTrainingOfTwoClocks, OpsBeginNoSoonerThanTheyAreIssuedAndTheRunIsKept) {
  const RunConfig config = short_run(1, Timer::cupti);
  const engine::Setup p = set_up(config);
  const auto timed_early = [&](std::int64_t ns) {
    fake::cupti::set_clock_behind(ns);
    Measurement result = run_timed(config);
    fake::cupti::reset();
    return result;
  };
  const Measurement result = timed_early(50'000);
  EXPECT_GT(account::run_metrics({p.schedules, result.traces}, p.plan.groups, 1.0).compute_ms, 0);
  for (const trace::Record& record : result.traces.front().records) {
    if (record.begin_ns != 0) {
      EXPECT_LE(record.issued_ns, record.begin_ns);
    }
    EXPECT_LE(record.begin_ns, record.end_ns);
  }
  std::map<std::pair<int, int>, const trace::Record*> records;
  for (const trace::Record& record : result.traces.front().records) records[{record.step, record.op}] = &record;
  for (const Activity& a : result.traces.front().activities) {
    EXPECT_LE(a.launch_begin_ns, a.begin_ns);
    EXPECT_LE(records.at({a.step, a.op})->begin_ns, a.begin_ns);
    EXPECT_LE(a.begin_ns, a.end_ns);
    EXPECT_LE(a.end_ns, records.at({a.step, a.op})->end_ns);
  }
  EXPECT_GT(result.early_ns.front(), 0);
  EXPECT_LE(result.early_ns.front(), 50'000);

  const Measurement wrong = timed_early(3'600'000'000'000);  // no two clocks of one machine
  EXPECT_EQ(wrong.early_ns.front(), 0);
  EXPECT_THROW(account::run_metrics({p.schedules, wrong.traces}, p.plan.groups, 1.0), Error);
}

TEST(CuptiTrainingWithoutRecords, EventsTimeTheOpsWhereCuptiRecordsNothing) {
  fake::cupti::ignore_calls();
  const RunConfig config = short_run(2, Timer::automatic);
  const Measurement result = run_timed(config);
  const RunConfig by_force = short_run(1, Timer::cupti);
  EXPECT_THAT([&] { run_timed(by_force); },
              ::testing::ThrowsMessage<ConfigError>(::testing::HasSubstr("no record of it came")));
  fake::cupti::reset();

  const engine::Setup p = set_up(config);
  EXPECT_GT(account::run_metrics({p.schedules, result.traces}, p.plan.groups, 1.0).compute_ms, 0);
  for (const backend::Facts& facts : result.devices) {
    EXPECT_THAT(facts, ::testing::Contains(::testing::Pair("no CUPTI", ::testing::HasSubstr("no record of it came"))));
    EXPECT_THAT(facts, ::testing::Contains(::testing::Pair("timer", ::testing::HasSubstr("CUDA events"))));
  }
}

TEST_P(CuptiTraining, TheTimerDoesNotChangeWhatIsComputed) {
  const Measurement by_cupti = run_timed(short_run(GetParam(), Timer::cupti));
  const Measurement by_events = run_timed(short_run(GetParam(), Timer::events));
  EXPECT_EQ(by_cupti.losses, by_events.losses);
  EXPECT_EQ(by_cupti.parameters, by_events.parameters);
}

TEST_P(CuptiTraining, ATransferIsOneCopyAndWhatTheHostComputesIsNoneOfTheGpus) {
  for (const CpuOffload offload : {CpuOffload::optimizer, CpuOffload::all}) {
    RunConfig config = short_run(GetParam(), Timer::cupti);
    config.fsdp.cpu_offload = offload;
    const Measurement result = run_timed(config);
    const engine::Setup p = set_up(config);
    for (const trace::RankTrace& trace : result.traces) {
      std::map<std::pair<int, int>, std::vector<Activity>> done;
      for (const Activity& a : trace.activities) done[{a.step, a.op}].push_back(a);
      int transfers = 0, on_host = 0;
      for (const trace::Record& record : trace.records) {
        const schedule::Op& op =
            p.schedules.of_step(static_cast<std::size_t>(record.step)).ops[static_cast<std::size_t>(record.op)];
        const std::vector<Activity>& of_op = done[{record.step, record.op}];
        if (const auto* const transfer = std::get_if<schedule::Transfer>(&op.work)) {
          ++transfers;
          ASSERT_EQ(of_op.size(), 1U);
          EXPECT_EQ(of_op.front().kind, Activity::Kind::copy);
          EXPECT_EQ(of_op.front().bytes, transfer->bytes);
        } else if (op.has_work() && op.lane == Lane::host_compute) {
          ++on_host;
          EXPECT_TRUE(of_op.empty());
          EXPECT_LE(record.issued_ns, record.begin_ns);
          EXPECT_LT(record.begin_ns, record.end_ns);
        }
      }
      EXPECT_GT(transfers, 0);
      EXPECT_GT(on_host, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CuptiTraining, ::testing::Values(1, 2), ::testing::PrintToStringParamName());

}  // namespace
}  // namespace fsdpbench::engine
