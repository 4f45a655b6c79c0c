#include "schedule/policy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "schedule/gradient_exchange.h"
#include "schedule/memory_walk.h"
#include "support/random_config.h"
#include "support/step_parts.h"

namespace fsdpbench::schedule {
namespace {

using config::AccumulateMode;
using config::Prefetch;
using config::Strategy;
using Reshard = config::ReshardAfterForward::Mode;

Policy policy_of(Strategy strategy, Reshard reshard, int group = 1) {
  Policy policy;
  policy.fsdp.strategy = strategy;
  policy.fsdp.reshard_after_forward = {reshard, group};
  return policy;
}

TEST(Policy, FreesAfterForwardWhatItsStrategyOrItsOverrideSays) {
  const plan::Plan plan = plan::make_plan(testing::decoder_config(2, 4));
  const plan::Plan alone = plan::make_plan([] {
    config::RunConfig c = testing::decoder_config(2, 1);
    c.fsdp.layout = config::Layout::flat;
    return c;
  }());
  using Row = std::tuple<Strategy, Reshard, int, bool, bool>;  // group; the root, a block
  for (const auto& [strategy, reshard, group, root, block] :
       {Row{Strategy::full_shard, Reshard::automatic, 1, false, true},
        {Strategy::hybrid_shard, Reshard::automatic, 1, false, true},
        {Strategy::shard_grad_op, Reshard::automatic, 1, false, false},
        {Strategy::hybrid_shard_grad_op, Reshard::automatic, 1, false, false},
        {Strategy::shard_grad_op, Reshard::always, 1, true, true},
        {Strategy::full_shard, Reshard::never, 1, false, false},
        {Strategy::full_shard, Reshard::group, 1, false, false},
        {Strategy::full_shard, Reshard::group, 2, true, true}}) {
    const Policy policy = policy_of(strategy, reshard, group);
    EXPECT_EQ(reshards_after_forward(policy, plan, kRoot), root);
    EXPECT_EQ(reshards_after_forward(policy, plan, 1), block);
    EXPECT_FALSE(reshards_after_forward(policy, alone, 1)) << "nothing to win";
  }
}

TEST(Policy, FreesAfterABackwardThatReducesOrAsForwardDid) {
  Policy policy = policy_of(Strategy::shard_grad_op, Reshard::automatic);
  EXPECT_TRUE(reshards_after_backward(policy, false));
  policy.accumulate_mode = AccumulateMode::no_sync;
  EXPECT_TRUE(reshards_after_backward(policy, false));
  policy.fsdp.keep_unreduced = true;
  using Row = std::tuple<Strategy, Reshard, bool>;
  for (const auto& [strategy, reshard, frees] : {Row{Strategy::shard_grad_op, Reshard::automatic, false},
                                                 {Strategy::full_shard, Reshard::automatic, true},
                                                 {Strategy::shard_grad_op, Reshard::always, true},
                                                 {Strategy::full_shard, Reshard::never, false}}) {
    policy.fsdp.strategy = strategy;
    policy.fsdp.reshard_after_forward = {reshard, 1};
    EXPECT_EQ(reshards_after_backward(policy, false), frees);
    EXPECT_TRUE(reshards_after_backward(policy, true));
  }
  policy = policy_of(Strategy::full_shard, Reshard::automatic);
  policy.fsdp.reshard_after_backward = false;
  EXPECT_FALSE(reshards_after_backward(policy, false));
  EXPECT_TRUE(reshards_after_backward(policy, true));
}

TEST(Policy, PrefetchesAcrossMicrobatchesWhereNoRootStandsBetween) {
  config::RunConfig c = testing::decoder_config(3, 4);
  const plan::Plan with_root = plan::make_plan(c);
  c.model.kind = config::ModelKind::mlp;
  const plan::Plan plan = plan::make_plan(c);
  Policy policy;
  for (const auto& [mode, across] : {std::pair{Prefetch::Mode::explicit_, true},
                                     {Prefetch::Mode::ahead, true},
                                     {Prefetch::Mode::pre, true},
                                     {Prefetch::Mode::post, false},
                                     {Prefetch::Mode::none, false},
                                     {Prefetch::Mode::window, false}}) {
    policy.fsdp.backward_prefetch.mode = mode;
    policy.fsdp.wait_each_backward = policy.fsdp.gradients_after_views = false;
    EXPECT_EQ(prefetches_across_microbatches(policy, plan), across);
    EXPECT_FALSE(prefetches_across_microbatches(policy, with_root));
    policy.fsdp.wait_each_backward = true;
    EXPECT_FALSE(prefetches_across_microbatches(policy, plan));
    policy.fsdp.wait_each_backward = false;
    policy.fsdp.gradients_after_views = true;
    EXPECT_FALSE(prefetches_across_microbatches(policy, plan));
  }
}

/// FSDP1's rule, by hand: the largest power of two that divides the ranks and is not above their square root, once
/// more.
TEST(Policy, DividesBeforeByFsdp1sPowerOfTwo) {
  config::Fsdp fsdp;
  fsdp.gradient_scaling = config::GradientScaling::pre_post_divide;
  for (const auto& [ranks, before] :
       std::vector<std::pair<int, float>>{{1, 1}, {2, 2}, {3, 2}, {4, 2}, {5, 2}, {6, 4}, {8, 4}, {16, 4}, {64, 8}}) {
    const GradientFactors factors = gradient_factors(fsdp, {ranks, 1});
    EXPECT_EQ(factors.before, 1.0F / before) << ranks;
    EXPECT_EQ(factors.after, before / static_cast<float>(ranks)) << ranks;
    EXPECT_EQ(factors.shard * factors.replicate, 1.0F);
  }
}

/// The strongest reason of several for one wait; a mark is one event, whoever asks; loss has a place a microbatch.
TEST(StepBuilder, JoinsWaitsAndMarks) {
  config::RunConfig c = testing::decoder_config(2, 4);
  c.train.accumulate = 3;
  testing::StepParts parts(c);
  StepBuilder& builder = parts.builder;
  EXPECT_EQ(builder.step().buffers.at(builder.persistent(BufferRole::loss)).bytes, 12);
  EXPECT_EQ(builder.mark(Lane::copy), kNoEvent);
  builder.new_buffer(BufferRole::saved, DType::f32, 4, 1);
  builder.append(OpKind::cast_shard, {.lane = Lane::copy, .unit = 1});
  const EventId marked = builder.mark(Lane::copy);
  builder.host_wait(marked, WaitReason::data, 1);
  builder.append(OpKind::forward, {.unit = 1});
  EXPECT_EQ(builder.mark(Lane::copy), marked);
  EXPECT_NE(builder.mark(Lane::compute), marked);
  EXPECT_TRUE(builder.recorded(marked));
  for (const auto& [first, second, joined] : {std::tuple{WaitReason::limit, WaitReason::data, WaitReason::data},
                                              {WaitReason::data, WaitReason::limit, WaitReason::data},
                                              {WaitReason::limit, WaitReason::reuse, WaitReason::reuse}}) {
    builder.wait(Lane::all_gather, marked, first);
    builder.wait(Lane::all_gather, marked, second);
    builder.append(OpKind::all_gather, {.lane = Lane::all_gather, .unit = 1});
    EXPECT_EQ(parts.last_op().waits, (std::vector<Wait>{{marked, joined}}));
  }
  const EventId again =
      (builder.begin_step(), builder.append(OpKind::cast_shard, {.lane = Lane::copy}), builder.mark(Lane::copy));
  EXPECT_EQ(again, marked) << "the same name in every step";
  EXPECT_TRUE(builder.step().buffers.back().persistent);
}

TEST(Updates, AddUpWhatEachRankHasOnce) {
  config::RunConfig c = testing::decoder_config(2, 4);
  c.mesh = {.ranks = 8, .shard = 4, .replicate = 1, .tensor = 2};
  c.fsdp.shard_threshold = 100;
  c.train.clip_norm = 1;
  const testing::ScheduleCase made = testing::make_case(c);
  int sharded = 0, replicated = 0;
  std::vector<std::pair<Group, std::int64_t>> gathers;
  for (const Op& op : made.schedules.steady().ops) {
    if (op.kind == OpKind::gather_norm) gathers.emplace_back(op.group(), op.collective()->count);
    const auto* sum = std::get_if<SumOfSquares>(&op.work);
    if (sum == nullptr) continue;
    EXPECT_EQ(sum->factor, sum->replicated ? 0.25F : 1.0F);
    EXPECT_EQ(sum->whole_factor, 0.5F);
    EXPECT_EQ(sum->overwrite, sharded + replicated == 0);
    ++(sum->replicated ? replicated : sharded);
  }
  EXPECT_EQ(std::pair(sharded, replicated), std::pair(3, 3));
  EXPECT_EQ(gathers, (std::vector<std::pair<Group, std::int64_t>>{{Group::shard, 1}, {Group::tensor, 4}}));
}

/// State that the plan and AdamW need, in bytes of its elements; the norms' 64 are whole on each rank.
TEST(StepBuilder, HasThePersistentBuffersOfItsPlan) {
  config::RunConfig c = testing::decoder_config(1, 4);
  c.fsdp.shard_threshold = 100;
  c.fsdp.param_dtype = DType::bf16;
  const auto persistent = [&] {
    const testing::StepParts parts(c);
    std::string text;
    for (const Buffer& b : parts.builder.step().buffers) {
      EXPECT_TRUE(b.persistent);
      if (b.unit == 1) {
        text += std::string(to_string(b.role)) + ' ' + std::to_string(b.bytes) +
                (b.space == MemorySpace::host ? " host, " : ", ");
      }
    }
    return text;
  };
  const std::int64_t shard = (9280 - 64) / 4;
  EXPECT_EQ(persistent(),
            fmt::format("master_shard {0}, master_replicated 256, replicated_parameters 128, first_moment {0}, "
                        "second_moment {0}, first_moment_replicated 256, second_moment_replicated 256, ",
                        4 * shard));
  c.train.optimizer = config::Optimizer::sgd;
  c.fsdp.cast_in_optimizer = true;
  EXPECT_EQ(persistent(), fmt::format("master_shard {}, device_shard {}, master_replicated 256, "
                                      "replicated_parameters 128, ",
                                      4 * shard, 2 * shard));
  c.fsdp.cpu_offload = config::CpuOffload::optimizer;
  c.fsdp.param_dtype = DType::f32;
  c.fsdp.persistence_threshold = 1 << 30;
  EXPECT_EQ(persistent(), fmt::format("master_shard {0} host, device_shard {0}, master_replicated 256, unsharded {1}, ",
                                      4 * shard, 16 * shard));
}

/// The parameters and moments of the same kind and unit as the gradient; SGD has none.
TEST(Updates, ReadWhatTheirGradientIsOf) {
  config::RunConfig c = testing::decoder_config(1, 4);
  c.fsdp.shard_threshold = 100;
  c.train.clip_norm = 1;
  const auto updates = [&] {
    const testing::ScheduleCase made = testing::make_case(c);
    const Schedule& steady = made.schedules.steady();
    std::string text;
    for (const Op& op : steady.ops) {
      const auto* update = std::get_if<Update>(&op.work);
      if (update == nullptr || op.unit != 1) continue;
      for (const BufferId id : {update->gradient, update->parameters, update->first_moment, update->second_moment,
                                update->clip_factor, update->rounded}) {
        if (id == kNoBuffer) continue;
        text += std::string(to_string(steady.buffers[id].role)) + ' ';
        EXPECT_EQ(steady.buffers[id].unit, id == update->clip_factor ? kNone : 1);
      }
      text += std::to_string(update->count) + "; ";
    }
    return text;
  };
  EXPECT_EQ(updates(),
            "gradient_shard master_shard first_moment second_moment clip_factor 2304; "
            "gradients_replicated master_replicated first_moment_replicated second_moment_replicated clip_factor 64; ");
  c.train.optimizer = config::Optimizer::sgd;
  c.train.clip_norm = 0;
  c.fsdp.param_dtype = DType::bf16;
  c.fsdp.cast_in_optimizer = true;
  EXPECT_EQ(updates(), "gradient_shard master_shard device_shard 2304; reduce_input_replicated master_replicated 64; ");
}

/// One sum in one order, whoever adds: each other lane goes on with the number that the one before it has written.
TEST(Updates, HostAndDeviceAddUpInTurn) {
  config::RunConfig c = testing::decoder_config(1, 4);
  c.fsdp.shard_threshold = 100;
  c.fsdp.cpu_offload = config::CpuOffload::all;
  c.train.clip_norm = 1;
  const testing::ScheduleCase made = testing::make_case(c);
  const Schedule& steady = made.schedules.steady();
  std::string text;
  EventId before = kNoEvent;
  std::int64_t partial = 0, gathered = 0, factor = 0;
  for (const Op& op : steady.ops) {
    for (const BufferId id : op.allocates) {
      const Buffer& buffer = steady.buffers[id];
      if (buffer.role == BufferRole::norm_partial) partial = buffer.bytes;
      if (buffer.role == BufferRole::norm_gathered) gathered = buffer.bytes;
      if (buffer.role == BufferRole::clip_factor) factor = buffer.bytes;
    }
    if (op.kind != OpKind::gradient_norm) continue;
    text += op.lane == Lane::host_compute ? 'h' : 'd';
    EXPECT_EQ(std::ranges::count(op.waits, Wait{before, WaitReason::data}), text == "h" ? 0 : 1);
    before = op.record;
  }
  EXPECT_EQ(std::ranges::find(steady.ops, OpKind::clip, &Op::kind)->lane, Lane::host_compute);
  EXPECT_EQ(text, "hdhd");
  EXPECT_EQ((std::array{partial, gathered, factor}), (std::array<std::int64_t, 3>{8, 4 * 8, 4}));
}

/// A model of one unit has no mean unit: as many elements as asked, be it one.
TEST(ReduceInputs, OfTheRootAloneHoldAsManyElementsAsAsked) {
  config::RunConfig c = testing::decoder_config(2, 4);
  c.fsdp.wrap.mode = config::Wrap::Mode::model;
  c.fsdp.reduce_scatter_elements = 1;
  testing::StepParts parts(c);
  ReduceInputs inputs(parts.builder);
  for (const char* ops : {"", "release", "release release"}) {
    inputs.add(0, 1, kRoot, 1);
    inputs.make_room(true);
    EXPECT_EQ(parts.ops(), ops);
  }
}

/// Two mean units at least, the root's elements left out.
TEST(ReduceInputs, HoldAsManyElementsAsAskedOrTwoMeanUnits) {
  const std::int64_t unit = 9280;
  for (const auto& [blocks, asked] : {std::pair{1, std::int64_t{1}}, {3, std::int64_t{1}}, {3, 5 * unit}}) {
    config::RunConfig c = testing::decoder_config(blocks, 4);
    c.fsdp.reduce_scatter_elements = asked;
    testing::StepParts parts(c);
    ReduceInputs inputs(parts.builder);
    EXPECT_TRUE(inputs.compute_frees());
    inputs.add(0, 1, 1, std::max(asked, 2 * unit));
    inputs.make_room(true);
    EXPECT_EQ(parts.ops(), "");
    inputs.add(0, 2, 2, 1);
    inputs.make_room(true);
    EXPECT_EQ(parts.ops(), "release");
    EXPECT_EQ(parts.last_op().unit, 1) << "the oldest";
  }
}

/// Padding of gradients is cleared, and the stream begun, by the op that brings them to life and by no other.
TEST(Backward, BeginsWhatItAllocates) {
  std::mt19937 random(20261128);
  int begins = 0;
  for (int i = 0; i < 300; ++i) {
    config::RunConfig c = testing::random_config(random);
    if (i % 3 == 0) {
      c = testing::decoder_config(3, 4);
      c.model.experts = 4;
      c.model.active_experts = 2;
      c.mesh.expert = 2;
      c.fsdp.expert_unit = std::array{config::ExpertUnit::group, config::ExpertUnit::module, config::ExpertUnit::bucket,
                                      config::ExpertUnit::ordered_module}[static_cast<std::size_t>(i / 3 % 4)];
      c.train.accumulate = 2;
    }
    const testing::ScheduleCase made = testing::make_case(c);
    for (const Op& op : made.schedules.steady().ops) {
      const auto* work = std::get_if<Backward>(&op.work);
      if (work == nullptr) continue;
      const auto born = [&](BufferId id) { return std::ranges::count(op.allocates, id) > 0; };
      EXPECT_EQ(work->begins_gradients, born(work->gradients) || born(work->gradients_replicated));
      EXPECT_EQ(work->begins_experts, born(work->gradients_experts));
      EXPECT_EQ(work->begins_stream, born(work->d_stream));
      begins += work->begins_experts ? 1 : 0;
    }
  }
  EXPECT_GT(begins, 200);
}

TEST(MemoryPeak, IsTheFirstOpAtWhichMostIsLive) {
  Schedule schedule;
  for (const std::int64_t bytes : {10, 7, 20, 20, 1000, 1000, 40}) schedule.buffers.push_back({.bytes = bytes});
  schedule.buffers[0].persistent = schedule.buffers[4].persistent = true;
  schedule.buffers[4].space = schedule.buffers[5].space = MemorySpace::host;
  schedule.ops = {{.allocates = {1, 5}}, {.allocates = {2}, .frees = {2, 5}}, {.allocates = {3}, .frees = {1, 3}}, {}};
  const MemoryPeak peak = memory_peak(schedule);
  EXPECT_EQ(peak.op, 1);
  EXPECT_EQ(peak.live_bytes, 37);
  EXPECT_EQ(peak.live, (std::vector<BufferId>{2, 0, 1}));
  schedule.ops.push_back({.allocates = {6}});  // once all else is freed
  EXPECT_EQ(memory_peak(schedule).live_bytes, 50);
  EXPECT_EQ(memory_peak(schedule).live, (std::vector<BufferId>{6, 0}));
}

}  // namespace
}  // namespace fsdpbench::schedule
