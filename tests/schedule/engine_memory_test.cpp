// How much of the model is gathered at a time under the engines' presets, from the walk of their schedules' memory, and
// what each word that bounds memory or the host does.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/bytes.h"
#include "schedule/memory_walk.h"
#include "schedule/print_schedule.h"
#include "support/presets.h"
#include "support/schedule_cases.h"

namespace fsdpbench::schedule {
namespace {

using config::AllGatherLimit;
using config::Prefetch;

constexpr int kBlocks = 8;

/// Eight equal units and a root; thresholds in elements are given as units of the model.
struct Engine {
  config::RunConfig config;
  std::int64_t unit = 0;  // elements
  std::int64_t root = 0;

  explicit Engine(const std::string& preset) : config(testing::decoder_config(kBlocks, 4)) {
    const plan::Plan plan = plan::make_plan(config);
    unit = plan.units[1].layout.parameter_numel();
    root = plan.units[0].layout.parameter_numel();
    config = testing::with_preset(config, preset);
    config.fsdp.persistence_threshold = std::min<std::int64_t>(config.fsdp.persistence_threshold, 0);
  }
  testing::ScheduleCase made() const { return testing::make_case(config); }
  std::int64_t peak(MemoryCategory category) const {
    return memory_walk(made().schedules, 4).peak_occupied[index_of(category)];
  }
  /// Most units gathered at a time in the pool's order, the root left out, in halves.
  double units_occupied() const {
    const testing::ScheduleCase c = made();
    const auto bytes = static_cast<double>(c.plan.units[1].layout.gathered_numel() * 4);
    const auto whole = static_cast<double>(c.plan.units[0].layout.gathered_numel() * 4);
    return std::round(2 * (static_cast<double>(peak(MemoryCategory::unsharded_parameters)) - whole) / bytes) / 2;
  }
};

/// Most units gathered at a time in the order of issue, the root left out.
std::size_t units_live(const testing::ScheduleCase& c) {
  std::set<int> live;
  std::size_t most = 0;
  for (const Op& op : c.schedules.steady().ops) {
    if (op.kind == OpKind::all_gather) {
      live.insert(op.unit);
      live.insert(op.others.begin(), op.others.end());
      live.erase(plan::Plan::kRoot);
      most = std::max(most, live.size());
    }
    if (op.kind == OpKind::reshard) live.erase(op.unit);
  }
  return most;
}

/// DeepSpeed's rule of thumb in the engine's own numbers, 218 M elements a unit.
Engine z3_engine(double prefetch, double live, double reuse, double bucket) {
  Engine e("deepspeed-z3");
  const auto elements = [&](double units) { return std::llround(units * static_cast<double>(e.unit)); };
  config::Fsdp& f = e.config.fsdp;
  f.forward_prefetch.elements = f.backward_prefetch.elements = elements(prefetch);
  f.max_live_parameters = elements(live) + e.root;
  f.max_reuse_distance = elements(reuse);
  f.reduce_bucket = elements(bucket);
  e.config.model.layers = 4;
  return e;
}

TEST(EngineMemory, DeepSpeedsLiveParametersAreAsTheKnobsSay) {
  const auto live = [](double prefetch, double limit, double reuse, double bucket) {
    return units_live(z3_engine(prefetch, limit, reuse, bucket).made());
  };
  EXPECT_EQ(live(0.5, 10, 10, 5), 4U);          // U = 100 M
  EXPECT_EQ(live(0.23, 4.59, 4.59, 2.29), 4U);  // U = 218 M
  EXPECT_EQ(live(0.125, 2.5, 2.5, 1.25), 3U);   // U = 400 M
  EXPECT_EQ(live(0.23, 4.59, 0, 1), 4U);        // nothing is kept for reuse
  EXPECT_EQ(live(2, 2, 0, 1), 2U);              // two units may live
  EXPECT_EQ(live(0, 4.59, 0, 1), 1U);           // on demand
}

TEST(EngineMemory, DeepSpeedsBoundHoldsForAnyKnobs) {
  // Live <= the limit + the largest unit + one demand fetch; prefetches overshoot by one.
  for (double prefetch : {0.1, 1.0, 3.0}) {
    for (double limit : {1.0, 2.0, 4.0}) {
      Engine e = z3_engine(prefetch, limit, 0, 1);
      e.config.model.layers = 12;
      EXPECT_LE(static_cast<double>(units_live(e.made())), limit + 2) << prefetch << ' ' << limit;
    }
  }
}

TEST(EngineMemory, AWindowIsOneUnitMore) {
  Engine e("megatron-v1");
  for (int window : {1, 2, 3}) {
    e.config.fsdp.forward_prefetch.elements = e.config.fsdp.backward_prefetch.elements = window * e.unit;
    EXPECT_EQ(units_live(e.made()), static_cast<std::size_t>(window) + 1);
    EXPECT_EQ(e.units_occupied(), window + 1);
  }
}

TEST(EngineMemory, ADoubleBufferHoldsTwoUnitsAndTheHostNeverWaits) {
  Engine e("megatron-v1");
  e.config.fsdp.forward_prefetch.elements = e.config.fsdp.backward_prefetch.elements = 3 * e.unit;
  for (int buffers : {2, 3}) {
    e.config.fsdp.all_gather_limit = {AllGatherLimit::Mode::buffers, buffers, 0};
    EXPECT_EQ(e.units_occupied(), buffers);
    const testing::ScheduleCase c = e.made();
    EXPECT_TRUE(std::ranges::none_of(c.schedules.steady().ops, [](const Op& op) { return op.is_host(); }));
  }
}

TEST(EngineMemory, ReduceScatterElementsAreAFloorOfTwoMeanUnits) {
  Engine e("megatron-v1");
  const auto inputs = [&](double units) {
    e.config.fsdp.reduce_scatter_elements = std::llround(units * static_cast<double>(e.unit));
    return e.peak(MemoryCategory::gradients);
  };
  EXPECT_EQ(inputs(0.1), inputs(2));
  EXPECT_LT(inputs(2), inputs(4));
  EXPECT_LT(inputs(4), inputs(100));
}

TEST(EngineMemory, FreesOnTheGathersLaneMakeTwoBuffersOutOfEvents) {
  Engine e("megatron-v2");
  EXPECT_EQ(e.units_occupied(), 2);
  e.config.fsdp.forward_prefetch = e.config.fsdp.backward_prefetch = {Prefetch::Mode::window, 1, 2 * e.unit};
  EXPECT_EQ(e.units_occupied(), 3);
  e.config.fsdp.forward_prefetch = e.config.fsdp.backward_prefetch = {Prefetch::Mode::window, 1, 0};
  EXPECT_EQ(e.units_occupied(), 1);
  e.config.fsdp.free_lane = config::FreeLane::compute;
  EXPECT_GT(e.units_occupied(), 2);  // nothing tells a gather's lane that computation is over
}

TEST(EngineMemory, CopiedGradientsAreTheReductionsInput) {
  // Two gathered units, a gradient and the input of the reduction before: four. Reduced where they lie, gradients are
  // inputs, and the next backward waits for the reduction before last.
  Engine e("megatron-v2");
  for (const bool copied : {true, false}) {
    e.config.fsdp.gradient_copy_in = copied;
    const testing::ScheduleCase c = e.made();
    const Schedule& steady = c.schedules.steady();
    std::int64_t live = 0, most = 0;
    int copies = 0;
    for (const Op& op : steady.ops) {
      copies += op.kind == OpKind::reduce_copy_in ? 1 : 0;
      const auto add = [&](BufferId id, int sign) {
        const Buffer& b = steady.buffers[static_cast<std::size_t>(id)];
        const bool counts =
            b.role == BufferRole::gathered || b.role == BufferRole::gradients || b.role == BufferRole::reduce_input;
        if (b.unit > 0 && counts) live += sign * b.bytes;
      };
      for (BufferId id : op.allocates) add(id, 1);
      most = std::max(most, live);
      for (BufferId id : op.frees) add(id, -1);
    }
    EXPECT_EQ(copies, copied ? kBlocks + 1 : 0);
    EXPECT_EQ(most, 4 * c.plan.units[1].layout.gathered_numel() * 4);
  }
}

TEST(EngineMemory, AScanHoldsOneUnitAndAPipelinedOneTwo) {
  EXPECT_EQ(Engine("xla").units_occupied(), 1);
  EXPECT_EQ(Engine("xla-pipelined").units_occupied(), 2);
}

TEST(EngineMemory, Zero1And2KeepTheWholeModel) {
  for (const char* preset : {"deepspeed-z1", "deepspeed-z2"}) {
    Engine e(preset);
    e.config.fsdp.persistence_threshold = std::int64_t{1} << 60;
    std::int64_t model = 0;
    const auto made = e.made();
    for (const Buffer& b : made.schedules.steady().buffers) {
      if (b.role == BufferRole::unsharded && b.persistent) model += b.bytes;
    }
    EXPECT_GE(model, (kBlocks * e.unit + e.root) * 4);
    e.config.fsdp.persistence_threshold = e.unit;  // only the root is smaller
    EXPECT_EQ(e.made().plan.units[1].stays_gathered, false);
    EXPECT_EQ(e.made().plan.units[0].stays_gathered, e.root < e.unit);
  }
}

std::ptrdiff_t host_waits(const config::RunConfig& config) {
  const std::vector<Op> ops = testing::make_case(config).schedules.steady().ops;
  return std::ranges::count(ops, OpKind::host_wait, &Op::kind);
}

TEST(EngineHost, RunsSoManyGathersAndReductionsAhead) {
  Engine e = z3_engine(0, 10, 0, 0.5);  // a gather a unit and pass, a reduction a unit
  config::Fsdp& f = e.config.fsdp;
  f.reductions_in_flight = 0;
  // Five units in forward and five in backward: more than two of ten are eight.
  EXPECT_EQ(host_waits(e.config), 7);
  f.all_gather_limit.count = 3;
  EXPECT_EQ(host_waits(e.config), 6);
  f.all_gather_limit.mode = AllGatherLimit::Mode::unlimited;
  EXPECT_EQ(host_waits(e.config), 0);
  f.reductions_in_flight = 2;
  EXPECT_EQ(host_waits(e.config), 3);  // before the fourth and the fifth, and at the end of backward
  f.reductions_in_flight = 1;
  EXPECT_EQ(host_waits(e.config), 4);
}

TEST(ZeroPp, ThePartsOfAllUnitsStayToTheEndOfTheStep) {
  Engine e("deepspeed-z3-hpz");
  e.config.fsdp.reshard_after_forward.group = 2;
  e.config.fsdp.max_reuse_distance = 0;  // every unit is freed in forward
  e.config.fsdp.forward_prefetch.elements = e.config.fsdp.backward_prefetch.elements = e.unit;
  e.config.train.accumulate = 2;
  const auto parts = [&](const Op& op, const Schedule& step, bool freed) {
    int count = 0;
    for (const BufferId id : freed ? op.frees : op.allocates) {
      count += step.buffers[static_cast<std::size_t>(id)].role == BufferRole::group_shard ? 1 : 0;
    }
    return count;
  };
  for (const bool keep : {true, false}) {
    e.config.fsdp.keep_group_shard = keep;
    const testing::ScheduleCase c = e.made();
    const Schedule& steady = c.schedules.steady();
    int made = 0, live = 0, at_the_end = 0;
    for (const Op& op : steady.ops) {
      made += parts(op, steady, false);
      live += parts(op, steady, false) - parts(op, steady, true);
      if (op.phase == Phase::backward) at_the_end = live;
    }
    const int units = kBlocks;  // the last one stays, since its backward is next: the root is the eighth
    EXPECT_EQ(made, keep ? units : 2 * units);
    EXPECT_EQ(at_the_end, keep ? units : 0);
    EXPECT_EQ(live, 0);
  }
}

}  // namespace
}  // namespace fsdpbench::schedule
