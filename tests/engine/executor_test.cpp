// Calls that the executor makes of a device, op by op as the schedule says, and what it writes down.
#include "engine/executor.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>

#include "schedule/print_schedule.h"
#include "support/logged_device.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using config::RunConfig;
using schedule::Op;

model::FillParameter seeded(const Setup& setup) {
  return [&setup](int parameter, std::int64_t begin, std::span<float> out) {
    model::initialize_parameter(setup.plan.shapes.parameters[static_cast<std::size_t>(parameter)], 1, begin,
                                begin + std::ssize(out), out.data());
  };
}

/// Calls body(executor, device) for each rank of `setup`, on a device that writes down its calls.
void with_executors(const Setup& setup, const std::function<void(Executor&, testing::LoggedDevice&)>& body) {
  backend::BackendOptions options = backend_options(setup, nullptr);
  backend::cpu::make_cpu_backend()->run(options, [&](backend::RankContext& context) {
    testing::LoggedDevice device(context.device);
    backend::RankContext logged{context.rank, device, context.world};
    const testing::HashedBatches batches(53);
    Executor executor(logged, setup.config, setup.plan, setup.schedules, *setup.model, batches);
    executor.initialize(seeded(setup));
    body(executor, device);
  });
}

/// Calls of one step. Collectives of several ranks are the communicators' calls. `last`: collective of each
/// communicator, of the step before or of this one.
std::vector<std::string> calls_of(const Setup& setup, std::int64_t step, bool recorded,
                                  std::map<plan::Group, const Op*>& last) {
  const schedule::Schedule& schedule = setup.schedules.of_step(static_cast<std::size_t>(step));
  std::vector<std::string> calls;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const Op& op = schedule.ops[i];
    const std::string_view lane = to_string(op.lane);
    for (const schedule::Wait& wait : op.waits) {
      calls.push_back(op.is_host() ? fmt::format("host_wait {}", wait.event)
                                   : fmt::format("wait {} {}", lane, wait.event));
    }
    if (op.is_host()) {
      if (op.kind == schedule::OpKind::host_sync) calls.emplace_back("synchronize");
      continue;
    }
    if (op.is_collective()) {
      const Op*& before = last[op.group()];
      if (before != nullptr && before->lane != op.lane)
        calls.push_back(fmt::format("wait {} {}", lane, before->record));
      before = &op;
    }
    for (const schedule::BufferId id : op.allocates) {
      const schedule::Buffer& buffer = schedule.buffers[static_cast<std::size_t>(id)];
      calls.push_back(fmt::format("{} {} {}", buffer.space == MemorySpace::host ? "allocate_host" : "allocate", lane,
                                  buffer.bytes));
    }
    if (op.has_work()) {
      if (setup.config.inject.delay_lane == lane) calls.push_back(fmt::format("enqueue {} injected delay", lane));
      if (recorded) calls.push_back(fmt::format("op {} {}", step, i));
      if (!op.is_collective() || setup.plan.groups.size(op.group()) == 1) {
        calls.push_back(fmt::format("enqueue {} {}{}", lane, schedule::to_string(op.kind), recorded ? " stamped" : ""));
      }
    }
    calls.insert(calls.end(), op.frees.size(), fmt::format("free {}", lane));
    if (op.record != schedule::kNoEvent) calls.push_back(fmt::format("record {} {}", lane, op.record));
  }
  calls.emplace_back("synchronize");
  if (recorded) calls.insert(calls.end(), {"settle", "op -1 -1"});
  calls.insert(calls.end(), {"enqueue compute read loss", "synchronize"});
  return calls;
}

TEST(Executor, AsksTheDeviceForWhatTheScheduleSaysAndNothingElse) {
  std::vector<RunConfig> cases(5, testing::tiny_decoder());
  cases[1].fsdp.cpu_offload = config::CpuOffload::all;
  cases[2].mesh.ranks = 1;
  cases[3].fsdp.strategy = config::Strategy::hybrid_shard;
  cases[3].mesh.shard = 2;
  cases[4].inject.delay_lane = "all_gather";
  cases[4].inject.delay_us = 1;
  for (const RunConfig& c : cases) {
    const engine::Setup setup = set_up(testing::settled(c));
    with_executors(setup, [&](Executor& executor, testing::LoggedDevice& device) {
      std::map<plan::Group, const Op*> last;
      for (const std::int64_t step : {0, 1, 2}) {
        if (step == 1) executor.start_recording(2);
        device.log.clear();
        executor.run_step(step);
        EXPECT_EQ(device.log, calls_of(setup, step, step > 0, last)) << "step " << step;
      }
      executor.pause_recording(true);
      device.log.clear();
      executor.run_step(3);
      EXPECT_EQ(device.log, calls_of(setup, 3, false, last));
      EXPECT_EQ(executor.trace().steps.size(), 2U);
    });
  }
}

TEST(Executor, AStepThatComputesNothingHasNoLoss) {
  RunConfig c = testing::tiny_decoder();
  c.emulate.compute_tflops = 1000;
  with_executors(set_up(testing::settled(c)),
                 [](Executor& executor, testing::LoggedDevice&) { EXPECT_TRUE(std::isnan(executor.run_step(0))); });
}

TEST(Executor, EveryOpHasItsTimesAndTheStepItsWindow) {
  const engine::Setup setup = set_up(testing::settled(testing::tiny_decoder()));
  with_executors(setup, [&](Executor& executor, testing::LoggedDevice& device) {
    Activity activity;
    activity.op = 0;
    device.activities = {{activity}, {"kernel"}};
    const std::size_t ops = setup.schedules.of_step(1).ops.size(),
                      most = std::max(ops, setup.schedules.of_step(0).ops.size());
    executor.run_step(0);
    EXPECT_TRUE(executor.trace().records.empty());
    EXPECT_GT(executor.last_step_ns(), 0);
    executor.start_recording(2);
    const trace::RankTrace& trace = executor.trace();
    EXPECT_EQ(trace.records.capacity(), 2 * most);
    EXPECT_EQ(trace.memory.capacity(), 2 * most);
    EXPECT_EQ(trace.steps.capacity(), 2U);
    EXPECT_EQ(Executor::recording_bytes(setup.schedules, 2),
              static_cast<std::int64_t>(2 * most * (sizeof(trace::Record) + sizeof(trace::MemorySample)) +
                                        2 * sizeof(trace::StepWindow)));
    for (std::size_t round = 0; round < 2; ++round) {
      executor.run_step(static_cast<std::int64_t>(round + 1));
      ASSERT_EQ(trace.records.size(), (round + 1) * ops);
      ASSERT_EQ(trace.steps.size(), round + 1);
      EXPECT_EQ(trace.activities.size(), round + 1);
      const trace::StepWindow& window = trace.steps.back();
      std::int64_t end = 0, before = window.begin_ns;
      std::size_t samples = 0;
      for (std::size_t i = 0; i < ops; ++i) {
        const Op& op = setup.schedules.of_step(1).ops[i];
        const trace::Record& record = trace.records[round * ops + i];
        EXPECT_EQ(record.step, static_cast<std::int32_t>(round + 1));
        EXPECT_EQ(record.op, static_cast<std::int32_t>(i));
        EXPECT_GE(record.issued_ns, before);
        before = record.issued_ns;
        if (op.has_work()) {
          EXPECT_GE(record.begin_ns, record.issued_ns);
          EXPECT_GE(record.end_ns, record.begin_ns);
          end = std::max(end, record.end_ns);
        } else {
          EXPECT_EQ(record.begin_ns, 0);
          EXPECT_TRUE(record.end_ns == 0 || (op.is_host() && record.end_ns >= record.issued_ns));
          EXPECT_EQ(record.end_ns > 0, op.is_host());
        }
        samples += op.allocates.empty() && op.frees.empty() ? 0 : 1;
      }
      EXPECT_EQ(window.end_ns, end);
      EXPECT_GE(window.issued_ns, before);
      EXPECT_GE(executor.last_step_ns(), window.end_ns - window.begin_ns);
      ASSERT_EQ(trace.memory.size(), (round + 1) * samples);
      EXPECT_EQ(trace.memory.back().live, device.memory().live);
      EXPECT_EQ(trace.memory.back().reserved, device.memory().reserved);
      EXPECT_GE(trace.memory.back().time_ns, window.begin_ns);
      EXPECT_LE(trace.memory.back().time_ns, window.issued_ns);
    }
  });
}

#ifdef FSDPBENCH_NVTX_INJECTION
/// Ranges as a tool hears of them, of two ranks. NVTX asks the environment for a tool once a process, so this program
/// runs itself.
TEST(Executor, AToolHearsOfTheWorkOfEveryOp) {
  RunConfig c = testing::tiny_decoder();
  c.mesh.ranks = 2;
  c.fsdp.cpu_offload = config::CpuOffload::all;  // for which the host waits
  const engine::Setup setup = set_up(testing::settled(c));
  if (std::getenv("FSDPBENCH_NVTX_LOG") != nullptr) {
    with_executors(setup, [&](Executor& executor, testing::LoggedDevice&) {
      executor.run_step(0);
      executor.run_step(1);
    });
    return;
  }
  const TemporaryFolder folder;
  const std::string log = folder.path() / "log";
  ASSERT_EQ(
      std::system(fmt::format("FSDPBENCH_NVTX_LOG={} NVTX_INJECTION64_PATH={} GTEST_FILTER=Executor.ATool* {} "
                              "> /dev/null",
                              log, FSDPBENCH_NVTX_INJECTION, std::filesystem::read_symlink("/proc/self/exe").string())
                      .c_str()),
      0);
  std::map<std::string, std::vector<std::string>> heard;  // by category, in order
  std::ifstream file(log);
  std::size_t begun = 0, ended = 0;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> words{""};
    for (const char x : line) x == '\t' ? static_cast<void>(words.emplace_back()) : words.back().push_back(x);
    if (words[0] == "push") {
      ++begun;
      heard[words[3]].push_back(fmt::format("{} {} {} {}", words[4], words[7], words[8], words[9]));
    }
    ended += words[0] == "pop" ? 1 : 0;
  }
  std::map<std::string, std::vector<std::string>> expected;
  for (const std::size_t step : {0U, 1U}) {
    const schedule::Schedule& schedule = setup.schedules.of_step(step);
    for (const Op& op : schedule.ops) {
      std::int64_t bytes = 0;
      for (const schedule::BufferId id : op.operands().writes)
        bytes += schedule.buffers[static_cast<std::size_t>(id)].bytes;
      if (op.is_collective()) bytes = op.collective()->bytes();
      const std::uint32_t category = op.has_work() ? trace::nvtx_category(op.lane) : trace::kNvtxHostCategory;
      expected[std::to_string(category)].resize(
          expected[std::to_string(category)].size() + 2,
          fmt::format("{} {} {} {}", schedule::op_name(setup.plan, op), op.unit, step, bytes));
    }
  }
  for (auto* both : {&heard, &expected}) {
    for (auto& [category, names] : *both) std::ranges::sort(names);
  }
  EXPECT_EQ(heard, expected);
  EXPECT_EQ(begun, ended);
}
#endif

}  // namespace
}  // namespace fsdpbench::engine
