// fsdp.cpu_offload changes where state lies and who updates it, never what is computed; and it frees what it says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "account/run_metrics.h"
#include "config/validate.h"
#include "schedule/memory_walk.h"
#include "support/cause_cases.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings

constexpr std::array kOffloads{CpuOffload::optimizer, CpuOffload::all};

struct Setting {
  const char* name;
  std::function<void(RunConfig&)> change;
};

/// Whatever decides how a gradient is reduced, and how a unit is gathered.
const std::vector<Setting> kSettings{
    {"fsdp2", [](RunConfig&) {}},
    {"bf16",
     [](RunConfig& c) {
       c.fsdp.param_dtype = DType::bf16;
       c.fsdp.reduce_dtype = DType::bf16;
     }},
    {"clipping", [](RunConfig& c) { c.train.clip_norm = 0.05; }},
    {"clipping, some replicated",
     [](RunConfig& c) {
       c.train.clip_norm = 0.05;
       c.fsdp.shard_threshold = 600;
     }},
    {"all replicated", [](RunConfig& c) { c.fsdp.shard_threshold = 1 << 30; }},
    {"microbatches", [](RunConfig& c) { c.train.accumulate = 3; }},
    {"microbatches in bf16, divided after",
     [](RunConfig& c) {
       c.train.accumulate = 2;
       c.fsdp.param_dtype = DType::bf16;
       c.fsdp.reduce_dtype = DType::bf16;
       c.fsdp.gradient_scaling = GradientScaling::sum;
     }},
    {"microbatches without sync",
     [](RunConfig& c) {
       c.train.accumulate = 2;
       c.train.accumulate_mode = AccumulateMode::no_sync;
     }},
    {"sgd", [](RunConfig& c) { c.train.optimizer = Optimizer::sgd; }},
    {"buckets",
     [](RunConfig& c) {
       c.fsdp.reduce_bucket = 9000;
       c.train.accumulate = 2;
     }},
    {"all-reduced buckets",
     [](RunConfig& c) {
       c.fsdp.layout = Layout::flat;
       c.fsdp.reduce_bucket = 9000;
       c.fsdp.reduce_by = ReduceBy::all_reduce;
     }},
    {"some stay gathered", [](RunConfig& c) { c.fsdp.persistence_threshold = 4000; }},
    {"resharded to 2",
     [](RunConfig& c) {
       c.fsdp.reshard_after_forward = {ReshardAfterForward::Mode::group, 2};
     }},
};

// Each setting with each layout and each offload, and each layout with each strategy.
TEST(Offload, LeavesEveryBitOfTheParametersAsItIs) {
  constexpr std::array kStrategies{Strategy::no_shard, Strategy::shard_grad_op, Strategy::full_shard,
                                   Strategy::hybrid_shard, Strategy::hybrid_shard_grad_op};
  for (std::size_t s = 0; s < kSettings.size(); ++s) {
    for (Layout layout : {Layout::per_param, Layout::flat}) {
      RunConfig c = testing::tiny_decoder();
      c.train.steps = 2;
      c.fsdp.strategy = kStrategies[(s + (layout == Layout::flat ? 1 : 0)) % kStrategies.size()];
      c.fsdp.layout = layout;
      if (is_hybrid(c.fsdp.strategy)) c.mesh = {4, 2, 2};
      kSettings[s].change(c);
      const Measurement without = testing::run_tiny(c);
      for (CpuOffload offload : kOffloads) {
        c.fsdp.cpu_offload = offload;
        const Measurement with = testing::run_tiny(c);
        EXPECT_EQ(with.parameters_digest.value(), without.parameters_digest.value())
            << kSettings[s].name << ", strategy " << static_cast<int>(c.fsdp.strategy) << ", layout "
            << static_cast<int>(layout) << ", offload " << static_cast<int>(offload);
        EXPECT_EQ(with.losses, without.losses);
      }
    }
  }
}

TEST(Offload, RanksThatSplitLayersHaveTheSameBits) {
  RunConfig c = testing::tiny_decoder();
  c.model.ffn_width = 38;
  c.model.vocab = 54;
  c.mesh.tensor = 2;
  c.train.clip_norm = 0.05;
  const std::string expected = testing::run_tiny(c).parameters_digest.value();
  for (CpuOffload offload : kOffloads) {
    c.fsdp.cpu_offload = offload;
    EXPECT_EQ(testing::run_tiny(c).parameters_digest.value(), expected) << static_cast<int>(offload);
  }
}

TEST(Offload, OneRankHasTheSameBitsToo) {
  for (Layout layout : {Layout::per_param, Layout::flat}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      RunConfig c = testing::tiny_decoder();
      c.mesh.ranks = 1;
      c.fsdp.layout = layout;
      c.fsdp.param_dtype = dtype;
      const std::string expected = testing::run_tiny(c).parameters_digest.value();
      for (CpuOffload offload : kOffloads) {
        c.fsdp.cpu_offload = offload;
        EXPECT_EQ(testing::run_tiny(c).parameters_digest.value(), expected) << static_cast<int>(offload);
      }
    }
  }
}

// Slow lanes, and freed memory full of NaN: a buffer of either memory that is freed one event too early would show.
TEST(Offload, DelayedAndPoisoned) {
  for (Layout layout : {Layout::per_param, Layout::flat}) {
    RunConfig c = testing::tiny_decoder();
    c.train.steps = 2;
    c.train.clip_norm = 0.05;
    c.fsdp.layout = layout;
    c.fsdp.param_dtype = DType::bf16;
    const std::string expected = testing::run_tiny(c).parameters_digest.value();
    c.inject.poison_freed_memory = true;
    c.inject.delay_us = 1500;
    for (CpuOffload offload : kOffloads) {
      for (Lane lane : {Lane::compute, Lane::copy, Lane::host_to_device, Lane::device_to_host, Lane::host_compute}) {
        c.fsdp.cpu_offload = offload;
        c.inject.delay_lane = to_string(lane);
        EXPECT_EQ(testing::run_tiny(c).parameters_digest.value(), expected)
            << static_cast<int>(offload) << ' ' << to_string(lane);
      }
    }
  }
}

// The device's pool shows the bytes that the schedule says it is spared.
TEST(Offload, TheDevicesPeakFallsByThePredictedBytes) {
  for (Layout layout : {Layout::per_param, Layout::flat}) {
    RunConfig c = testing::tiny_decoder();
    c.train.steps = 2;
    c.fsdp.layout = layout;
    const std::int64_t predicted_without = set_up(testing::settled(c)).memory.peak_occupied_total;
    const std::int64_t without = testing::run_tiny(c).memory.front().peak_occupied_total;
    for (CpuOffload offload : kOffloads) {
      c.fsdp.cpu_offload = offload;
      const engine::Setup setup = set_up(testing::settled(c));
      const Measurement run = testing::run_tiny(c);
      EXPECT_GT(predicted_without, setup.memory.peak_occupied_total);
      for (std::size_t rank = 0; rank < run.memory.size(); ++rank) {
        EXPECT_EQ(without - run.memory[rank].peak_occupied_total, predicted_without - setup.memory.peak_occupied_total);
        EXPECT_EQ(run.host_memory[rank].peak_occupied_total, setup.host_memory.peak_occupied_total);
      }
    }
  }
}

/// One sort of block, computation and links that take no time, and a PCIe that takes much.
RunConfig bound_by_pcie() {
  RunConfig c = testing::tiny_decoder();
  c.model.layers = 5;
  c.train.steps = 3;
  c.emulate.compute_tflops = 1e6;
  c.emulate.link_gb_per_s = 1e6;
  c.emulate.pcie_gb_per_s = 0.01;
  c.emulate.pcie_latency_us = 100;
  c.fsdp.cpu_offload = CpuOffload::all;
  return c;
}

double step_ns(const RunConfig& asked) {
  const engine::Setup setup = set_up(testing::settled(asked));
  const Measurement m = testing::simulate_tiny(asked);
  return account::run_metrics({setup.schedules, m.traces, m.slowest_ns}, setup.plan.groups, 1).step_ms.median * 1e6;
}

/// Nanoseconds of one copy of a unit's shard, or of its gradient, by bound_by_pcie()'s PCIe.
double copy_ns(const RunConfig& c, const plan::Unit& unit) {
  const auto bytes = static_cast<double>(unit.layout.shard_numel * 4);
  return std::nearbyint((c.emulate.pcie_latency_us * 1e-6 + bytes / (*c.emulate.pcie_gb_per_s * 1e9)) * 1e9);
}

// Where nothing else takes time all shards come one after another, those of the blocks again for backward. Gradients go
// beside them, the other way, but for the last ones: that of the first block, which is reduced once its shard has come,
// and the root's. Reductions on the communicator of the gathers start after the next gather, which awaits its shard: so
// of the second block, too.
TEST(Offload, AStepBoundByPcieIsTheChainOfItsCopies) {
  for (const bool separate : {false, true}) {
    RunConfig c = bound_by_pcie();
    c.fsdp.separate_reduce_scatter_comm = separate;
    const engine::Setup setup = set_up(testing::settled(c));
    double chain = 0;
    for (const plan::Unit& unit : setup.plan.units) {
      const bool root = &unit == &setup.plan.units.front();
      chain += copy_ns(c, unit) * (root ? 1 : 2);
    }
    for (int last = separate ? 1 : 2; last >= 0; --last) {
      chain += copy_ns(c, setup.plan.units[static_cast<std::size_t>(last)]);
    }
    EXPECT_NEAR(step_ns(c), chain, 0.5) << separate;
  }
}

// Shards are there already; the host updates when the last gradient has come, and sends them back one after another.
TEST(Offload, WithTheOptimizerAloneAllGradientsGoAndThenAllShardsCome) {
  RunConfig c = bound_by_pcie();
  c.fsdp.cpu_offload = CpuOffload::optimizer;
  const engine::Setup setup = set_up(testing::settled(c));
  double chain = 0;
  for (const plan::Unit& unit : setup.plan.units) chain += 2 * copy_ns(c, unit);
  EXPECT_NEAR(step_ns(c), chain, 0.5);
}

TEST(Offload, BandwidthAndLatencyOfPcieDecideTheStep) {
  RunConfig c = bound_by_pcie();
  const double base = step_ns(c);
  c.emulate.pcie_latency_us = 400;
  EXPECT_NEAR(step_ns(c) - base, 14 * 300e3, 0.5) << "six gathers, five again, and three gradients";
  c = bound_by_pcie();
  c.emulate.pcie_gb_per_s = 0.02;
  EXPECT_NEAR(base - step_ns(c), (base - 14 * 100e3) / 2, 14) << "each is rounded to a nanosecond";
  c.fsdp.cpu_offload = CpuOffload::none;
  EXPECT_LT(step_ns(c), 1);
}

account::CauseReport causes_of(const RunConfig& c) { return testing::diagnose(c, testing::simulate_tiny); }

double share_of(const account::CauseReport& report, account::Cause cause) {
  double share = 0;
  for (const account::CauseShare& c : report.causes) share += c.cause == cause ? c.share_pct : 0;
  return share;
}

TEST(Offload, CausesNameThePcieWhereItBinds) {
  for (CpuOffload offload : kOffloads) {
    RunConfig c = bound_by_pcie();
    c.emulate.compute_tflops = 1e-3;
    c.emulate.link_gb_per_s = 0.1;
    c.fsdp.cpu_offload = offload;
    const account::CauseReport report = causes_of(c);
    ASSERT_FALSE(report.causes.empty());
    EXPECT_EQ(report.causes.front().cause, account::Cause::pcie) << static_cast<int>(offload);
  }
  // A fast one costs nothing, and is not blamed.
  RunConfig fast = bound_by_pcie();
  fast.emulate.compute_tflops = 1e-3;
  fast.emulate.link_gb_per_s = 0.1;
  fast.emulate.pcie_gb_per_s = 1e4;
  fast.emulate.pcie_latency_us = 0;
  EXPECT_EQ(share_of(causes_of(fast), account::Cause::pcie), 0);
}

// It waits for one copy a unit in turn, the root's first, which comes last: what held that up is to blame.
TEST(Offload, AHostThatAwaitsGradientsIsNotToBlame) {
  for (CpuOffload offload : kOffloads) {
    RunConfig c = bound_by_pcie();
    c.emulate.compute_tflops = 1e-3;
    c.emulate.link_gb_per_s = 0.01;
    c.emulate.pcie_gb_per_s = 0.1;
    c.emulate.pcie_latency_us = 10;
    c.fsdp.cpu_offload = offload;
    const account::CauseReport report = causes_of(c);
    EXPECT_EQ(share_of(report, account::Cause::host_bound), 0) << static_cast<int>(offload);
    EXPECT_GT(share_of(report, account::Cause::step_boundary) + share_of(report, account::Cause::link_bound), 0);
  }
}

// Without the copies the step would take what it takes without offload, but for the order that they impose.
TEST(Offload, TheGainOfAnInstantPcieIsWhatThePcieCosts) {
  RunConfig c = bound_by_pcie();
  c.emulate.compute_tflops = 1e-3;
  const account::CauseReport report = causes_of(c);
  const auto pcie = std::ranges::find(report.causes, account::Cause::pcie, &account::CauseShare::cause);
  ASSERT_NE(pcie, report.causes.end());
  ASSERT_TRUE(pcie->without.has_value());
  c.emulate.pcie_gb_per_s = 1e6;
  c.emulate.pcie_latency_us = 0;
  EXPECT_NEAR(pcie->without->step_ms, step_ns(c) / 1e6, 1e-3);
}

}  // namespace
}  // namespace fsdpbench::engine
