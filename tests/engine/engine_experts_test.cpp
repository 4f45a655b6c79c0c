// Experts split over ranks (mesh.expert) under the presets of other engines: sound schedules with the bytes that were
// said, and a sentence for what no engine does.
#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/validate.h"
#include "engine/setup.h"
#include "engine/simulate.h"
#include "plan/communication.h"
#include "schedule/prefetcher.h"
#include "support/check_schedules.h"
#include "support/communication_formula.h"
#include "support/presets.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using ExpertsChange = std::function<void(RunConfig&)>;

/// Three blocks of six experts on four ranks, of which two split the experts.
RunConfig experts_under(const std::string& preset, const ExpertsChange& change = {}) {
  RunConfig c = testing::tiny_decoder();
  c.model.vocab = 256;
  c.model.experts = 6;
  c.model.active_experts = 2;
  c.mesh.ranks = 4;
  c.mesh.expert = 2;
  c.train.steps = 3;
  c.train.warmup = 1;
  c = testing::with_preset(c, preset);
  if (change) change(c);
  return testing::settled(c);
}

const std::vector<std::pair<std::string, ExpertsChange>>& engines() {
  const ExpertsChange window = [](RunConfig& c) {
    c.fsdp.forward_prefetch.elements = c.fsdp.backward_prefetch.elements = 5000;
    c.fsdp.reduce_scatter_elements = 1;
  };
  const ExpertsChange bucket = [](RunConfig& c) { c.fsdp.expert_unit = ExpertUnit::bucket; };
  static const std::vector<std::pair<std::string, ExpertsChange>> kEngines{
      {"megatron-moe", {}},
      {"megatron-moe", window},
      {"megatron-v1", window},
      {"megatron-v2", {}},
      {"megatron-v2-moe", {}},
      {"megatron-v2-moe", [](RunConfig& c) { c.fsdp.forward_prefetch.depth = c.fsdp.backward_prefetch.depth = 3; }},
      {"megatron-v2-moe", [](RunConfig& c) { c.fsdp.forward_prefetch.mode = Prefetch::Mode::none; }},
      {"deepspeed-moe", {}},
      {"deepspeed-moe", [](RunConfig& c) { c.fsdp.reduce_bucket = 20000; }},
      {"deepspeed-moe", [](RunConfig& c) { c.fsdp.reduce_bucket = 1; }},
      {"deepspeed-moe",
       [](RunConfig& c) { c.fsdp.reduce_by = ReduceBy::reduce_scatter, c.fsdp.reduce_bucket = 20000; }},
      {"deepspeed-moe",
       [](RunConfig& c) { c.fsdp.reduce_lane = ReduceLane::reduce_scatter, c.fsdp.reduce_scatter_buffers = 1; }},
      {"deepspeed-z1", bucket},
  };
  return kEngines;
}

TEST(EngineExperts, ReadNothingBeforeItIsThere) {
  for (const bool recomputes : {false, true}) {
    const ExpertsChange base = [&](RunConfig& c) {
      c.train.accumulate = recomputes ? 2 : 1;
      c.train.accumulate_mode = AccumulateMode::reduce_each;
      c.train.clip_norm = 0.05;
      c.fsdp.activation_checkpointing = recomputes;
    };
    for (std::size_t i = 0; i < engines().size(); ++i) {
      const auto& [preset, change] = engines()[i];
      SCOPED_TRACE(::testing::Message() << preset << ", the " << i << "th, recomputes: " << recomputes);
      const RunConfig c = experts_under(preset, [&](RunConfig& config) {
        base(config);
        if (change) change(config);
      });
      EXPECT_THAT(schedule::check_schedules(set_up(c).schedules), IsEmpty());
    }
  }
}

TEST(EngineExperts, BytesOnTheWireAreThoseOfTheFormula) {
  for (const auto& [preset, change] : engines()) {
    const RunConfig c = experts_under(preset, [&](RunConfig& config) {
      config.emulate = {.link_gb_per_s = 1, .link_latency_us = 0, .compute_tflops = 1};
      if (change) change(config);
    });
    const engine::Setup setup = set_up(c);
    const plan::CommunicationVolume volume =
        plan::communication_volume(setup.plan, c, schedule::regathers(setup.policy, setup.plan));
    const auto steps = static_cast<double>(c.train.steps);
    const backend::WireBytes bytes = simulate(setup, simulated_times(setup, nullptr)).wire_bytes.front();
    EXPECT_EQ(bytes[0], std::llround(steps * volume.all_gather)) << preset;
    EXPECT_EQ(bytes[1], std::llround(steps * volume.reduce_scatter)) << preset;
    EXPECT_NEAR(static_cast<double>(bytes[2]), steps * volume.all_reduce, 60) << preset;
  }
}

TEST(EngineExperts, WhatNoEngineDoesSaysSo) {
  const auto error_of = [](const std::string& preset, const ExpertsChange& change) -> std::string {
    try {
      RunConfig c = experts_under(preset, change);
      validate(c);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_THAT(error_of("megatron-moe", [](RunConfig& c) { c.fsdp.expert_unit = ExpertUnit::ordered_module; }),
              HasSubstr("fsdp.forward_prefetch = \"window:500000000\" does not go with fsdp.expert_unit"));
  EXPECT_THAT(error_of("megatron-v2-moe",
                       [](RunConfig& c) { c.fsdp.recompute_frees = c.fsdp.activation_checkpointing = true; }),
              HasSubstr("fsdp.recompute_frees = true needs fsdp.expert_unit = \"module\""));
  EXPECT_THAT(error_of("megatron-moe", [](RunConfig& c) { c.model.experts = 8, c.mesh.expert = 4; }),
              HasSubstr("mesh.expert = 4 of a shard group of 4 ranks leaves nobody"));
  EXPECT_THAT(error_of("fsdp1", {}), HasSubstr("fsdp.gradients_after_views = true: FSDP1 has no experts"));
  EXPECT_THAT(error_of("deepspeed-z3", {}), HasSubstr("mesh.expert = 2 does not go with fsdp.forward_prefetch"));
}

}  // namespace
}  // namespace fsdpbench::engine
