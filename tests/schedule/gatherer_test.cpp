#include "schedule/gatherer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/step_parts.h"

namespace fsdpbench::schedule {
namespace {

using config::AllGatherLimit;
using config::Layout;

constexpr int kUnit = 2;

struct Gathering : testing::StepParts {
  explicit Gathering(const config::RunConfig& config)
      : StepParts(config), limiter(builder), gatherer(builder, limiter) {}
  void use(int unit) {
    gatherer.unshard(unit, false);
    gatherer.wait_for_unshard(unit);
    builder.append(OpKind::forward, {.unit = unit});
  }
  AllGatherLimiter limiter;
  Gatherer gatherer;
};

config::RunConfig config_with(Layout layout, DType dtype = DType::f32, int shard = 4) {
  config::RunConfig c = testing::decoder_config(4, shard);
  c.fsdp.layout = layout;
  c.fsdp.param_dtype = dtype;
  return c;
}

TEST(Gatherer, FlatGathersTheMasterIntoTheParametersThemselves) {
  Gathering g(config_with(Layout::flat));
  g.use(kUnit);
  EXPECT_EQ(g.ops(), "all_gather forward");
  const auto gather = g.work<Collective>(0);
  EXPECT_EQ(gather.group, Group::shard);
  EXPECT_EQ(gather.count, g.plan.units[kUnit].layout.shard_numel);
  EXPECT_EQ(g.role(gather.input), BufferRole::master_shard);
  EXPECT_EQ(g.op(0).allocates, std::vector<BufferId>{gather.output});
  EXPECT_TRUE(g.op(0).frees.empty());
  EXPECT_EQ(g.gatherer.parameters(kUnit).sharded, gather.output);
  EXPECT_EQ(g.op(1).waits, (std::vector<Wait>{{g.op(0).record, WaitReason::data}}));
}

TEST(Gatherer, FlatCastsALowerDtypeBeforeAndFreesTheCastAfterTheGather) {
  Gathering g(config_with(Layout::flat, DType::bf16));
  g.use(kUnit);
  EXPECT_EQ(g.ops(), "cast_shard all_gather forward");
  const auto cast = g.work<Cast>(0);
  const auto gather = g.work<Collective>(1);
  EXPECT_EQ(cast.count, gather.count);
  EXPECT_EQ(cast.to, gather.input);
  EXPECT_EQ(gather.dtype, DType::bf16);
  EXPECT_EQ(g.op(1).frees, std::vector<BufferId>{cast.to});
  EXPECT_EQ(g.op(1).waits, (std::vector<Wait>{{g.op(0).record, WaitReason::data}}));
}

config::RunConfig no_shard(DType dtype) {
  config::RunConfig c = config_with(Layout::per_param, dtype, 1);
  c.fsdp.strategy = config::Strategy::no_shard;
  return c;
}

TEST(Gatherer, NoShardIsCastButNotGathered) {
  Gathering g(no_shard(DType::bf16));
  g.use(kUnit);
  EXPECT_EQ(g.ops(), "cast_shard forward");
  EXPECT_EQ(g.gatherer.parameters(kUnit).sharded, g.work<Cast>(0).to);
}

TEST(Gatherer, NoShardInFp32IsUsedWhereItLies) {
  Gathering g(no_shard(DType::f32));
  g.use(kUnit);
  EXPECT_EQ(g.ops(), "forward");
  EXPECT_EQ(g.role(g.gatherer.parameters(kUnit).sharded), BufferRole::master_shard);
}

TEST(Gatherer, OneShardOfPerParamIsCopiedOutAndFreedButNotGathered) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    Gathering g(config_with(Layout::per_param, dtype, 1));
    g.use(kUnit);
    g.gatherer.reshard(kUnit, true);
    EXPECT_EQ(g.ops(), "unshard copy_out forward reshard");
    const auto copy = g.work<LayoutCopy>(1);
    EXPECT_EQ(g.role(copy.from), BufferRole::master_shard);
    EXPECT_EQ(g.builder.dtype_of(copy.to), dtype);
    EXPECT_EQ(g.op(1).lane, Lane::compute);
    EXPECT_EQ(g.op(1).allocates, std::vector<BufferId>{copy.to});
    EXPECT_TRUE(g.op(1).frees.empty());  // the shard stays
    EXPECT_EQ(g.op(3).frees, std::vector<BufferId>{copy.to});
  }
}

TEST(Gatherer, PerParamCopiesInGathersInPlaceAndCopiesOut) {
  Gathering g(config_with(Layout::per_param));
  g.use(kUnit);
  EXPECT_EQ(g.ops(), "copy_in all_gather copy_out forward");
  const auto in = g.work<LayoutCopy>(0), out = g.work<LayoutCopy>(2);
  const auto gather = g.work<Collective>(1);
  EXPECT_EQ(in.to, gather.input);
  EXPECT_EQ(gather.input, gather.output);
  EXPECT_EQ(out.from, gather.output);
  EXPECT_EQ(g.gatherer.parameters(kUnit).sharded, out.to);
  EXPECT_EQ(g.op(0).lane, Lane::copy);
  EXPECT_EQ(g.op(2).lane, Lane::compute);
  EXPECT_TRUE(g.op(2).frees.empty());  // held until the next unit has issued its gather
}

TEST(Gatherer, APrefetchedUnitIsGatheredOnce) {
  Gathering g(config_with(Layout::flat));
  g.gatherer.unshard(kUnit, true);
  EXPECT_TRUE(g.gatherer.gathered(kUnit));
  g.use(kUnit);
  EXPECT_EQ(g.ops(), "all_gather* forward");
}

TEST(Gatherer, ARefusedPrefetchIsGatheredWhenItIsNeeded) {
  config::RunConfig c = config_with(Layout::flat);
  c.fsdp.all_gather_limit = {AllGatherLimit::Mode::strict, 1, 0};
  Gathering g(c);
  g.use(1);
  g.gatherer.unshard(kUnit, true);
  EXPECT_FALSE(g.gatherer.gathered(kUnit));
  g.gatherer.reshard(1, false);
  g.use(kUnit);
  EXPECT_EQ(g.ops(), "all_gather forward reshard host_wait all_gather forward");
}

TEST(Gatherer, ReshardFreesTheParametersAndTheUnitCanBeGatheredAgain) {
  Gathering g(config_with(Layout::flat));
  g.use(kUnit);
  const BufferId parameters = g.gatherer.parameters(kUnit).sharded;
  g.gatherer.reshard(kUnit, true);
  EXPECT_EQ(g.last_op().frees, std::vector<BufferId>{parameters});
  EXPECT_FALSE(g.gatherer.gathered(kUnit));
  g.gatherer.reshard(kUnit, true);  // nothing is left to free
  g.use(kUnit);
  EXPECT_EQ(g.ops(), "all_gather forward reshard all_gather forward");
}

TEST(Gatherer, AReshardToAGroupKeepsALargerShardAndGathersFromIt) {
  for (Layout layout : {Layout::flat, Layout::per_param}) {
    config::RunConfig c = config_with(layout, DType::bf16);
    c.fsdp.reshard_after_forward = {config::ReshardAfterForward::Mode::group, 2};
    Gathering g(c);
    g.use(kUnit);
    g.gatherer.release_held();
    g.gatherer.reshard(kUnit, true);
    const std::vector<Op> before = g.builder.step().ops;
    const Op& keep = before.at(before.size() - 2);
    ASSERT_EQ(keep.kind, OpKind::keep_group_shard);
    const auto kept = std::get<LayoutCopy>(keep.work);
    EXPECT_EQ(kept.over, Group::reshard);

    g.use(kUnit);
    const std::vector<Op> ops = g.builder.step().ops;
    const Op& first = ops.at(before.size());
    const Op& gather = layout == Layout::flat ? first : ops.at(before.size() + 1);
    EXPECT_EQ(first.waits, (std::vector<Wait>{{before.back().record, WaitReason::data}}));
    EXPECT_EQ(gather.group(), Group::reshard);
    EXPECT_EQ(gather.collective()->count, g.plan.units[kUnit].group_layout.front().shard_numel);
    EXPECT_EQ(*first.operands().reads.begin(), kept.to);
    if (layout == Layout::per_param) {
      EXPECT_EQ(std::get<LayoutCopy>(ops.at(before.size() + 2).work).over, Group::reshard);
    }
    const BufferId parameters = g.gatherer.parameters(kUnit).sharded;
    g.gatherer.reshard(kUnit, false);
    EXPECT_EQ(g.last_op().frees, (std::vector<BufferId>{parameters, kept.to}));
  }
}

config::RunConfig in_groups_of_two(bool keep) {
  config::RunConfig c = config_with(Layout::flat);
  c.fsdp.reshard_after_forward = {config::ReshardAfterForward::Mode::group, 2};
  c.fsdp.keep_group_shard = keep;
  return c;
}

/// Two microbatches of one unit, and the end of the step.
void two_microbatches(Gathering& g) {
  for (int micro = 0; micro < 2; ++micro) {
    g.builder.micro = micro;
    for (const Phase phase : {Phase::forward, Phase::backward}) {
      g.builder.phase = phase;
      g.use(kUnit);
      g.gatherer.reshard(kUnit, phase == Phase::forward);
    }
  }
  g.gatherer.release_group_shards();
}

TEST(Gatherer, TheGroupsPartIsKeptOnceAStepOrOnceAMicrobatch) {
  Gathering once(in_groups_of_two(true)), each(in_groups_of_two(false));
  two_microbatches(once);
  two_microbatches(each);
  EXPECT_EQ(once.ops(),
            "all_gather forward keep_group_shard reshard all_gather forward reshard"
            " all_gather forward reshard all_gather forward reshard release");
  EXPECT_EQ(each.ops(),
            "all_gather forward keep_group_shard reshard all_gather forward reshard"
            " all_gather forward keep_group_shard reshard all_gather forward reshard");
  for (const Gathering* g : {&once, &each}) {
    std::string gathers;
    for (const Op& op : g->builder.step().ops) {
      if (op.is_collective()) gathers += op.group() == Group::reshard ? 'n' : 'W';
    }
    EXPECT_EQ(gathers, "WnWn");  // every forward over all ranks, from the optimizer's parameters
  }
  // A kept part is there since the first forward has freed the rest, whatever came later.
  for (const std::size_t gather : {4, 10}) {
    EXPECT_EQ(once.op(gather).group(), Group::reshard);
    const std::vector<Wait> waits = once.op(gather).waits;
    EXPECT_EQ(std::ranges::count(waits, WaitReason::data, &Wait::reason), 1);
    EXPECT_EQ(std::ranges::count(waits, Wait{once.op(3).record, WaitReason::data}), 1);
  }
  EXPECT_EQ(once.last_op().frees, std::vector<BufferId>{once.work<LayoutCopy>(2).to});
}

/// A prefetch below the first unit that trains is not used: what it reads and writes goes once that is over.
TEST(Gatherer, WhatAnUnusedGatherReadsAndWritesGoesOnceItIsOver) {
  for (const Layout layout : {Layout::flat, Layout::per_param}) {
    config::RunConfig c = config_with(layout);
    c.fsdp.reshard_after_forward = {config::ReshardAfterForward::Mode::group, 2};
    Gathering g(c);
    g.use(kUnit);
    g.gatherer.release_held();
    g.gatherer.reshard(kUnit, true);
    g.builder.phase = Phase::backward;
    g.gatherer.unshard(kUnit, true);
    const std::vector<Op> before = g.builder.step().ops;
    const Op& gather = before.back();
    // Where it is copied in, only the copy reads it.
    const Op& reads = layout == Layout::flat ? gather : before.at(before.size() - 2);
    g.gatherer.reshard_group_shard(kUnit);
    EXPECT_EQ(g.last_op().kind, OpKind::reshard);
    EXPECT_EQ(g.last_op().waits, (std::vector<Wait>{{reads.record, WaitReason::reuse}}));
    g.gatherer.discard_unused();
    EXPECT_EQ(g.last_op().kind, OpKind::release);
    EXPECT_EQ(g.last_op().waits, (std::vector<Wait>{{gather.record, WaitReason::reuse}}));
    EXPECT_EQ(g.last_op().frees, std::vector<BufferId>{gather.collective()->output});
    g.gatherer.discard_unused();
    EXPECT_EQ(g.builder.step().ops.size(), before.size() + 2) << "nothing is left";
  }
  Gathering g(in_groups_of_two(true));  // what was kept outlives the gather that nobody used
  g.use(kUnit);
  g.gatherer.reshard(kUnit, true);
  g.gatherer.unshard(kUnit, true);
  g.gatherer.discard_unused();
  g.gatherer.release_group_shards();
  EXPECT_EQ(g.ops(), "all_gather forward keep_group_shard reshard all_gather* release release");
  EXPECT_EQ(g.last_op().frees, std::vector<BufferId>{g.work<LayoutCopy>(2).to});
}

/// A frozen unit's part is gone, and was never gathered from: the next step knows nothing of it.
TEST(Gatherer, EveryStepBeginsWithShards) {
  Gathering g(in_groups_of_two(false));
  g.use(kUnit);
  g.gatherer.reshard(kUnit, true);
  g.gatherer.reshard_group_shard(kUnit);
  g.builder.begin_step();
  g.limiter.begin_step();
  g.gatherer.begin_step();
  g.use(kUnit);
  EXPECT_EQ(g.ops(), "all_gather forward");
  EXPECT_EQ(g.op(0).group(), Group::shard);
  EXPECT_TRUE(g.op(0).waits.empty());
}

/// FSDP1 queues no event where nobody else has a part, though a copy in a lower dtype is freed.
TEST(Gatherer, QueuesTheFreeOfWhatOthersHaveAPartOf) {
  for (const int shards : {1, 4}) {
    config::RunConfig c = config_with(Layout::flat, DType::bf16, shards);
    c.fsdp.all_gather_limit = {AllGatherLimit::Mode::fsdp1_queue, 8, 0};
    Gathering g(c);
    g.use(kUnit);
    g.gatherer.reshard(kUnit, false);
    EXPECT_EQ(g.limiter.queue().size(), shards == 1 ? 0U : 1U);
  }
}

/// In the order of the units, whatever that of their uses is: each rank's part has a quarter of each.
TEST(Gatherer, UnitsOfOneCollectiveLieSideBySide) {
  Gathering g(config_with(Layout::per_param));
  g.gatherer.unshard_together({2, 1, 3}, true);
  g.gatherer.wait_for_unshard(2);
  g.builder.append(OpKind::forward, {.unit = 2});
  EXPECT_EQ(g.ops(), "copy_in* copy_in* copy_in* all_gather* copy_out* copy_out* copy_out* forward");
  for (int u = 1; u <= 3; ++u) {
    const auto in = g.work<LayoutCopy>(static_cast<std::size_t>(u) - 1),
               out = g.work<LayoutCopy>(static_cast<std::size_t>(u) + 3);
    EXPECT_EQ(g.op(static_cast<std::size_t>(u) - 1).unit, u);
    EXPECT_EQ(g.op(static_cast<std::size_t>(u) + 3).unit, u);
    for (const LayoutCopy& copy : {in, out}) {
      EXPECT_EQ(copy.offset, (u - 1) * 2320);
      EXPECT_EQ(copy.stride, 3 * 2320);
    }
  }
  EXPECT_EQ(g.work<Collective>(3).count, 3 * 2320);
  EXPECT_EQ(g.op(3).others, (std::vector{2, 3}));
  EXPECT_EQ(g.op(7).waits, (std::vector<Wait>{{g.op(6).record, WaitReason::data}}));
  g.gatherer.unshard(2, false);  // a prefetch has done all of this
  EXPECT_EQ(g.last_op().kind, OpKind::forward);
}

/// fsdp.gathers_follow_compute orders a bucket, too; a limit in bytes counts each unit of it.
TEST(Gatherer, ABucketIsLimitedAsItsUnitsAre) {
  config::RunConfig c = config_with(Layout::flat);
  c.fsdp.gathers_follow_compute = true;
  c.fsdp.all_gather_limit = {AllGatherLimit::Mode::bytes, 0, 3 * 9280 * 4};
  Gathering g(c);
  EXPECT_EQ(g.gatherer.live_elements(), 0);
  g.use(4);
  EXPECT_EQ(g.gatherer.live_elements(), 9280);
  g.gatherer.unshard_together({1, 2}, true);
  EXPECT_EQ(g.op(2).kind, OpKind::copy_in);
  EXPECT_EQ(g.op(2).waits, (std::vector<Wait>{{g.op(1).record, WaitReason::limit}}));
  EXPECT_EQ(g.gatherer.live_elements(), 3 * 9280);
  EXPECT_FALSE(g.gatherer.allows_prefetch(3, {}));
  g.gatherer.reshard(4, false);
  EXPECT_TRUE(g.gatherer.allows_prefetch(3, {}));
}

/// fsdp.cpu_offload = all with one shard: the copy that came is what is copied out and freed.
TEST(Gatherer, OneOffloadedShardIsCopiedOutOfWhatCame) {
  config::RunConfig c = config_with(Layout::per_param, DType::f32, 1);
  c.fsdp.cpu_offload = config::CpuOffload::all;
  Gathering g(c);
  g.use(kUnit);
  g.gatherer.release_held();
  EXPECT_EQ(g.ops(), "unshard host_to_device copy_out forward release");
  const BufferId came = g.work<Transfer>(1).to;
  EXPECT_EQ(g.work<LayoutCopy>(2).from, came);
  EXPECT_EQ(g.op(2).waits, (std::vector<Wait>{{g.op(1).record, WaitReason::data}}));
  EXPECT_EQ(g.last_op().frees, std::vector<BufferId>{came});
}

TEST(Gatherer, WholeParametersAreReadInTheDtypeOfTheRest) {
  for (const auto& [dtype, role] :
       {std::pair{DType::f32, BufferRole::master_replicated}, {DType::bf16, BufferRole::replicated_parameters}}) {
    config::RunConfig c = config_with(Layout::flat, dtype);
    EXPECT_EQ(Gathering(c).gatherer.parameters(kUnit).replicated, kNoBuffer);
    c.fsdp.shard_threshold = 100;  // the norms
    Gathering g(c);
    EXPECT_EQ(g.role(g.gatherer.parameters(kUnit).replicated), role);
  }
}

/// fsdp.free_lane: the gathers' lane frees what computation is over with.
TEST(Gatherer, FreesWhereItIsAsked) {
  for (const auto& [where, lane] :
       {std::pair{config::FreeLane::compute, Lane::compute}, {config::FreeLane::all_gather, Lane::all_gather}}) {
    config::RunConfig c = config_with(Layout::flat);
    c.fsdp.free_lane = where;
    Gathering g(c);
    g.use(kUnit);
    g.gatherer.reshard(kUnit, false);
    EXPECT_EQ(g.last_op().lane, lane);
    const std::vector<Wait> none, computed{{g.op(1).record, WaitReason::reuse}};
    EXPECT_EQ(g.last_op().waits, lane == Lane::compute ? none : computed);
  }
}

TEST(Gatherer, UnitsOfOneCollectiveAreInFlightEach) {
  config::RunConfig c = config_with(Layout::per_param);
  c.fsdp.all_gather_limit = {AllGatherLimit::Mode::strict, 2, 0};
  Gathering g(c);
  g.gatherer.unshard_together({1, 2}, true);
  EXPECT_FALSE(g.gatherer.allows_prefetch(3, {}));
}

}  // namespace
}  // namespace fsdpbench::schedule
