#include "hardware/other_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/find_file.h"
#include "config/support.h"
#include "runs/run_table.h"
#include "runs/trial.h"
#include "support/trials.h"
#include "tune/run_doubt.h"

namespace fsdpbench::app {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

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

TEST(OtherWorkTest, DisturbsWhatProcessorsDo) {
  Trial trial = fsdpbench::testing::made_up_trial({1});
  EXPECT_EQ(disturbing_share(trial), 0) << "not known";
  trial.others_share = kQuietShare / 2;
  EXPECT_EQ(disturbing_share(trial), 0) << "too little for a word";
  trial.others_share = 0.37;
  EXPECT_EQ(disturbing_share(trial), 0.37);
  trial.world.emulated_compute = true;
  EXPECT_EQ(disturbing_share(trial), 0.37) << "processors move the bytes";
  trial.world.emulated_link = true;
  EXPECT_EQ(disturbing_share(trial), 0) << "everything takes the time of its model";
  trial.world.emulated_link = trial.world.emulated_compute = false;
  for (const char* backend : {"cuda", "virtual"}) {
    trial.world.backend = backend;
    EXPECT_EQ(disturbing_share(trial), 0) << backend;
  }
}

/// A run during which other programs took `share` of the processors.
struct DisturbedRun {
  DisturbedRun(double share, const std::vector<std::string>& emulated)
      : cell(open_cell(load_config(config::find_profile("quickstart"), keys(emulated), nullptr))),
        trial(run_trial(cell, {}, current_world(cell.setup.config, nullptr, {}),
                        [share](const Cell& of, const engine::RunHooks& hooks) {
                          engine::Measurement measurement = train_on_threads(of, hooks);
                          measurement.others_share = share;
                          return measurement;
                        })) {}

  static std::vector<std::string> keys(std::vector<std::string> emulated) {
    for (const char* key : {"model.layers=2", "model.width=32", "model.ffn_width=64", "train.seq_len=16",
                            "train.batch_per_rank=1", "train.steps=2", "mesh.ranks=2"}) {
      emulated.emplace_back(key);
    }
    return emulated;
  }
  bool says_so() const {
    return std::ranges::any_of(trial.caveats, [](const std::string& c) { return c.starts_with("busy: "); });
  }

  Cell cell;
  Trial trial;
};

TEST(OtherWorkTest, ARunSaysThatItWasDisturbed) {
  const std::vector<std::string> real{"emulate.compute_tflops=none", "emulate.link_gb_per_s=none"};
  const DisturbedRun busy(0.37, real);
  ASSERT_FALSE(busy.trial.caveats.empty());
  EXPECT_THAT(busy.trial.caveats.back(), StartsWith("busy: other programs used 37 % of the CPU during this run"));
  EXPECT_THAT(run_table(busy.cell.setup, busy.trial, "runs/x"), HasSubstr(busy.trial.caveats.back() + ".\n"));
  EXPECT_FALSE(DisturbedRun(0.05, real).says_so());
  EXPECT_FALSE(DisturbedRun(0.37, {"emulate.compute_tflops=0.001", "emulate.link_gb_per_s=1"}).says_so());
}

TEST(OtherWorkTest, AnswersFromADisturbedRunSaySo) {
  FinishedRun run;
  run.folder = "runs/x";
  run.trial = fsdpbench::testing::made_up_trial({1});
  EXPECT_EQ(why_disturbed(run), "");
  run.trial.others_share = 0.37;
  EXPECT_EQ(why_disturbed(run),
            "runs/x was measured on a busy machine (other programs used 37 % of the CPU): this answer holds for a "
            "machine that is as busy");
}

}  // namespace
}  // namespace fsdpbench::app
