#include "schedule/step_builder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/schedule_cases.h"

namespace fsdpbench::schedule {
namespace {

TEST(StepPart, PartsHaveEachOpsWorkOnceAndKeepItsPlace) {
  const testing::ScheduleCase c = testing::make_case(testing::decoder_config(3, 2, 2));
  const Schedule& whole = c.schedules.steady();
  EXPECT_EQ(only(whole, StepPart::whole), whole);
  const Schedule computation = only(whole, StepPart::computation);
  const Schedule communication = only(whole, StepPart::communication);
  EXPECT_EQ(computation.buffers, whole.buffers);
  ASSERT_EQ(computation.ops.size(), whole.ops.size());
  ASSERT_EQ(communication.ops.size(), whole.ops.size());
  int collectives = 0;
  for (std::size_t i = 0; i < whole.ops.size(); ++i) {
    const Op& op = whole.ops[i];
    collectives += op.is_collective() ? 1 : 0;
    EXPECT_EQ(computation.ops[i].has_work(), op.has_work() && !op.is_collective()) << i;
    EXPECT_EQ(communication.ops[i].has_work(), op.is_collective()) << i;
    for (const Op* part : {&computation.ops[i], &communication.ops[i]}) {
      Op restored = *part;
      restored.kind = op.kind;
      restored.work = op.work;
      EXPECT_EQ(restored, op) << "lane, waits, event and memory of op " << i;
    }
  }
  EXPECT_GT(collectives, 8);
}

}  // namespace
}  // namespace fsdpbench::schedule
