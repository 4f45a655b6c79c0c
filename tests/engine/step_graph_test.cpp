// device.graphs: which trainings can be launched as graphs at all.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "engine/setup.h"
#include "engine/step_graph.h"
#include "schedule/memory_walk.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings
using ::testing::AllOf;
using ::testing::HasSubstr;

RunConfig training_as_graphs() {
  RunConfig config = testing::settled(testing::tiny_decoder());
  config.device.backend = BackendKind::cuda;
  config.device.graphs = Graphs::step;
  config.train.warmup = 2;
  return config;
}

std::string refusal_of_graphs(const std::function<void(RunConfig&)>& change) {
  RunConfig config = training_as_graphs();
  change(config);
  try {
    set_up(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

TEST(StepGraph, AStepInWhichTheHostWaitsIsRefusedWithTheKey) {
  for (const AllGatherLimit limit :
       {AllGatherLimit{AllGatherLimit::Mode::strict, 1, 0}, AllGatherLimit{AllGatherLimit::Mode::fsdp1_queue, 1, 0},
        AllGatherLimit{AllGatherLimit::Mode::bytes, 1, 1}, AllGatherLimit{AllGatherLimit::Mode::fetched, 1, 0}}) {
    EXPECT_THAT(refusal_of_graphs([&](RunConfig& c) { c.fsdp.all_gather_limit = limit; }),
                AllOf(HasSubstr("device.graphs = \"step\" needs steps in which the host waits for nothing"),
                      HasSubstr("because of fsdp.all_gather_limit (expected \"unlimited\", \"fsdp2_event\" or "
                                "\"buffers:COUNT\").")));
  }
  EXPECT_THAT(refusal_of_graphs([](RunConfig& c) { c.inject.host_sync_after_layer = 0; }),
              HasSubstr("because of inject.host_sync_after_layer = 0 (expected -1)."));
  EXPECT_THAT(refusal_of_graphs([](RunConfig& c) {
                c.fsdp.reduce_bucket = 1000;
                c.fsdp.reductions_in_flight = 1;
              }),
              HasSubstr("because of fsdp.reductions_in_flight = 1 (expected 0)."));
  EXPECT_THAT(refusal_of_graphs([](RunConfig& c) {
                c.fsdp.reshard_after_forward = {ReshardAfterForward::Mode::group, 2};
                c.fsdp.host_sync_at_group_shard = true;
              }),
              HasSubstr("because of fsdp.host_sync_at_group_shard = true (expected false)."));
}

TEST(StepGraph, LimitsThatWaitOnTheDeviceOrForNobodyAreFine) {
  for (const AllGatherLimit::Mode mode :
       {AllGatherLimit::Mode::unlimited, AllGatherLimit::Mode::fsdp2_event, AllGatherLimit::Mode::buffers}) {
    EXPECT_EQ(refusal_of_graphs([&](RunConfig& c) { c.fsdp.all_gather_limit.mode = mode; }), "(nothing was thrown)");
  }
}

TEST(StepGraph, TheWarmUpHasToCaptureTheStepThatRepeats) {
  EXPECT_EQ(
      refusal_of_graphs([](RunConfig& c) { c.train.warmup = 1; }),
      "train.warmup = 1 is too little for device.graphs = \"step\": the step that repeats is step 1, it is issued op "
      "by op once and captured the next time; expected at least 2.");
  const auto learns = [](std::int64_t warmup) {
    return [warmup](RunConfig& c) {
      c.fsdp.persistence_threshold = 100000;  // the first step gathers what stays gathered
      c.train.warmup = warmup;
    };
  };
  EXPECT_THAT(refusal_of_graphs(learns(2)), HasSubstr("expected at least 3."));
  EXPECT_EQ(refusal_of_graphs(learns(3)), "(nothing was thrown)");
}

TEST(StepGraph, MemoryIsLaidOutUntilTheStepIsCaptured) {
  RunConfig config = training_as_graphs();
  config.train.steps = 50;
  const engine::Setup with = set_up(config);
  EXPECT_EQ(with.memory, schedule::memory_walk(with.schedules, 2));
  EXPECT_EQ(laid_out_steps(config, with.schedules), 2);
  config.checkpoint.folder = "somewhere";
  config.checkpoint.asynchronous = true;
  EXPECT_EQ(laid_out_steps(config, with.schedules), 52) << "steps beside copies are issued op by op";
  config.checkpoint.asynchronous = false;
  config.device.graphs = Graphs::none;
  EXPECT_EQ(laid_out_steps(config, with.schedules), 52);
}

TEST(StepGraph, OnAComputedClockNothingIsLaunched) {
  EXPECT_EQ(refusal_of_graphs([](RunConfig& c) {
              c.device.backend = BackendKind::virtual_;
              c.inject.host_sync_after_layer = 0;
              c.train.warmup = 0;
            }),
            "(nothing was thrown)");
}

}  // namespace
}  // namespace fsdpbench::engine
