// A calibration of a run on the computed clock must give that run back, and say how far it reaches beyond it.
#include "replay/calibration.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "replay/emulated_times.h"
#include "replay/replay.h"
#include "support/schedule_cases.h"

namespace fsdpbench::replay {
namespace {

/// A decoder whose modules compute, on a link of a byte a nanosecond and 3 us a hop.
struct Measured {
  explicit Measured(const config::RunConfig& config) : made(testing::make_case(config)) {
    for (std::size_t m = 1; m < made.sizes.size(); ++m) {
      made.sizes[m].forward_flops = 2e6 + 1e5 * static_cast<double>(m);
      made.sizes[m].recompute_flops = 1.5e6;
      made.sizes[m].backward_flops = 4e6;
    }
    times = emulated_times(made.schedules, made.sizes, made.plan.groups, {1e9, {1e9, 3e-6}});
    times.host.issue_ns = 200;
  }
  Training training() const { return {made.schedules, made.plan.groups, made.sizes}; }
  double step_ns(const OpTimes& with) const {
    const auto replay = make_replay(made.schedules, made.plan.groups, with);
    for (int step = 0; step < 3; ++step) replay->step({});
    return replay->last_step().end_ns.front() - replay->last_step().begin_ns.front();
  }
  void add_to(Calibrator& calibrator) const {
    std::vector<trace::RankTrace> traces(static_cast<std::size_t>(made.plan.groups.ranks()));
    for (std::size_t rank = 0; rank < traces.size(); ++rank) traces[rank].rank = static_cast<int>(rank);
    OpTimes later = times;
    later.host.start_ns = 1e6;  // a record at 0 is of an op that did not run
    const auto replay = make_replay(made.schedules, made.plan.groups, later);
    for (int step = 0; step < 4; ++step) replay->step(traces);
    calibrator.add(MeasuredTimes(training(), traces, std::nullopt, true), HostCosts{200, 0, 0, 0, 0, 0});
  }

  testing::ScheduleCase made;
  OpTimes times;
};

TEST(Calibration, GivesTheRunBack) {
  const Measured run(testing::decoder_config(4, 4));
  Calibrator calibrator;
  run.add_to(calibrator);
  const CalibratedTimes again = calibrated_times(calibrator.result(), run.training());
  EXPECT_NEAR(run.step_ns(again.times), run.step_ns(run.times), 1e-4 * run.step_ns(run.times));
  EXPECT_EQ(again.reach[static_cast<std::size_t>(Reach::extrapolated)], 0);
  EXPECT_LT(again.spread_pct, 0.1);
}

TEST(Calibration, PredictsAnotherPolicyAndSaysWhereItReachesBeyond) {
  const Measured run(testing::decoder_config(4, 4));
  Calibrator calibrator;
  run.add_to(calibrator);
  config::RunConfig other = testing::decoder_config(4, 4);
  other.fsdp.backward_prefetch.mode = config::Prefetch::Mode::none;
  other.fsdp.wrap = {config::Wrap::Mode::blocks, 2, 0};  // messages of sizes that were not measured
  const Measured truth(other);
  const CalibratedTimes predicted = calibrated_times(calibrator.result(), truth.training());
  EXPECT_NEAR(truth.step_ns(predicted.times), truth.step_ns(truth.times), 1e-3 * truth.step_ns(truth.times));
  EXPECT_GT(predicted.reach[static_cast<std::size_t>(Reach::extrapolated)], 0);
}

TEST(Calibration, TakesTheNearestGroupAndRefusesKindsItDoesNotKnow) {
  const Measured two(testing::decoder_config(4, 2)), eight(testing::decoder_config(4, 8)),
      six(testing::decoder_config(4, 6));
  Calibrator calibrator;
  two.add_to(calibrator);
  eight.add_to(calibrator);
  const config::Calibration both = calibrator.result();
  EXPECT_GT(calibrated_times(both, six.training()).reach[static_cast<std::size_t>(Reach::extrapolated)], 0);
  config::RunConfig hybrid = testing::decoder_config(4, 2, 2);
  hybrid.fsdp.strategy = config::Strategy::hybrid_shard;
  EXPECT_THROW(calibrated_times(both, Measured(hybrid).training()), ConfigError);  // no all-reduce was measured
}

}  // namespace
}  // namespace fsdpbench::replay
