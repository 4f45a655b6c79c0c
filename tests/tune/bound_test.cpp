#include "tune/bound.h"

#include <gtest/gtest.h>

#include <random>

#include "config/find_file.h"
#include "config/load.h"
#include "config/validate.h"
#include "runs/simulated_machine.h"
#include "schedule/memory_walk.h"
#include "support/emulated_machine.h"
#include "tune/space.h"

namespace fsdpbench::tune {
namespace {

using ::fsdpbench::testing::EmulatedMachine;
using ::fsdpbench::testing::tunable_config;
using ::fsdpbench::testing::valid;

Bound bound_of(const Space& space, const clock::Machine& machine, const Point& point) {
  const config::RunConfig config = *space.config_at(point);
  const schedule::Training training = machine.training(config);
  return lower_bound(training, machine.least_times(training).costs);
}

// The bound of a structure is that of all its orders, so it must hold for each, and be the same whichever it is found
// by.
TEST(Bound, NoPolicyTakesLessTimeOrMemory) {
  const EmulatedMachine machine;
  std::mt19937 random(7);
  int checked = 0;
  for (const double link : {0.02, 0.4, 10.0}) {
    config::RunConfig config = tunable_config();
    config.emulate.link_gb_per_s = link;
    config.train.accumulate = 2;
    const Space space(valid(config), {.dtypes = {"bf16"}, .any_engine = true});
    for (int i = 0; i < 400; ++i) {
      Point point = space.origin(), structure = point;
      for (std::size_t a = 0; a < point.size(); ++a) {
        point[a] = static_cast<std::uint8_t>(random() % space.axes()[a].choices.size());
        if (space.axes()[a].name == "fsdp.preset" && random() % 4 != 0) point[a] = 0;
        if (space.axes()[a].part == Part::structure) structure[a] = point[a];
      }
      const auto at = space.config_at(point);
      if (!at || !space.config_at(structure)) continue;
      const schedule::Training training = machine.training(*at);
      const Bound bound = bound_of(space, machine, structure);
      EXPECT_LE(bound.step_ns, machine.forecast(training).slowest_ns()) << i;
      EXPECT_LE(bound.live_bytes, schedule::memory_walk(training.schedules, 3).peak_occupied_total) << i;
      EXPECT_GT(bound.step_ns, 0);
      EXPECT_GT(bound.live_bytes, 0);
      ++checked;
    }
  }
  EXPECT_GT(checked, 300);
}

/// The bound of a step that waits for its host is the host's time: no order of the ops makes a host quicker.
TEST(Bound, IsTheHostsWhereAStepWaitsForIt) {
  config::RunConfig config = config::load_profile(
      config::find_profile("quickstart"),
      {"device.backend=virtual", "simulate.cluster=dgx-h100", "emulate.link_gb_per_s=none", "model.kind=decoder",
       "model.layers=6", "model.width=512", "model.heads=8", "model.ffn_width=2048", "mesh.ranks=8",
       "train.seq_len=256", "fsdp.param_dtype=bf16", "fsdp.preset=fsdp2"});
  config::validate(config);
  const app::SimulatedMachine machine(config);
  const schedule::Training training = machine.training(config);
  const double step_ns = machine.forecast(training).slowest_ns(), issue_ns = machine.least_times(training).issue_ns;
  EXPECT_LE(issue_ns, step_ns);
  EXPECT_GT(issue_ns, 0.9 * step_ns);
  EXPECT_LT(lower_bound(training, machine.least_times(training).costs).step_ns, 0.5 * step_ns);
}

TEST(Bound, IsReachedWhereNothingIsCommunicated) {
  const EmulatedMachine machine;
  config::RunConfig config = tunable_config();
  config.mesh.ranks = 1;
  const Space space(valid(config), {});
  const schedule::Training training = machine.training(space.start());
  EXPECT_DOUBLE_EQ(bound_of(space, machine, space.origin()).step_ns, machine.forecast(training).slowest_ns());
}

}  // namespace
}  // namespace fsdpbench::tune
