#include "runs/cell.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/find_file.h"
#include "config/load.h"
#include "runs/trial.h"
#include "runs/world.h"

namespace fsdpbench::app {
namespace {

using ::testing::HasSubstr;

config::RunConfig large() {
  config::RunConfig c;
  c.model.layers = 64;
  c.model.width = c.model.ffn_width = 1 << 14;
  c.train.seq_len = 1 << 14;
  c.emulate = {1.0, 0.0, 1.0};
  return c;
}

std::string refusal_of_cell(const config::RunConfig& config) {
  try {
    open_cell(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Cell, StepsThatNobodyCanWaitForAreRefused) {
  config::RunConfig slow = large();
  slow.emulate.compute_tflops = 1e-6;
  EXPECT_THAT(refusal_of_cell(slow), HasSubstr("emulate.compute_tflops = 1e-06"));
  slow = large();
  slow.emulate.link_gb_per_s = 1e-6;
  EXPECT_THAT(refusal_of_cell(slow), HasSubstr("would take over 104 days"));
  slow = large();
  slow.inject.slow_rank = 1;
  slow.inject.slow_rank_factor = 1e6;
  EXPECT_THAT(refusal_of_cell(slow), HasSubstr("would take over 104 days"));
}

/// Four ranks of which two split the experts.
Cell cell_of_experts(const std::string& imbalance, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"mesh.ranks=4", "mesh.expert=2", "model.experts=4", "model.active_experts=2",
                             "fsdp.layout=per_param", "mesh.expert_imbalance=" + imbalance});
  return open_cell(load_config(config::find_profile("quickstart"), more, nullptr));
}

/// The error of run_trial() for a simulation that `change` alters; "" if there is none.
std::string refusal_of_trial(const std::function<void(engine::Measurement&, const engine::Setup&)>& change) {
  const Cell cell = open_cell(load_config(
      config::find_profile("quickstart"),
      {"device.backend=virtual", "emulate.compute_tflops=0.06", "train.steps=2", "train.warmup=0"}, nullptr));
  try {
    run_trial(cell, {}, current_world(cell.setup.config, nullptr, {}),
              [&](const Cell& c, const engine::RunHooks& hooks) {
                engine::Measurement measured = train_on_threads(c, hooks);
                change(measured, c.setup);
                return measured;
              });
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::check_failed);
    return error.what();
  }
  return "";
}

TEST(Trial, WhatContradictsFormulasIsRefused) {
  EXPECT_EQ(refusal_of_trial([](auto&, const auto&) {}), "");
  for (std::size_t kind = 0; kind < 3; ++kind) {  // gathers, reduce-scatters, all-reduces
    EXPECT_THAT(refusal_of_trial([&](auto& m, const auto&) { m.wire_bytes[1].at(kind) += 1'000; }), HasSubstr("rank 1"))
        << kind;
  }
  EXPECT_THAT(refusal_of_trial(
                  [](auto& m, const auto& s) { m.memory[1].peak_occupied_total = s.memory.peak_occupied_total + 1; }),
              HasSubstr("rank 1: the pool peaked at"));
  EXPECT_THAT(refusal_of_trial([](auto& m, const auto& s) {
                m.host_memory[1].peak_occupied_total = s.host_memory.peak_occupied_total + 1;
              }),
              HasSubstr("rank 1: the pool peaked at"));
  EXPECT_THAT(refusal_of_trial([](auto& m, const auto&) { m.traces[1].records.pop_back(); }),
              HasSubstr("fewer records than its schedule has ops"));
  EXPECT_THAT(refusal_of_trial([](auto& m, const auto&) {
                m.traces[1].records.back().end_ns = m.traces[1].steps.back().end_ns + 1;
              }),
              HasSubstr("must not be used"));
}

/// The partition of the time without computation is checked by run_trial() itself.
TEST(Cell, AnImbalanceOfExpertsIsACauseThatCostsWhatABalancedStepSpares) {
  using account::Cause;
  const std::vector<std::string> simulated{"device.backend=virtual", "emulate.compute_tflops=0.1",
                                           "emulate.link_gb_per_s=0.5", "emulate.link_latency_us=20"};
  const auto trial = [&](const std::string& imbalance) {
    const Cell cell = cell_of_experts(imbalance, simulated);
    return run_trial(cell, {}, current_world(cell.setup.config, nullptr, {}));
  };
  const auto share = [](const Trial& of, Cause cause) {
    const std::vector<account::CauseShare>& all = of.causes->causes;
    const auto found = std::ranges::find(all, cause, &account::CauseShare::cause);
    return found == all.end() ? account::CauseShare() : *found;
  };
  const Trial even = trial("1"), uneven = trial("1.5");
  EXPECT_EQ(share(even, Cause::expert_imbalance).ms, 0);
  const account::CauseShare imbalance = share(uneven, Cause::expert_imbalance);
  EXPECT_GT(imbalance.ms, 0);
  ASSERT_TRUE(imbalance.without);
  EXPECT_NEAR(imbalance.without->step_ms, even.metrics->step_ms.median, 1e-5);
  EXPECT_THAT(imbalance.advice, HasSubstr("a router that spreads rows evenly"));
  EXPECT_NEAR(share(uneven, Cause::expert_exchange).ms, share(even, Cause::expert_exchange).ms,
              0.05 * share(even, Cause::expert_exchange).ms);
}

TEST(Cell, TheMemoryOfAGpuIsThatUnderPyTorchsAllocator) {
  const auto cell = [](const char* memory) {
    return open_cell(
        config::load_profile(config::find_profile("quickstart"),
                             {"device.backend=virtual", "emulate.link_gb_per_s=none", "simulate.cluster=dgx-h100",
                              "model.preset=mpt-30b", "mesh.ranks=8", "fsdp.preset=fsdp1", "fsdp.param_dtype=bf16",
                              "fsdp.activation_checkpointing=true", "train.seq_len=2048", memory}));
  };
  const Cell fits = cell("train.batch_per_rank=3");
  EXPECT_LE(fits.caching_allocator->peak_reserved, fits.gpu->memory_bytes);
  EXPECT_THAT(fits.notes, ::testing::Not(::testing::Contains(HasSubstr("it would not fit"))));
  EXPECT_THAT(cell("train.batch_per_rank=64").notes, ::testing::Contains(HasSubstr("it would not fit: a rank needs ")));
}

/// As T123 of profiles/published, which took a quarter longer than predicted: 77 of 80 GiB are reserved.
TEST(Cell, NearTheMemoryLimitTheStepMayTakeLonger) {
  const auto cell = [](const char* length) {
    return open_cell(config::load_profile(
        config::find_profile("quickstart"),
        {"device.backend=virtual", "emulate.link_gb_per_s=none", "simulate.cluster=dgx-h100", "model.preset=mpt-30b",
         "mesh.ranks=8", "fsdp.preset=fsdp1", "fsdp.param_dtype=bf16", "fsdp.reduce_dtype=bf16",
         "fsdp.activation_checkpointing=true", "train.batch_per_rank=1", "train.accumulate=21", "train.steps=1",
         "train.warmup=0", fmt::format("model.learned_positions={}", length),
         fmt::format("train.seq_len={}", length)}));
  };
  Cell near = cell("8192");
  EXPECT_TRUE(near.near_memory_limit);
  EXPECT_THAT(near.notes, ::testing::Contains(HasSubstr("near the limit PyTorch's allocator frees and retries, which "
                                                        "costs time that is not predicted")));
  const Cell far = cell("1024");
  EXPECT_FALSE(far.near_memory_limit);
  EXPECT_THAT(far.notes, ::testing::Not(::testing::Contains(HasSubstr("near the limit"))));
  account::RunMetrics predicted;
  predicted.step_ms.median = 1000;
  const PredictionInterval wide = prediction_interval(near, predicted);
  near.near_memory_limit = false;
  const PredictionInterval as_ever = prediction_interval(near, predicted);
  EXPECT_NEAR(wide.step_ms->high, 1.25 * as_ever.step_ms->high, 1e-9 * wide.step_ms->high);
  EXPECT_EQ(wide.step_ms->low, as_ever.step_ms->low);
}

/// 2^20 ranks of 16 TiB and more each.
TEST(Cell, TheMemoryOfManyRanksIsNotLessThanThatOfFew) {
  config::RunConfig c = large();
  c.emulate = {};
  c.train.batch_per_rank = 1 << 16;
  c.mesh.ranks = 1 << 20;
  try {
    open_cell(c);
    FAIL() << "it was found to suffice";
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("1048576 ranks need more than 8 EiB of memory"));
  }
}

/// State of some 5 TiB: on GPUs it is nothing of the host's, until it is offloaded.
TEST(Cell, WhatGpusOffloadIsMemoryOfTheHost) {
  config::RunConfig c = large();
  c.emulate = {};
  c.model.ffn_width = 1 << 17;
  c.device.backend = config::BackendKind::cuda;
  EXPECT_NO_THROW(open_cell(c));
  for (const config::CpuOffload offload : {config::CpuOffload::optimizer, config::CpuOffload::all}) {
    c.fsdp.cpu_offload = offload;
    try {
      open_cell(c);
      FAIL() << "it was found to suffice";
    } catch (const ResourceError& error) {
      EXPECT_THAT(error.what(), HasSubstr("4 ranks need "));
    }
  }
}

TEST(Cell, SlowStepsAreNot) { EXPECT_EQ(refusal_of_cell(large()), ""); }

}  // namespace
}  // namespace fsdpbench::app
