#include "runs/trace_files.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "config/find_file.h"
#include "config/support.h"
#include "runs/cell.h"
#include "trace/validate.h"

namespace fsdpbench::app {
namespace {

struct SimulatedCase {
  const char* name;
  std::vector<std::string> overrides;
};
void PrintTo(const SimulatedCase& c, std::ostream* out) { *out << c.name; }

struct Written {
  Trial trial;
  std::string findings;  ///< by the rules of traces
  nlohmann::json events;
};

Cell simulated_cell(std::vector<std::string> overrides) {
  const std::vector<std::string> small{"device.backend=virtual", "model.layers=3",   "model.width=32",
                                       "model.ffn_width=64",     "train.seq_len=16", "train.warmup=1",
                                       "train.steps=2",          "mesh.ranks=4",     "emulate.compute_tflops=0.01",
                                       "emulate.link_gb_per_s=1"};
  overrides.insert(overrides.begin(), small.begin(), small.end());
  return open_cell(load_config(config::find_profile("quickstart"), overrides, nullptr));
}

Written simulate(const std::vector<std::string>& overrides) {
  const Cell cell = simulated_cell(overrides);
  Written written{run_trial(cell, {}, current_world(cell.setup.config, nullptr, {})), {}, {}};
  const config::TemporaryFolder folder;
  write_trace_files(folder.path(), cell.setup, written.trial);
  const std::string path = (folder.path() / "trace.json").string();
  const trace::Validation validation = trace::validate_file(path);
  for (const trace::Finding& finding : validation.findings.list()) written.findings += finding.message + "\n";
  std::ifstream file(path);
  written.events = nlohmann::json::parse(file)["traceEvents"];
  return written;
}

class TraceExplanationTest : public ::testing::TestWithParam<SimulatedCase> {};

TEST_P(TraceExplanationTest, EveryMomentWithoutComputationHasACause) {
  const Written written = simulate(GetParam().overrides);
  EXPECT_EQ(written.findings, "");
  std::map<std::string, int> slices, arrows;
  std::map<int, double> stalled_us, step_us, computed_us;  // by process
  bool last_has_memory = false;
  for (const auto& event : written.events) {
    const std::string category = event.value("cat", "");
    if (event["ph"] == "X") ++slices[category];
    if (event["ph"] == "s") ++arrows[category];
    if (category == "exposed") {
      stalled_us[event["pid"]] += event["dur"].get<double>();
      const bool waited = event["args"].contains("op");
      EXPECT_EQ(waited, event["args"].contains("op name")) << event;
      EXPECT_TRUE(event["args"].contains("advice")) << event;
    }
    if (category == "step") step_us[event["pid"]] += event["args"]["step_us"].get<double>();
    if (category == "computation") computed_us[event["pid"]] += event["dur"].get<double>();
    last_has_memory = last_has_memory || event["name"] == "live bytes";
  }
  for (const auto& [pid, us] : step_us) EXPECT_NEAR(stalled_us[pid], us - computed_us[pid], 0.01) << pid;
  EXPECT_EQ(slices["bound"], slices["step"]);
  EXPECT_EQ(arrows["needed"], slices["communication"]) << "each collective was for something";
  EXPECT_TRUE(last_has_memory);
}

INSTANTIATE_TEST_SUITE_P(
    Runs, TraceExplanationTest,
    ::testing::Values(SimulatedCase{"plain", {}}, SimulatedCase{"per_param", {"fsdp.layout=per_param"}},
                      SimulatedCase{"hybrid", {"mesh.replicate=2", "fsdp.strategy=hybrid_shard"}},
                      SimulatedCase{"no_shard", {"fsdp.strategy=no_shard"}},
                      SimulatedCase{"clipping", {"train.clip_norm=1"}},
                      SimulatedCase{"accumulation", {"train.accumulate=3"}},
                      SimulatedCase{"offload", {"fsdp.cpu_offload=all", "emulate.pcie_gb_per_s=1"}},
                      SimulatedCase{"offloaded_accumulation",
                                    {"fsdp.cpu_offload=optimizer", "emulate.pcie_gb_per_s=1", "train.accumulate=2",
                                     "train.clip_norm=1"}},
                      SimulatedCase{"host_sync", {"inject.host_sync_after_layer=1"}},
                      SimulatedCase{"late_rank", {"inject.slow_rank=2", "inject.slow_rank_factor=3"}},
                      SimulatedCase{"few_of_many_ranks", {"mesh.ranks=8", "trace.ranks=2"}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(TraceExplanation, NamesTheRankThatCameLastAndTheAdviceOfItsCause) {
  const Written written = simulate({"inject.slow_rank=2", "inject.slow_rank_factor=3"});
  ASSERT_TRUE(written.trial.causes.has_value());
  std::string advice;
  for (const account::CauseShare& share : written.trial.causes->causes) {
    if (share.cause == account::Cause::straggler) advice = share.advice;
  }
  ASSERT_NE(advice, "");
  int seen = 0;
  for (const auto& event : written.events) {
    if (event.value("cat", "") != "exposed" || event["name"] != "straggler") continue;
    ++seen;
    EXPECT_EQ(event["args"]["late_rank"], 2);
    EXPECT_EQ(event["args"]["advice"], advice);
    EXPECT_NE(event["pid"], 3) << "it never waits for itself";
  }
  EXPECT_GT(seen, 0);
}

TEST(TraceExplanation, SaysSoWhereNothingIsKnownToHelpOrLittleIsLost) {
  const Cell cell = simulated_cell({});
  Trial trial = run_trial(cell, {}, current_world(cell.setup.config, nullptr, {}));
  const auto advices = [&] {
    const TraceExplanation explanation(cell.setup, trial);
    std::set<std::string> found;
    for (const trace::ExposedSpan& span : explanation(0, 0).exposed) found.emplace(span.advice);
    return found;
  };
  ASSERT_TRUE(trial.causes.has_value());
  for (account::CauseShare& share : trial.causes->causes) share.advice.clear();
  EXPECT_TRUE(advices().contains(kNothingCertain));
  trial.causes->causes.clear();  // all are small
  EXPECT_EQ(advices(), std::set<std::string>{kNothingToGain});
  trial.causes.reset();
  EXPECT_EQ(advices(), std::set<std::string>{""});
}

/// A step has the samples from its begin to the next one's, and the one before; the next rank none of them.
TEST(TraceExplanation, StepsHaveTheSamplesOfTheirGpu) {
  const Cell cell = simulated_cell({"mesh.ranks=2"});
  Trial trial = run_trial(cell, {}, current_world(cell.setup.config, nullptr, {}));
  const std::vector<trace::StepWindow>& steps = trial.measurement.traces.front().steps;
  ASSERT_EQ(steps.size(), 2U);
  trial.measurement.gpus.resize(2);
  GpuHealth& health = trial.measurement.gpus.front().emplace();
  for (const std::int64_t time : {steps[0].begin_ns - 9, steps[0].begin_ns - 5, steps[0].begin_ns + 1,
                                  steps[1].begin_ns, steps[1].end_ns - 1, steps[1].end_ns}) {
    health.samples.emplace_back().time_ns = time;
    health.samples.back().sm_mhz = 1000 + static_cast<std::int32_t>(health.samples.size());
  }
  const TraceExplanation explain(cell.setup, trial);
  const auto clocks = [&](std::size_t rank, std::size_t step) {
    std::vector<std::int32_t> all;
    for (const GpuSample& sample : explain(rank, step).gpu) all.push_back(sample.sm_mhz.value_or(0));
    return all;
  };
  EXPECT_EQ(clocks(0, 0), (std::vector<std::int32_t>{1002, 1003}));
  EXPECT_EQ(clocks(0, 1), (std::vector<std::int32_t>{1003, 1004, 1005}));
  EXPECT_TRUE(clocks(1, 0).empty());
}

}  // namespace
}  // namespace fsdpbench::app
