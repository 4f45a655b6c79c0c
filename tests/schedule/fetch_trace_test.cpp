#include "schedule/prefetcher.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/print_schedule.h"
#include "support/communication_formula.h"
#include "support/presets.h"
#include "support/random_config.h"

namespace fsdpbench::schedule {
namespace {

/// Trace of a model of `blocks` equal units, with thresholds in elements.
struct Traced {
  testing::ScheduleCase made;
  FetchTrace trace;
  std::int64_t unit, root;

  explicit Traced(const config::RunConfig& config)
      : made(testing::make_case(config)),
        trace(made.policy, made.plan),
        unit(made.plan.units[1].layout.parameter_numel()),
        root(made.plan.units[0].layout.parameter_numel()) {}
};

config::RunConfig at_a_rate(int blocks, std::int64_t elements) {
  config::RunConfig c = testing::decoder_config(blocks, 4);
  c.fsdp.forward_prefetch = c.fsdp.backward_prefetch = {config::Prefetch::Mode::rate, 1, elements};
  c.fsdp.reshard_after_forward.mode = config::ReshardAfterForward::Mode::always;
  return c;
}

TEST(FetchTrace, TakesUntilTheMissingOnesHoldTheRate) {
  Traced t(at_a_rate(6, 1));  // one element: one unit, since the sum is looked at before the unit is added
  std::vector<bool> missing(7, true);
  missing[0] = false;
  EXPECT_EQ(t.trace.next(0, missing, 0), (std::vector<int>{1}));
  missing[2] = false;  // it is there, and passed over
  EXPECT_EQ(t.trace.next(1, missing, 0), (std::vector<int>{3}));

  Traced two(at_a_rate(6, t.unit + 1));
  missing.assign(7, true);
  EXPECT_EQ(two.trace.next(0, missing, 0), (std::vector<int>{1, 2}));
}

TEST(FetchTrace, MaxLiveParametersLeavesARestOfTheRate) {
  config::RunConfig c = at_a_rate(6, 1 << 30);
  const std::int64_t unit = Traced(c).unit;
  c.fsdp.max_live_parameters = 3 * unit;
  const std::vector<bool> missing(7, true);
  EXPECT_EQ(Traced(c).trace.next(0, missing, 0).size(), 3U);
  EXPECT_EQ(Traced(c).trace.next(0, missing, unit).size(), 2U);
  EXPECT_EQ(Traced(c).trace.next(0, missing, 3 * unit).size(), 0U);
}

TEST(FetchTrace, AUnitWithJLaterOnesStaysIfItsUseIsWithinTheDistance) {
  constexpr int kBlocks = 6;
  config::RunConfig c = at_a_rate(kBlocks, 0);
  const Traced sizes(c);
  const std::vector<bool> missing(kBlocks + 1, false);
  for (int j = 0; j < kBlocks; ++j) {
    const std::int64_t distance = 2 * j * sizes.unit + sizes.root;
    for (const bool beyond : {false, true}) {
      c.fsdp.max_reuse_distance = distance + (beyond ? 1 : 0);
      Traced t(c);
      for (int u = 0; u <= kBlocks - j; ++u) t.trace.next(u, missing, 0);
      EXPECT_EQ(t.trace.keeps(kBlocks - j), beyond) << j;
    }
  }
}

/// How often the steady step gathers each unit for forward and backward.
std::vector<int> gathers_of(const testing::ScheduleCase& made) {
  std::vector<int> counted(made.plan.units.size(), 0);
  for (const Op& op : made.schedules.steady().ops) {
    if (op.kind != OpKind::all_gather || op.phase == Phase::optimizer) continue;
    ++counted[static_cast<std::size_t>(op.unit)];
    for (int other : op.others) ++counted[static_cast<std::size_t>(other)];
  }
  return counted;
}

// A window takes nothing from the trace; that knows all the same where it stands, and so which unit is used again soon.
TEST(FetchTrace, AWindowKeepsTheLastUnitsWhicheverWayItGathers) {
  for (const bool ascend : {false, true}) {
    config::RunConfig c = at_a_rate(4, 0);
    c.fsdp.max_reuse_distance = Traced(c).root + 1;
    c.fsdp.forward_prefetch = c.fsdp.backward_prefetch = {config::Prefetch::Mode::window, 1, 1};
    c.fsdp.gathers_ascend = ascend;
    EXPECT_EQ(gathers_of(testing::make_case(c)), (std::vector<int>{1, 2, 2, 2, 1})) << ascend;
  }
}

TEST(FetchTrace, CountsTheGathersThatTheScheduleMakes) {
  std::mt19937 random(5);
  int twice = 0, once = 0;
  for (int i = 0; i < 3000; ++i) {
    config::RunConfig c = testing::random_config(random);
    c.train.accumulate = 1;
    // Limits that refuse a prefetch after it was taken change nothing: the unit is fetched on demand.
    const testing::ScheduleCase made = testing::make_case(c);
    if (made.plan.mesh.shard == 1) continue;  // nobody to gather from
    const std::vector<int> expected = gathers_a_microbatch(made.policy, made.plan);
    ASSERT_EQ(gathers_of(made), expected) << "case " << i << ": " << host_order(made.plan, made.schedules.steady());
    twice += static_cast<int>(std::ranges::count(expected, 2));
    once += static_cast<int>(std::ranges::count(expected, 1));
  }
  EXPECT_GT(twice, 500);
  EXPECT_GT(once, 500);
}

}  // namespace
}  // namespace fsdpbench::schedule
