#include "runs/world.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "config/find_file.h"
#include "engine/simulate.h"
#include "runs/result_json.h"
#include "runs/simulated_machine.h"
#include "runs/trial.h"

namespace fsdpbench::app {
namespace {

using clock::Reach;

Cell simulated(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"device.backend=virtual", "train.steps=3", "train.warmup=1"});
  return open_cell(load_config(config::find_profile("quickstart"), overrides, nullptr));
}

Cell on_cluster(std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), {"simulate.cluster=dgx-h100", "emulate.link_gb_per_s=none", "mesh.ranks=16",
                                       "fsdp.param_dtype=bf16"});
  return simulated(std::move(overrides));
}

Trial trial_of(const Cell& cell) { return run_trial(cell, {}, current_world(cell.setup.config, nullptr, {})); }

TEST(PredictionInterval, OfGivenRatesThereIsNone) {
  const Cell cell = simulated({"mesh.ranks=4", "emulate.compute_tflops=0.01"});
  const Trial trial = trial_of(cell);
  ASSERT_TRUE(trial.sureness);
  EXPECT_EQ(trial.sureness->from, "given rates");
  EXPECT_FALSE(trial.sureness->step_ms);
  const nlohmann::json j = result_json(cell.setup, trial).at("prediction");
  EXPECT_TRUE(j.contains("no_interval_because"));
  EXPECT_FALSE(j.contains("reach"));
}

TEST(PredictionInterval, OfAClusterIsFromPublishedRatesAndHoldsItsPrediction) {
  const Cell cell = on_cluster();
  const Trial trial = trial_of(cell);
  const nlohmann::json j = result_json(cell.setup, trial).at("prediction");
  EXPECT_EQ(j.at("from"), "published rates");
  EXPECT_EQ(j.at("ops").at("measured"), 0);  // nothing was measured on the machine itself
  EXPECT_LT(j.at("step_ms").at("low").get<double>(), trial.metrics->step_ms.median);
  EXPECT_GT(j.at("step_ms").at("high").get<double>(), trial.metrics->step_ms.median);
  EXPECT_LE(j.at("exposed_comm_ms").at("low").get<double>(), trial.metrics->exposed_comm_ms);
  EXPECT_GE(j.at("exposed_comm_ms").at("high").get<double>(), trial.metrics->exposed_comm_ms);
  // Bit by bit the same again.
  EXPECT_EQ(result_json(cell.setup, trial_of(on_cluster())).at("prediction"), j);
}

/// The kernels of this engine's own profiles for GPUs are not those of an eager training. Of 989
/// TFLOP/s a step gets more than an eager one of PyTorch would, and less than the best products alone.
TEST(PredictionInterval, ProfilesForGpusAreSimulatedWithThisEnginesKernels) {
  for (const char* name : {"gpu-100m", "gpu-1b", "gpu-3b"}) {
    const auto step_ms = [&](std::vector<std::string> overrides) {
      overrides.insert(overrides.begin(),
                       {"device.backend=virtual", "simulate.cluster=hgx-h200", "train.steps=2", "train.warmup=1"});
      const Trial trial = trial_of(open_cell(load_config(config::find_profile(name), overrides, nullptr)));
      return trial.metrics->step_ms.median;
    };
    const config::Simulate eager;
    EXPECT_LT(step_ms({}), 0.8 * step_ms({"simulate.compiled=false", "simulate.loss=auto", "simulate.attention=flash2",
                                          fmt::format("simulate.efficiency={}", eager.efficiency.value)}))
        << name;
    if (name != std::string_view("gpu-1b")) continue;
    const double peak_ms = 6 * 1.236e9 * 8192 / 989e12 * 1e3;  // all products of a step at the data sheet's rate
    EXPECT_GT(step_ms({}), peak_ms / 0.60);
    EXPECT_LT(step_ms({}), peak_ms / 0.42);
  }
}

/// Few rows, all of one source, are of NCCL's symmetric kernels: they make the gathers quicker and the doubt of what is
/// exposed larger. (That of the step may be less: computation beside them is slowed less.)
TEST(PredictionInterval, OfSymmetricMemoryIsWiderThanOfRings) {
  struct Forecast {
    double exposed = 0, step = 0, wide = 0;
    std::string collectives;
  };
  const auto of = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"mesh.ranks=8", "model.preset=llama3-8b", "train.seq_len=512",
                                         "train.batch_per_rank=1", "nccl.register_buffers=window"});
    const Cell cell = on_cluster(std::move(overrides));
    const Trial trial = trial_of(cell);
    const nlohmann::json j = result_json(cell.setup, trial);
    const nlohmann::json& bounds = j.at("prediction").at("exposed_comm_ms");
    return Forecast{trial.metrics->exposed_comm_ms, trial.metrics->step_ms.median,
                    bounds.at("high").get<double>() / bounds.at("low").get<double>(), j.at("collectives").dump()};
  };
  const Forecast ring = of({"nccl.register_buffers=none"}), symmetric = of({}),
                 told = of({"simulate.collectives=ring"}), far = of({"mesh.ranks=16"}),
                 far_ring = of({"mesh.ranks=16", "nccl.register_buffers=none"});
  EXPECT_NE(symmetric.step, ring.step);
  EXPECT_GT(symmetric.wide, ring.wide);
  EXPECT_NE(symmetric.collectives.find("symmetric"), std::string::npos);
  EXPECT_EQ(told.step, ring.step) << "an algorithm that is asked for is taken";
  EXPECT_EQ(far.step, far_ring.step) << "two nodes are no NVLink domain";
  EXPECT_EQ(far.wide, far_ring.wide);
}

/// DeepSpeed's loop of the second step is in a mean over few steps, and nobody says how many were left out.
TEST(PredictionInterval, HoldsAMeanWithASlowSecondStep) {
  const auto of = [](const char* preset) {
    const Cell cell = on_cluster({preset, "model.preset=gpt2-124m", "mesh.ranks=8", "train.steps=5"});
    return std::pair(trial_of(cell).sureness->step_ms->high, second_step_ms(cell.setup.config, cell.times));
  };
  EXPECT_EQ(of("fsdp.preset=deepspeed-z2").second, 0);
  const auto [high, more] = of("fsdp.preset=deepspeed-z3");
  EXPECT_GT(more, 20);
  EXPECT_GT(high, of("fsdp.preset=deepspeed-z2").first + more);
}

/// Rows that are all off by one factor move the step by it; rows that were exact leave no doubt.
TEST(PredictionInterval, IsAsWideAsPublishedRowsAreOff) {
  Cell cell = on_cluster({"model.preset=llama3-8b", "train.seq_len=4096", "mesh.ranks=8"});
  config::Accuracy accuracy = config::read_accuracy(config::find_accuracy());
  const auto with = [&](double ratio, int most_ranks = 1024) {
    for (config::AccuracyRows& rows : accuracy.rows) {
      rows = {.time_ratios = {ratio},
              .sources = {"S"},
              .clusters = {"dgx-h100"},
              .least_ranks = 1,
              .most_ranks = most_ranks,
              .most_bytes = 1e12,
              .most_tokens = 1e12};
    }
    cell.basis.uncertainty = published_uncertainty(cell.setup, config::load_cluster("dgx-h100"), accuracy, cell.times);
    std::ranges::fill(cell.basis.uncertainty->own_issue, 1);  // and the host as its file says
    account::RunMetrics predicted;
    const SteadyStep step = steady_step(cell.setup, cell.times);
    predicted.step_ms.median = step.ms;
    predicted.exposed_comm_ms = step.exposed_ms;
    return std::pair(prediction_interval(cell, predicted), step);
  };
  const auto [sure, step] = with(1);
  EXPECT_EQ(sure.step_ms->low, sure.step_ms->high);
  EXPECT_EQ(sure.step_ms->low, step.ms);
  EXPECT_EQ(sure.exposed_ms->low, sure.exposed_ms->high);
  const auto [slower, same] = with(1.5);
  EXPECT_NEAR(slower.step_ms->low, 1.5 * step.ms, 1e-2 * step.ms);
  EXPECT_NEAR(slower.step_ms->high, 1.5 * step.ms, 1e-2 * step.ms);
  // Beyond the rows errors count double.
  const auto [beyond, same_again] = with(1.5, 4);
  EXPECT_NEAR(beyond.step_ms->high, 1.5 * 1.5 * step.ms, 1e-2 * step.ms);
}

/// Many messages of a step scatter as they did in the site's trainings. A message larger than all that were measured
/// has the doubt of a single one, doubled. Small messages within a node add no doubt.
TEST(PredictionInterval, OfASiteIsThatOfItsTrainings) {
  const auto width = [](const char* cluster, int ranks, int batch) {
    const Cell cell = simulated({fmt::format("simulate.cluster={}", cluster), "emulate.link_gb_per_s=none",
                                 "fsdp.param_dtype=bf16", "model.preset=llama2-7b", "train.seq_len=4096",
                                 "fsdp.preset=nanotron", "simulate.framework=nanotron", "simulate.efficiency=nanotron",
                                 "mesh.tensor=16", "mesh.sequence_parallel=true", fmt::format("mesh.ranks={}", ranks),
                                 fmt::format("train.batch_per_rank={}", batch)});
    const Trial trial = trial_of(cell);
    const clock::Bounds& bounds = *trial.sureness->step_ms;
    return std::pair(bounds.low / trial.metrics->step_ms.median, bounds.high / trial.metrics->step_ms.median);
  };
  const auto [low, high] = width("aws-p5:hopper-prod", 64, 4);
  EXPECT_GT(low, 0.75);
  EXPECT_LT(high, 1.5);
  EXPECT_GT(width("aws-p5:hopper-prod", 64, 16).second, 1.5 * high) << "messages of 512 MiB";
  EXPECT_GT(width("aws-p5:hopper-prod", 512, 4).second, 2 * high) << "half of the trainings on 64 nodes were slow";
}

TEST(PredictionInterval, ReachesNoFurtherThanTheRows) {
  const auto reach = [](const Cell& cell) { return clock::least_sure(cell.basis.uncertainty->reach); };
  const std::vector<std::string> large{"model.preset=llama3-8b", "train.seq_len=4096", "mesh.ranks=64"};
  EXPECT_EQ(reach(on_cluster(large)), Reach::interpolated);
  EXPECT_EQ(reach(on_cluster({"model.preset=llama3-8b", "train.seq_len=4096", "mesh.ranks=4096"})),
            Reach::extrapolated);                       // more ranks than in any row
  EXPECT_EQ(reach(on_cluster()), Reach::extrapolated);  // smaller messages than in any row
  EXPECT_EQ(reach(on_cluster(
                {"model.preset=llama3-8b", "train.seq_len=4096", "mesh.ranks=64", "simulate.cluster=ethernet-h100"})),
            Reach::extrapolated);  // no collective of it was published
}

/// Who does not know the efficiency of a training is less sure than who does; any number is not knowing it.
TEST(PredictionInterval, OfTheTypicalEfficiencyIsWider) {
  const auto width = [](const char* efficiency) {
    const Cell cell = on_cluster({"model.preset=llama3-8b", "train.seq_len=4096", "mesh.ranks=8", efficiency});
    const Trial trial = trial_of(cell);
    return trial.sureness->step_ms->width() / trial.metrics->step_ms.median;
  };
  const double typical = width("simulate.efficiency=0.8"), gpu = width("simulate.efficiency=auto"),
               framework = width("simulate.efficiency=llm-foundry");
  EXPECT_GT(typical, 1.2 * gpu);
  EXPECT_GT(gpu, 1.2 * framework);
  EXPECT_NEAR(width("simulate.efficiency=0.79"), typical, 0.01 * typical);
  EXPECT_NEAR(width("simulate.efficiency=0.774"), framework, 0.01 * framework) << "as its rows say";
}

/// A large gain is as doubtful as published pairs of trainings are off; a small one by a part of it.
TEST(PredictionInterval, OfAGainIsAsWideAsPairsAreOff) {
  const Cell cell = on_cluster();
  const SimulatedMachine machine(cell.setup.config);
  EXPECT_DOUBLE_EQ(*machine.doubt(cell.setup, 0.01), 0.006);
  EXPECT_DOUBLE_EQ(*machine.doubt(cell.setup, 0.5), 0.13);
  EXPECT_EQ(machine.doubt(cell.setup, 0.5), machine.doubt(cell.setup, -0.5));
  EXPECT_EQ(
      *SimulatedMachine(simulated({"mesh.ranks=4", "emulate.compute_tflops=0.01"}).setup.config).doubt(cell.setup, 0.5),
      0);
}

/// With the network's rate measured there, a step that waits for it is less in doubt.
TEST(PredictionInterval, OfAMeasuredNetworkIsNarrower) {
  const auto width = [](const char* cluster) {
    const Cell cell = on_cluster({"model.preset=llama3-8b", "train.seq_len=512", "mesh.ranks=16", cluster});
    const Trial trial = trial_of(cell);
    return trial.sureness->step_ms->width() / trial.metrics->step_ms.median;
  };
  EXPECT_LT(width("simulate.cluster=ethernet-h100:10GB/s"), 0.8 * width("simulate.cluster=ethernet-h100"));
}

TEST(PredictionInterval, SaysWhoseEfficiencyItRestsOn) {
  const Cell cell = on_cluster({"mesh.ranks=8", "simulate.efficiency=fms-fsdp"});
  EXPECT_THAT(trial_of(cell).sureness->from,
              ::testing::HasSubstr("published rates, efficiency 0.734: fms-fsdp with bf16 on H100 SXM 80 GB (T057"));
}

}  // namespace
}  // namespace fsdpbench::app
