#include "schedule/reducer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "support/schedule_cases.h"
#include "support/step_parts.h"

namespace fsdpbench::schedule {
namespace {

using config::AccumulateMode;
using config::GradientScaling;
using config::Layout;

constexpr int kReduced = 2;  // a unit

struct Reduction : testing::StepParts {
  explicit Reduction(const config::RunConfig& config) : StepParts(config), reducer(builder) {
    builder.phase = Phase::backward;
  }
  /// One microbatch's backward and reduction of a unit.
  void reduce(int unit, bool last = true) {
    const Reducer::Gradients gradients = reducer.gradients(unit);
    builder.append(OpKind::backward, {.unit = unit},
                   Backward{.gradients = gradients.sharded, .gradients_replicated = gradients.replicated},
                   {.allocates = {gradients.sharded, gradients.replicated}});
    reducer.reduce(unit, last);
    ++builder.micro;
  }
  Reducer reducer;
};

config::RunConfig reducing(Layout layout, DType reduce_dtype = DType::f32) {
  config::RunConfig c = testing::decoder_config(4, 4);
  c.fsdp.layout = layout;
  c.fsdp.reduce_dtype = reduce_dtype;
  return c;
}

TEST(Reducer, PerParamLaysGradientsOutAndReducesStraightIntoTheShard) {
  Reduction r(reducing(Layout::per_param));
  r.reduce(kReduced);
  EXPECT_EQ(r.ops(), "backward post_backward reduce_copy_in reduce_scatter");
  const auto reduce = r.work<Collective>(3);
  EXPECT_EQ(r.work<LayoutCopy>(2).to, reduce.input);
  EXPECT_EQ(r.op(2).frees, std::vector<BufferId>{r.work<Backward>(0).gradients});
  EXPECT_EQ(r.role(reduce.output), BufferRole::gradient_shard);
  EXPECT_EQ(reduce.group, Group::shard);
  EXPECT_EQ(reduce.count, r.plan.units[kReduced].layout.shard_numel);
  EXPECT_EQ(reduce.scale, 0.25F);
  EXPECT_EQ(r.op(3).waits, (std::vector<Wait>{{r.op(2).record, WaitReason::data}}));
}

TEST(Reducer, FlatReducesTheGradientWhereItLies) {
  Reduction r(reducing(Layout::flat));
  r.reduce(kReduced);
  EXPECT_EQ(r.ops(), "backward post_backward reduce_scatter");
  EXPECT_EQ(r.work<Collective>(2).input, r.work<Backward>(0).gradients);
}

TEST(Reducer, ALowerReduceDtypeIsWidenedAtTheEnd) {
  Reduction r(reducing(Layout::flat, DType::bf16));
  r.reduce(kReduced);
  EXPECT_EQ(r.ops(), "backward post_backward reduce_cast reduce_scatter finish_gradient");
  EXPECT_EQ(r.op(2).lane, Lane::reduce_scatter);
  EXPECT_EQ(r.work<Collective>(3).dtype, DType::bf16);
  EXPECT_EQ(r.role(r.work<Collective>(3).output), BufferRole::reduce_output);
  EXPECT_EQ(r.role(r.work<Accumulate>(4).sum), BufferRole::gradient_shard);
  EXPECT_EQ(r.op(4).frees, std::vector<BufferId>{r.work<Collective>(3).output});
}

TEST(Reducer, FactorsStandWhereTheScalingSays) {
  for (const auto& [scaling, before, collective, after] : {std::tuple{GradientScaling::average, 1.0F, 0.25F, 1.0F},
                                                           {GradientScaling::sum, 1.0F, 1.0F, 0.25F},
                                                           {GradientScaling::pre_post_divide, 0.5F, 1.0F, 0.5F}}) {
    config::RunConfig c = reducing(Layout::flat);
    c.fsdp.gradient_scaling = scaling;
    Reduction r(c);
    r.reduce(kReduced);
    float cast = 1.0F, collectives = 1.0F, finish = 1.0F;
    for (const Op& op : r.builder.step().ops) {
      if (op.kind == OpKind::reduce_cast) cast *= std::get<Cast>(op.work).factor;
      if (op.is_collective()) collectives *= op.collective()->scale;
      if (op.kind == OpKind::finish_gradient) finish *= std::get<Accumulate>(op.work).factor;
    }
    EXPECT_EQ(cast, before);
    EXPECT_EQ(collectives, collective);
    EXPECT_EQ(finish, after);
  }
}

TEST(Reducer, LaterMicrobatchesAreScaledAndAddedWithoutTouchingTheirSource) {
  config::RunConfig c = reducing(Layout::per_param, DType::bf16);
  c.fsdp.gradient_scaling = GradientScaling::sum;
  c.train.accumulate = 2;
  Reduction r(c);
  r.reduce(kReduced, false);
  const Op first = r.last_op();
  r.reduce(kReduced, true);
  const Op second = r.last_op();
  ASSERT_EQ(first.kind, OpKind::finish_gradient);
  ASSERT_EQ(second.kind, OpKind::finish_gradient);
  const auto set = std::get<Accumulate>(first.work), add = std::get<Accumulate>(second.work);
  EXPECT_TRUE(set.overwrite);
  EXPECT_FALSE(add.overwrite);
  EXPECT_EQ(set.factor, 0.25F);
  EXPECT_EQ(add.factor, 0.25F);
  EXPECT_EQ(set.sum, add.sum);
  const Operands operands = second.operands();
  EXPECT_EQ(std::vector<BufferId>(operands.reads.begin(), operands.reads.end()),
            (std::vector<BufferId>{add.from, add.sum}));
  EXPECT_EQ(std::vector<BufferId>(operands.writes.begin(), operands.writes.end()), std::vector<BufferId>{add.sum});
  EXPECT_EQ(first.allocates, std::vector<BufferId>{set.sum});
  EXPECT_TRUE(second.allocates.empty());
}

TEST(Reducer, NoSyncAddsUpUnshardedAndReducesOnce) {
  config::RunConfig c = reducing(Layout::flat);
  c.train.accumulate = 3;
  c.train.accumulate_mode = AccumulateMode::no_sync;
  Reduction fp32(c);
  for (bool last : {false, false, true}) fp32.reduce(kReduced, last);
  // The first gradient is the sum so far.
  EXPECT_EQ(fp32.ops(),
            "backward post_backward backward post_backward accumulate_gradients backward post_backward "
            "accumulate_gradients reduce_scatter");
  EXPECT_EQ(fp32.work<Accumulate>(4).sum, fp32.work<Backward>(0).gradients);
  EXPECT_EQ(fp32.work<Accumulate>(4).factor, 1.0F);
  c.fsdp.param_dtype = DType::bf16;
  Reduction low(c);
  for (bool last : {false, true}) low.reduce(kReduced, last);
  EXPECT_EQ(low.ops(),
            "backward post_backward accumulate_gradients backward post_backward accumulate_gradients reduce_scatter");
  EXPECT_EQ(low.role(low.work<Accumulate>(2).sum), BufferRole::accumulated);
}

TEST(Reducer, HybridReducesAcrossReplicasOnceOrEachTime) {
  config::RunConfig c = testing::decoder_config(4, 2, 2);
  c.fsdp.strategy = config::Strategy::hybrid_shard;
  c.fsdp.layout = Layout::flat;
  c.train.accumulate = 2;
  Reduction each(c);
  for (bool last : {false, true}) each.reduce(kReduced, last);
  EXPECT_EQ(each.ops(),
            "backward post_backward reduce_scatter all_reduce backward post_backward reduce_scatter all_reduce "
            "finish_gradient");
  EXPECT_EQ(each.work<Collective>(3).group, Group::replicate);
  EXPECT_EQ(each.work<Collective>(3).input, each.work<Collective>(3).output);

  c.train.accumulate_mode = AccumulateMode::reduce_scatter_only;
  c.fsdp.reduce_dtype = DType::bf16;
  Reduction once(c);
  for (bool last : {false, true}) once.reduce(kReduced, last);
  EXPECT_EQ(once.ops(),
            "backward post_backward reduce_cast reduce_scatter finish_gradient "
            "backward post_backward reduce_cast reduce_scatter finish_gradient reduce_cast all_reduce finish_gradient");
  EXPECT_EQ(once.role(once.work<Accumulate>(4).sum), BufferRole::partial_shard);
  EXPECT_EQ(once.op(10).lane, Lane::all_reduce) << "where it is reduced next";
}

TEST(Reducer, OneShardIsOnlyReducedAcrossReplicas) {
  config::RunConfig c = testing::decoder_config(4, 1, 4);
  c.fsdp.strategy = config::Strategy::no_shard;
  Reduction r(c);
  r.reduce(kReduced);
  EXPECT_EQ(r.ops(), "backward post_backward all_reduce");
}

TEST(Reducer, OneShardOfPerParamIsCopiedAsIfThereWereOthers) {
  config::RunConfig c = testing::decoder_config(4, 1, 4);
  c.fsdp.strategy = config::Strategy::hybrid_shard;
  Reduction r(c);
  r.reduce(kReduced);
  EXPECT_EQ(r.ops(), "backward post_backward reduce_copy_in reduce_cast all_reduce");
  EXPECT_EQ(r.op(3).lane, Lane::reduce_scatter);
  EXPECT_EQ(r.work<Cast>(3).from, r.work<LayoutCopy>(2).to);
  EXPECT_EQ(r.work<Cast>(3).to, r.work<Collective>(4).input);
  EXPECT_EQ(r.op(4).waits, (std::vector<Wait>{{r.op(3).record, WaitReason::data}}));
  r.reduce(1);  // the one buffer
  EXPECT_EQ(r.op(7).kind, OpKind::release);
  EXPECT_EQ(r.op(7).frees, std::vector<BufferId>{r.work<Cast>(3).from});
}

/// Nobody to reduce with, and an optimizer that reads bf16: nothing is cast, copied or summed.
TEST(Reducer, OneRanksGradientIsUpdatedFromAsBackwardWroteIt) {
  for (const DType reduced : {DType::f32, DType::bf16}) {
    config::RunConfig c = testing::decoder_config(4, 1, 1);
    c.fsdp.strategy = config::Strategy::no_shard;
    c.fsdp.layout = Layout::per_param;
    c.fsdp.param_dtype = DType::bf16;
    c.fsdp.reduce_dtype = reduced;
    Reduction r(c);
    r.reduce(kReduced);
    EXPECT_EQ(r.ops(), "backward post_backward");
    r.reducer.finish();
    ASSERT_EQ(r.reducer.ready().size(), 1U);
    EXPECT_EQ(r.reducer.ready().front().buffer, r.work<Backward>(0).gradients);
    EXPECT_EQ(r.builder.dtype_of(r.reducer.ready().front().buffer), DType::bf16);

    c.train.accumulate = 2;  // to a sum in fp32 they are added as they are
    Reduction several(c);
    several.reduce(kReduced, false);
    several.reduce(kReduced);
    EXPECT_EQ(several.ops(), "backward post_backward finish_gradient backward post_backward finish_gradient");
  }
  config::RunConfig rounds = testing::decoder_config(4, 1, 1);
  rounds.fsdp.strategy = config::Strategy::no_shard;
  rounds.fsdp.layout = Layout::per_param;
  rounds.fsdp.param_dtype = rounds.fsdp.reduce_dtype = DType::bf16;
  rounds.fsdp.fp32_gradients = true;
  Reduction r(rounds);
  r.reduce(kReduced);
  EXPECT_EQ(r.ops(), "backward post_backward reduce_cast") << "what travels in less is rounded, with or without peers";
}

/// A reduction that moves nothing needs no fp32 either: the optimizer reads bf16.
TEST(Reducer, OneFlatRankReducesOverItselfWhatBackwardWrote) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    config::RunConfig c = testing::decoder_config(4, 1, 1);
    c.fsdp.strategy = config::Strategy::no_shard;
    c.fsdp.layout = Layout::flat;
    c.fsdp.param_dtype = dtype;
    c.fsdp.reduce_dtype = DType::f32;
    Reduction r(c);
    r.reduce(kReduced);
    EXPECT_EQ(r.ops(), "backward post_backward all_reduce");
    EXPECT_EQ(r.work<Collective>(2).scale, 1.0F);
    EXPECT_EQ(r.work<Collective>(2).dtype, dtype);
    r.reducer.finish();
    ASSERT_EQ(r.reducer.ready().size(), 1U);
    EXPECT_EQ(r.reducer.ready().front().buffer, r.work<Backward>(0).gradients);
  }
}

TEST(Reducer, ReplicatedParametersAreReducedOverAllRanks) {
  config::RunConfig c = reducing(Layout::flat);
  c.fsdp.shard_threshold = 100;  // the norms
  Reduction r(c);
  r.reduce(kReduced);
  EXPECT_EQ(r.ops(), "backward post_backward reduce_scatter all_reduce");
  const auto reduce = r.work<Collective>(3);
  EXPECT_EQ(reduce.group, Group::shard);
  EXPECT_EQ(reduce.count, r.plan.units[kReduced].layout.replicated_numel);
  r.reducer.finish();
  ASSERT_EQ(r.reducer.ready().size(), 2U);
  EXPECT_TRUE(r.reducer.ready()[1].replicated);
  EXPECT_EQ(r.reducer.ready()[1].numel, reduce.count);
}

TEST(Reducer, ASeparateCommunicatorIsOnlyForReduceScatter) {
  config::RunConfig c = reducing(Layout::flat);
  c.model.experts = 4;
  c.model.active_experts = 2;
  c.mesh.expert = 2;
  for (const bool separate : {false, true}) {
    c.fsdp.separate_reduce_scatter_comm = separate;
    Reduction r(c);
    for (const int unit : {kReduced, r.plan.units[kReduced].experts}) {
      r.reduce(unit);
      const bool experts = unit != kReduced;
      EXPECT_EQ(r.last_op().group(), experts ? (separate ? Group::expert_shard_separate : Group::expert_shard)
                                             : (separate ? Group::shard_separate : Group::shard));
    }
  }
}

/// A copy of a flat gradient is one run, padding and all.
TEST(Reducer, AFlatGradientMayBeCopiedBeforeItIsReduced) {
  config::RunConfig c = reducing(Layout::flat);
  c.fsdp.gradient_copy_in = true;
  Reduction r(c);
  r.reduce(kReduced);
  EXPECT_EQ(r.ops(), "backward post_backward reduce_copy_in reduce_scatter");
  EXPECT_EQ(r.work<Cast>(2).count, r.plan.units[kReduced].layout.gathered_numel());
  EXPECT_EQ(r.work<Cast>(2).to, r.work<Collective>(3).input);
}

/// FSDP2 waits for earlier reductions before it looks whether a unit has gradients, but where it only adds up.
TEST(Reducer, AFrozenUnitWaitsForReductionsAllTheSame) {
  using Row = std::tuple<AccumulateMode, bool, const char*>;
  for (const auto& [mode, last, ops] : {Row{AccumulateMode::reduce_each, false, " release"},
                                        {AccumulateMode::no_sync, true, " release"},
                                        {AccumulateMode::no_sync, false, ""}}) {
    config::RunConfig c = reducing(Layout::per_param);
    c.model.trainable = {config::Trainable::Mode::blocks, 1, 1};
    c.train.accumulate_mode = mode;
    Reduction r(c);
    r.reduce(kReduced);
    const std::string before = r.ops();
    r.reducer.reduce(1, last);
    EXPECT_EQ(r.ops(), before + " post_backward" + ops);
  }
}

/// "op[unit] offset/stride" of copies and sums, "op[units] count" of collectives; a unit has 9280 elements, a quarter
/// of which is 2320. Waits are told as the kind of what is waited for.
std::string places(const Reduction& r) {
  std::map<EventId, std::string> recorded;
  std::string text;
  for (const Op& op : r.builder.step().ops) {
    if (op.record != kNoEvent) recorded[op.record] = to_string(op.kind);
    if (op.kind == OpKind::backward || op.kind == OpKind::post_backward) continue;
    text += std::string(to_string(op.kind)) + '[' + std::to_string(op.unit);
    for (const int other : op.others) text += ',' + std::to_string(other);
    text += ']';
    if (const auto* copy = std::get_if<LayoutCopy>(&op.work)) {
      text += ' ' + std::to_string(copy->offset) + '/' + std::to_string(copy->stride);
    } else if (const auto* sum = std::get_if<Accumulate>(&op.work)) {
      text += ' ' + std::to_string(sum->offset) + '/' + std::to_string(sum->stride);
      EXPECT_EQ(sum->count, 2320);
    } else if (op.is_collective()) {
      text += ' ' + std::to_string(op.collective()->count);
    } else if (const auto* cast = std::get_if<Cast>(&op.work)) {
      text += ' ' + std::to_string(cast->count);
    }
    for (const Wait& wait : op.waits) text += " <" + recorded.at(wait.event);
    text += "; ";
  }
  return text;
}

/// No bucket: a unit is reduced before the next one's backward.
TEST(Reducer, WithoutABucketEachUnitIsReducedAtOnce) {
  config::RunConfig c = reducing(Layout::flat);
  c.fsdp.reduce_by = config::ReduceBy::all_reduce;
  Reduction r(c);
  for (const int unit : {2, 1}) r.reduce(unit);
  EXPECT_EQ(r.ops(),
            "backward post_backward all_reduce finish_gradient backward post_backward all_reduce finish_gradient");
}

TEST(Reducer, EachUnitOfABucketHasItsPlace) {
  config::RunConfig c = reducing(Layout::flat);
  c.fsdp.reduce_scatter_buffers = 0;
  const auto reduced = [&](config::ReduceBy by, std::int64_t bucket, bool pre_divides, std::vector<int> units) {
    c.fsdp.reduce_by = by;
    c.fsdp.reduce_bucket = bucket;
    c.fsdp.gradient_scaling = pre_divides ? GradientScaling::pre_post_divide : GradientScaling::average;
    Reduction r(c);
    for (const int unit : units) r.reduce(unit);
    r.reducer.end_backward();
    return places(r);
  };
  using config::ReduceBy;
  EXPECT_EQ(reduced(ReduceBy::reduce_scatter, 3 * 9280, false, {3, 2, 1}),
            "reduce_cast[3] 9280 <post_backward; reduce_cast[2] 9280 <post_backward; "
            "reduce_cast[1] 9280 <post_backward; reduce_copy_in[3] 0/6960; reduce_copy_in[2] 2320/6960; "
            "reduce_copy_in[1] 4640/6960; reduce_scatter[3,2,1] 6960; finish_gradient[3] 0/0; "
            "finish_gradient[2] 2320/0; finish_gradient[1] 4640/0; ");
  EXPECT_EQ(reduced(ReduceBy::all_reduce, 3 * 9280, false, {3, 2, 1}),
            "reduce_copy_in[3] 0/2320 <post_backward; reduce_copy_in[2] 9280/2320 <post_backward; "
            "reduce_copy_in[1] 18560/2320 <post_backward; all_reduce[3,2,1] 27840; finish_gradient[3] 0/2320; "
            "finish_gradient[2] 9280/2320; finish_gradient[1] 18560/2320; ");
  // A unit larger than a bucket is reduced where it lies; divided before if that is asked.
  for (const std::int64_t bucket : {1, 9279}) {
    EXPECT_EQ(reduced(ReduceBy::reduce_scatter, bucket, false, {2}),
              "reduce_scatter[2] 2320 <post_backward; finish_gradient[2] 0/0; ");
    EXPECT_EQ(reduced(ReduceBy::all_reduce, bucket, false, {2}),
              "all_reduce[2] 9280 <post_backward; finish_gradient[2] 0/2320; ");
  }
  EXPECT_EQ(reduced(ReduceBy::reduce_scatter, 1, true, {2}),
            "reduce_cast[2] 9280 <post_backward; reduce_scatter[2] 2320; finish_gradient[2] 0/0; ");
  EXPECT_EQ(reduced(ReduceBy::all_reduce, 1, true, {2}),
            "reduce_cast[2] 9280 <post_backward; all_reduce[2] 9280; finish_gradient[2] 0/2320; ");
  EXPECT_EQ(reduced(ReduceBy::reduce_scatter, 9280, true, {2}),
            "reduce_cast[2] 9280 <post_backward; reduce_scatter[2] 2320; finish_gradient[2] 0/0; ")
      << "divided once";
  c = testing::decoder_config(4, 4, 2);
  c.fsdp.layout = Layout::flat;
  c.fsdp.strategy = config::Strategy::hybrid_shard;
  EXPECT_EQ(reduced(ReduceBy::reduce_scatter, 1, false, {2}),
            "reduce_scatter[2] 2320 <post_backward; all_reduce[2] 2320 <reduce_scatter; finish_gradient[2] 0/0; ");
}

/// Before a third reduction the host waits for the first, before the fourth for the second, and at the end for the
/// last.
TEST(Reducer, TheHostWaitsForTheOldestOfMoreThanSoManyReductions) {
  config::RunConfig c = reducing(Layout::flat);
  c.fsdp.reduce_bucket = 1;
  c.fsdp.reductions_in_flight = 1;
  for (const auto by : {config::ReduceBy::reduce_scatter, config::ReduceBy::all_reduce}) {
    c.fsdp.reduce_by = by;
    Reduction r(c);
    for (int micro = 0; micro < 2; ++micro) {
      for (const int unit : {4, 3, 2, 1}) r.reduce(unit);
      r.reducer.end_backward();
    }
    std::map<EventId, int> reduced;
    std::vector<int> waited;
    for (const Op& op : r.builder.step().ops) {
      if (op.is_collective()) reduced[op.record] = op.unit;
      if (op.kind == OpKind::host_wait) waited.push_back(reduced.at(op.waits.front().event));
    }
    EXPECT_EQ(waited, (std::vector{4, 3, 1, 4, 3, 1}));
  }
}

/// Three buckets of a unit are more than two units: the first is freed before the fourth.
TEST(Reducer, BucketsCountAmongTheElementsThatMayWait) {
  config::RunConfig c = reducing(Layout::flat);
  c.fsdp.reduce_bucket = 9280;
  c.fsdp.reduce_scatter_elements = 2 * 9280;
  Reduction r(c);
  for (const int unit : {4, 3, 2, 1}) {
    EXPECT_EQ(std::ranges::count(r.builder.step().ops, OpKind::release, &Op::kind), 0) << unit;
    r.reduce(unit);
    r.reducer.end_backward();
  }
  const std::vector<Op> ops = r.builder.step().ops;
  const auto freed = std::ranges::find(ops, OpKind::release, &Op::kind);
  ASSERT_NE(freed, ops.end());
  EXPECT_EQ(freed->unit, 4);
}

/// Sums that a reduction-only microbatch leaves are waited for before the next one, where that is asked.
TEST(Reducer, SumsOfShardsAreWaitedForAtTheEndOfABackward) {
  config::RunConfig c = testing::decoder_config(4, 2, 2);
  c.fsdp.strategy = config::Strategy::hybrid_shard;
  c.train.accumulate = 2;
  c.train.accumulate_mode = AccumulateMode::reduce_scatter_only;
  Reduction r(c);
  r.reduce(kReduced, false);
  const EventId added = r.last_op().record;
  r.reducer.wait_for_all();
  EXPECT_EQ(r.last_op().kind, OpKind::release);
  EXPECT_EQ(std::ranges::count(r.last_op().waits, Wait{added, WaitReason::data}), 1);
}

/// A copy or a sum on the host is waited for once.
TEST(GradientOffload, WaitsOnceForEachUnit) {
  config::RunConfig c = reducing(Layout::flat);
  c.fsdp.cpu_offload = config::CpuOffload::all;
  Reduction r(c);
  for (const int unit : {3, 1}) r.reduce(unit);
  r.reducer.wait_for_all();
  r.reducer.wait_for_all();
  std::vector<int> waited;
  for (const Op& op : r.builder.step().ops) {
    if (op.kind == OpKind::host_wait) waited.push_back(op.unit);
  }
  EXPECT_EQ(waited, (std::vector{1, 3}));
}

/// "C" a cast, "I" a copy-in, "RS", "AR" and "+": of two units in turn, with buckets that hold less than one, one, or
/// both.
TEST(Reducer, BucketsHoldWhatFitsAndAreReducedWhereItLiesIfItCan) {
  const auto steps = [](Layout layout, DType dtype, config::ReduceBy by, int shards) {
    std::string text;
    for (const int times : {0, 1, 2}) {
      config::RunConfig c = testing::decoder_config(4, shards);
      c.fsdp.layout = layout;
      c.fsdp.param_dtype = dtype;
      c.fsdp.reduce_by = by;
      c.fsdp.gradient_scaling = GradientScaling::pre_post_divide;
      const std::int64_t unit = plan::make_plan(c).units[1].layout.parameter_numel();
      c.fsdp.reduce_bucket = times == 0 ? unit - 1 : times * unit;
      Reduction r(c);
      for (const int number : {2, 1}) r.reduce(number);
      r.reducer.end_backward();
      text += text.empty() ? "" : " | ";
      for (const Op& op : r.builder.step().ops) {
        const auto* sum = std::get_if<Accumulate>(&op.work);
        text += op.kind == OpKind::reduce_cast       ? "C"
                : op.kind == OpKind::reduce_copy_in  ? "I"
                : op.kind == OpKind::reduce_scatter  ? "RS"
                : op.kind == OpKind::all_reduce      ? "AR"
                : op.kind == OpKind::release         ? "f"
                : op.kind == OpKind::finish_gradient ? (sum->stride > 0 ? "=" : "+")
                                                     : "";
      }
    }
    return text;
  };
  using config::ReduceBy;
  EXPECT_EQ(steps(Layout::flat, DType::f32, ReduceBy::reduce_scatter, 4), "CRS+fCRS+ | CRS+CfRS+ | CCIIRS++");
  EXPECT_EQ(steps(Layout::flat, DType::bf16, ReduceBy::reduce_scatter, 4), "CRS+CfRS+ | CRS+CfRS+ | CCIIRS++");
  EXPECT_EQ(steps(Layout::per_param, DType::f32, ReduceBy::reduce_scatter, 4), "CIRS+CfIRS+ | CIRS+CfIRS+ | CCIIRS++");
  EXPECT_EQ(steps(Layout::flat, DType::f32, ReduceBy::all_reduce, 4), "CAR=CAR= | ICAR=ICAR= | IICAR==");
  EXPECT_EQ(steps(Layout::per_param, DType::f32, ReduceBy::all_reduce, 4), "ICAR=ICAR= | ICAR=ICAR= | IICAR==");
  EXPECT_EQ(steps(Layout::flat, DType::f32, ReduceBy::reduce_scatter, 1), "ARAR | ARAR | ARAR");
}

TEST(GradientFactors, AGivenDivisorDividesOnceWhateverTheGroups) {
  config::Fsdp fsdp;
  const auto product = [](const GradientFactors& f) { return f.before * f.shard * f.replicate * f.after; };
  for (const GradientScaling scaling :
       {GradientScaling::average, GradientScaling::sum, GradientScaling::pre_post_divide}) {
    fsdp.gradient_scaling = scaling;
    for (const plan::Mesh& mesh : {plan::Mesh{1, 1}, plan::Mesh{1, 2}, plan::Mesh{2, 1}, plan::Mesh{2, 2}}) {
      for (const double divisor : {4.0, 1.0, 0.5}) {
        fsdp.gradient_divide_factor = divisor;
        const GradientFactors factors = gradient_factors(fsdp, mesh);
        EXPECT_EQ(product(factors), 1.0F / divisor);
        if (mesh.shard == 1) {
          EXPECT_EQ(factors.after, 1.0F / divisor) << "a group of one reduces nothing";
        }
      }
    }
  }
}

TEST(Reducer, WholeParametersAreCastOnceAStepIfAtAll) {
  config::RunConfig c = testing::decoder_config(3, 2);
  c.fsdp.shard_threshold = 1 << 30;
  c.train.accumulate = 2;
  const auto casts = [&](DType dtype) {
    c.fsdp.param_dtype = dtype;
    const testing::ScheduleCase made = testing::make_case(c);
    EXPECT_TRUE(std::ranges::all_of(made.plan.units, [](const plan::Unit& unit) { return unit.has_replicated(); }));
    return std::ranges::count(made.schedules.steady().ops, OpKind::cast_replicated, &Op::kind);
  };
  EXPECT_EQ(casts(DType::bf16), 4) << "a unit each";
  EXPECT_EQ(casts(DType::f32), 0);
}

}  // namespace
}  // namespace fsdpbench::schedule
