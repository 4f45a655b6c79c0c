// The presets of other engines train: the same bits as FSDP2 on any number of ranks, under delays and with freed memory
// full of NaN; and on the computed clock what overlaps is what their own tests count.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "account/run_metrics.h"
#include "account/run_view.h"
#include "account/step_breakdown.h"
#include "config/presets.h"
#include "config/validate.h"
#include "plan/communication.h"
#include "schedule/policy.h"
#include "schedule/prefetcher.h"
#include "support/communication_formula.h"
#include "support/presets.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using config::Prefetch;
using config::RunConfig;

/// The preset as it is, or with its elements scaled down to a model whose units are of some thousands.
RunConfig engine_config(const RunConfig& base, const std::string& name, bool scaled) {
  RunConfig c = scaled ? testing::with_scaled_preset(
                             base, name, set_up(testing::settled(base)).plan.units[1].layout.parameter_numel())
                       : testing::with_preset(base, name);
  if (c.fsdp.reshard_after_forward.mode == config::ReshardAfterForward::Mode::group) {
    c.fsdp.reshard_after_forward.group = c.mesh.ranks % 2 == 0 ? 2 : 1;
  }
  return c;
}

TEST(EnginePreset, TrainsWithOneDigestOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 8}) {
    RunConfig base = testing::tiny_decoder();
    base.mesh.ranks = ranks;
    base.train.steps = 2;
    const std::string expected = testing::run_tiny(base).parameters_digest.value();
    base.inject.poison_freed_memory = true;
    base.inject.jitter_us = 200;
    for (const std::string& name : config::fsdp_preset_names()) {
      for (const bool scaled : {false, true}) {
        if (ranks == 8 && !scaled) continue;  // windows and buckets that hold all of the model
        const RunConfig c = engine_config(base, name, scaled);
        EXPECT_EQ(testing::run_tiny(c).parameters_digest.value(), expected)
            << name << " on " << ranks << " ranks" << (scaled ? ", scaled" : "");
      }
    }
  }
}

TEST(EnginePreset, TrainsInBf16WithAccumulationAndSlowLanes) {
  RunConfig base = testing::tiny_decoder();
  base.fsdp.param_dtype = base.fsdp.reduce_dtype = DType::bf16;
  base.train.accumulate = 2;
  base.train.steps = 2;
  base.inject.poison_freed_memory = true;
  int late = 0;  // another lane in each run
  for (const config::AccumulateMode mode : {config::AccumulateMode::reduce_each, config::AccumulateMode::no_sync}) {
    base.train.accumulate_mode = mode;
    const std::string expected = testing::run_tiny(base).parameters_digest.value();
    for (const std::string& name : config::fsdp_preset_names()) {
      const std::string lane = std::array{"compute", "all_gather", "reduce_scatter"}.at(late++ % 3);
      RunConfig c = engine_config(base, name, true);
      c.train.accumulate_mode = mode;  // one order of reductions
      c.fsdp.gradient_scaling = config::GradientScaling::average;
      c.inject.delay_lane = lane;
      c.inject.delay_us = 300;
      EXPECT_EQ(testing::run_tiny(c).parameters_digest.value(), expected) << name << ", " << lane << " late";
    }
  }
}

TEST(EnginePreset, BytesOnTheWireAreThoseOfTheFormula) {
  RunConfig base = testing::tiny_decoder();
  for (const std::string& name : config::fsdp_preset_names()) {
    for (const bool scaled : {false, true}) {
      const RunConfig c = testing::settled(engine_config(base, name, scaled));
      const engine::Setup setup = set_up(c);
      const plan::CommunicationVolume volume =
          plan::communication_volume(setup.plan, c, schedule::regathers(setup.policy, setup.plan));
      const double steps = static_cast<double>(c.train.steps);
      const backend::WireBytes bytes = testing::run_tiny(c).wire_bytes.front();
      EXPECT_EQ(bytes[0], std::llround(steps * volume.all_gather)) << name << scaled;
      EXPECT_EQ(bytes[1], std::llround(steps * volume.reduce_scatter)) << name << scaled;
      EXPECT_NEAR(static_cast<double>(bytes[2]), steps * volume.all_reduce, 60) << name << scaled;
      EXPECT_EQ(bytes[4], std::llround(steps * volume.all_to_all)) << name << scaled;
    }
  }
}

TEST(EnginePreset, RunsAsSimulatedAndNeverFaster) {
  // How much longer is bench_simulate's question: a busy machine may take any time.
  RunConfig base = testing::tiny_decoder();
  base.train.steps = 2;
  base.emulate.compute_tflops = 1e-4;
  base.emulate.link_gb_per_s = 0.01;
  base.emulate.link_latency_us = 100;
  for (const std::string& name : config::fsdp_preset_names()) {
    for (const bool scaled : {false, true}) {
      SCOPED_TRACE(name + (scaled ? ", scaled" : ""));
      const RunConfig c = testing::settled(engine_config(base, name, scaled));
      const engine::Setup setup = set_up(c);
      const auto shortest_ms = [&](const Measurement& m) {
        return account::run_metrics({setup.schedules, m.traces, m.slowest_ns}, setup.plan.groups, 1).step_ms.min;
      };
      const Measurement simulated = testing::simulate_tiny(c), ran = testing::run_tiny(c);
      EXPECT_GE(shortest_ms(ran), 0.999 * shortest_ms(simulated));
      EXPECT_EQ(ran.wire_bytes, simulated.wire_bytes);
      EXPECT_EQ(ran.memory.front().peak_occupied, simulated.memory.front().peak_occupied);
    }
  }
}

TEST(EnginePreset, IsValidAsItIs) {
  for (const std::string& name : config::fsdp_preset_names()) {
    for (const int ranks : {8, 16, 64}) {
      RunConfig base;
      base.mesh.ranks = ranks;
      RunConfig c = testing::with_preset(base, name);
      EXPECT_NO_THROW(config::validate(c)) << name << " on " << ranks;
    }
  }
}

TEST(EnginePreset, ADivideFactorStandsForTheNumberOfRanks) {
  // SGD: half the factor, half the learning rate. Powers of two, so the same bits.
  RunConfig c = testing::tiny_decoder();
  c.train.optimizer = config::Optimizer::sgd;
  c.train.weight_decay = 0;
  const std::string mean = testing::run_tiny(c).parameters_digest.value();
  c.fsdp.gradient_divide_factor = 4;
  EXPECT_EQ(testing::run_tiny(c).parameters_digest.value(), mean);
  c.fsdp.gradient_divide_factor = 2;
  EXPECT_NE(testing::run_tiny(c).parameters_digest.value(), mean);
  c.train.learning_rate /= 2;
  EXPECT_EQ(testing::run_tiny(c).parameters_digest.value(), mean);
}

// ------------------------------------------------------------------------------------- Megatron-FSDP v2's own counts

constexpr int kUnits = 6;

/// Six equal layers and no root, two microbatches; a gather takes half of a layer's forward.
RunConfig layers_alone() {
  RunConfig c;
  c.model.kind = config::ModelKind::mlp;
  c.model.layers = kUnits;
  c.model.width = c.model.in_features = c.model.out_features = 256;
  c.mesh.ranks = 4;
  c.train.steps = 2;
  c.train.warmup = 1;
  c.train.batch_per_rank = 4;
  c.train.accumulate = 2;
  c = testing::with_preset(c, "megatron-v2");
  const engine::Setup p = set_up(testing::settled(c));
  c.emulate.compute_tflops = p.sizes[1].forward_flops / 2e-3 / 1e12;
  c.emulate.link_gb_per_s = static_cast<double>(p.plan.units[1].layout.gathered_numel()) * 4 * 3 / 4 / 1e-3 / 1e9;
  return c;
}

struct Counts {
  int gathers = 0, gathers_overlapped = 0, reductions = 0, reductions_overlapped = 0;
  bool operator==(const Counts&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Counts& c) {
  return out << c.gathers << " (" << c.gathers_overlapped << ") gathers, " << c.reductions << " ("
             << c.reductions_overlapped << ") reductions";
}

/// Collectives of the steady step, and of those the ones during which rank 0 computes.
Counts counts(const RunConfig& asked) {
  const engine::Setup p = set_up(testing::settled(asked));
  const Measurement m = testing::simulate_tiny(asked);
  const account::RunView run(p.schedules, m.traces, m.slowest_ns);
  const account::StepRecords& step = run.steps().back();
  const auto records = step.of(0);
  const std::vector<schedule::Op>& ops = step.schedule().ops;
  Counts result;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const bool gather = ops[i].kind == schedule::OpKind::all_gather;
    if (!gather && ops[i].kind != schedule::OpKind::reduce_scatter) continue;
    bool overlapped = false;
    for (std::size_t j = 0; j < ops.size(); ++j) {
      const bool computes = ops[j].kind == schedule::OpKind::forward || ops[j].kind == schedule::OpKind::backward;
      overlapped = overlapped || (computes && records[j].begin_ns < records[i].end_ns &&
                                  records[i].begin_ns < records[j].end_ns && records[j].end_ns > records[j].begin_ns);
    }
    ++(gather ? result.gathers : result.reductions);
    if (overlapped) ++(gather ? result.gathers_overlapped : result.reductions_overlapped);
  }
  return result;
}

TEST(MegatronV2, OverlapsAsItsOwnTestsCount) {
  constexpr int n = kUnits;
  RunConfig zero3 = layers_alone();
  EXPECT_EQ(counts(zero3), (Counts{4 * n, 4 * (n - 1), 2 * n, 2 * (n - 1)}));
  RunConfig zero2 = zero3;
  zero2.fsdp.strategy = config::Strategy::shard_grad_op;
  zero2.fsdp.reshard_after_forward = {};
  zero2.fsdp.reshard_after_backward = false;
  EXPECT_EQ(counts(zero2), (Counts{n, n - 1, 2 * n, 2 * (n - 1)}));
  RunConfig zero1 = zero2;
  zero1.train.accumulate_mode = config::AccumulateMode::no_sync;
  EXPECT_EQ(counts(zero1), (Counts{n, n - 1, n, n - 1}));
  RunConfig none = zero3;
  none.fsdp.forward_prefetch = none.fsdp.backward_prefetch = {Prefetch::Mode::window, 1, 0};
  EXPECT_EQ(counts(none), (Counts{4 * n, 0, 2 * n, 0}));
}

}  // namespace
}  // namespace fsdpbench::engine
