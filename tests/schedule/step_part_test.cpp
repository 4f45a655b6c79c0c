#include "schedule/step_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "schedule/training.h"
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
      EXPECT_EQ(part->kind == OpKind::left_out, part->work == Work() && op.has_work());
    }
  }
  EXPECT_GT(collectives, 8);
}

/// Two settings with one fingerprint are tried once (tune): whatever a step's time or memory follows from is part of
/// it.
TEST(Fingerprint, ChangesWithAllThatAStepsTimeAndMemoryFollowFrom) {
  const testing::ScheduleCase c = testing::make_case(testing::decoder_config(3, 4));
  const Training training{c.config, c.plan, {}, std::vector<plan::ModuleSizes>(5), {{c.schedules.steady()}, 8}};
  const std::uint64_t before = fingerprint(training);
  EXPECT_EQ(fingerprint(training), before);
  const auto differs = [&](auto change) {
    Training other = training;
    change(other, other.schedules.steps.front());
    return fingerprint(other) != before;
  };
  const std::vector<Op>& ops = training.schedules.steps.front().ops;
  const auto first = [&](auto is) { return static_cast<std::size_t>(std::ranges::find_if(ops, is) - ops.begin()); };
  const std::size_t gather = first([](const Op&op) { return op.is_collective(); }),
                    waits = first([](const Op&op) { return !op.waits.empty(); }),
                    allocates = first([](const Op&op) { return !op.allocates.empty(); }),
                    frees = first([](const Op&op) { return !op.frees.empty(); });
  EXPECT_TRUE(differs([&](Training&, Schedule& s) { s.ops[gather].kind = OpKind::all_reduce; }));
  EXPECT_TRUE(differs([&](Training&, Schedule& s) { s.ops[gather].lane = Lane::reduce_scatter; }));
  EXPECT_TRUE(differs([&](Training&, Schedule& s) { s.ops[gather].module = 77; }));
  EXPECT_TRUE(differs([&](Training&, Schedule& s) { ++std::get<Collective>(s.ops[gather].work).count; }));
  EXPECT_TRUE(
      differs([&](Training&, Schedule& s) { std::get<Collective>(s.ops[gather].work).group = Group::replicate; }));
  EXPECT_TRUE(differs([&](Training&, Schedule& s) {
    std::get<Collective>(s.ops[gather].work).group = Group::shard_separate;
  })) << "another communicator of the same ranks";
  EXPECT_TRUE(differs([&](Training& t, Schedule&) { t.plan.groups = plan::Groups({2, 2}); })) << "fewer ranks";
  EXPECT_TRUE(differs([&](Training& t, Schedule&) { t.plan.groups = plan::Groups({4, 1, 2}); })) << "farther apart";
  EXPECT_TRUE(differs([&](Training&, Schedule& s) { ++s.ops[waits].waits.front().event; }));
  EXPECT_TRUE(differs([&](Training&, Schedule& s) { s.ops[gather].record = 77; }));
  EXPECT_TRUE(differs([&](Training&, Schedule& s) { ++s.ops[allocates].allocates.front(); }));
  EXPECT_TRUE(differs([&](Training&, Schedule& s) { ++s.ops[frees].frees.front(); }));
  EXPECT_TRUE(differs([&](Training&, Schedule& s) {
    s.ops[frees].allocates.push_back(s.ops[frees].frees.front());
    s.ops[frees].frees.erase(s.ops[frees].frees.begin());
  })) << "freed later";
  EXPECT_TRUE(differs([&](Training&, Schedule& s) { ++s.buffers.front().bytes; }));
  EXPECT_TRUE(differs([&](Training&, Schedule& s) { s.ops.pop_back(); }));
  EXPECT_TRUE(differs([&](Training& t, Schedule&) { t.sizes[2].forward_flops = 3; }));
  EXPECT_TRUE(differs([&](Training& t, Schedule&) { t.plan.param_dtype = DType::bf16; }));
  EXPECT_TRUE(differs([&](Training& t, Schedule&) { t.config.fsdp.recompute_share = 0.5; }));
  EXPECT_TRUE(differs([&](Training& t, Schedule&) { t.config.fsdp.fp8_products = true; }));
  EXPECT_TRUE(differs([&](Training& t, Schedule&) { t.config.fsdp.fp8_recipe = config::Fp8Recipe::rowwise; }));
  EXPECT_TRUE(differs([&](Training& t, Schedule&) { t.config.mesh.expert_rows = config::ExpertRows::one_rank; }));
}

}  // namespace
}  // namespace fsdpbench::schedule
