#include "tune/bound.h"

#include <gtest/gtest.h>

#include "support/emulated_machine.h"

namespace fsdpbench::tune {
namespace {

using ::fsdpbench::testing::tunable_config;
using ::fsdpbench::testing::valid;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

TEST(MemoryBudget, OfThisProgramsOwnPoolIsExact) {
  const config::RunConfig config = valid(tunable_config());
  const plan::Plan plan = plan::make_plan(config);
  const MemoryNeed need{100, 120};
  const MemoryBudget live = memory_budget(config, 100, MemoryKind::live);
  EXPECT_TRUE(live.fits(need, plan));
  EXPECT_FALSE(memory_budget(config, 99, MemoryKind::live).fits(need, plan));
  EXPECT_FALSE(memory_budget(config, 119, MemoryKind::reserved).fits(need, plan));
  EXPECT_TRUE(memory_budget(config, 120, MemoryKind::reserved).fits(need, plan));
  EXPECT_EQ(live.margin(need, plan), 0);
}

TEST(MemoryBudget, WhatIsPredictedWithinItsErrorDoesNotFit) {
  config::RunConfig config = tunable_config();
  config.simulate.cluster = "dgx-h100";
  config.emulate = {};
  config.device.backend = config::BackendKind::virtual_;
  config = valid(config);
  const plan::Plan plan = plan::make_plan(config);
  MemoryBudget budget = memory_budget(config, 100 * kGiB, MemoryKind::reserved);
  budget.error = 0.05;
  EXPECT_TRUE(budget.fits({0, 95 * kGiB}, plan));
  EXPECT_FALSE(budget.fits({0, 96 * kGiB}, plan));
}

TEST(MemoryBudget, AProcessHasContextAndCommunicators) {
  config::RunConfig config = tunable_config();
  const plan::Plan one = plan::make_plan(valid(config));
  config.fsdp.separate_reduce_scatter_comm = true;
  const plan::Plan two = plan::make_plan(valid(config));
  const MemoryBudget budget{.bytes = 10 * kGiB,
                            .kind = MemoryKind::process,
                            .context_bytes = kGiB,
                            .communicator_bytes = kGiB / 2,
                            .overhead_error = 0.5};
  const MemoryNeed need{0, 4 * kGiB};
  EXPECT_EQ(budget.predicted(need, one), 4 * kGiB + kGiB + kGiB / 2);
  EXPECT_EQ(budget.predicted(need, two), 4 * kGiB + 2 * kGiB);
  EXPECT_EQ(budget.margin(need, two), kGiB);
}

TEST(MemoryBudget, WhatTheAllocatorMayHoldJustFits) {
  const plan::Plan plan = plan::make_plan(valid(tunable_config()));
  const MemoryBudget budget{.bytes = 10 * kGiB,
                            .kind = MemoryKind::process,
                            .context_bytes = kGiB,
                            .communicator_bytes = kGiB / 2,
                            .error = 0.05,
                            .overhead_error = 0.5};
  const std::int64_t most = budget.capacity(plan);
  EXPECT_TRUE(budget.fits({0, most}, plan));
  EXPECT_FALSE(budget.fits({0, most + 4}, plan));
}

TEST(MemoryBudget, OfAJobInTracesIsComparedWithAMadeUpOne) {
  const config::RunConfig config = valid(tunable_config());
  EXPECT_FALSE(memory_budget(config, kGiB, MemoryKind::process).made_up);
  const MemoryBudget host = memory_budget(config, kGiB, MemoryKind::process, false);
  EXPECT_TRUE(host.made_up);
  EXPECT_EQ(host.error, 0);
  const MemoryBudget gpus = memory_budget(config, kGiB, MemoryKind::process, true);
  EXPECT_TRUE(gpus.made_up);
  EXPECT_EQ(gpus.error, 0.03);
  EXPECT_EQ(gpus.context_bytes, 3 * kGiB / 2);
}

TEST(MemoryBudget, NoLimitIsNone) {
  const config::RunConfig config = valid(tunable_config());
  EXPECT_TRUE(memory_budget(config, 0, MemoryKind::live).fits({1 << 30, 1 << 30}, plan::make_plan(config)));
}

}  // namespace
}  // namespace fsdpbench::tune
