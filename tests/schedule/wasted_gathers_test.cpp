// Each rule of an engine that wastes all-gathers: found where it is on, gone where it is off.

#include "schedule/wasted_gathers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/communication.h"
#include "schedule/prefetcher.h"
#include "support/check_schedules.h"
#include "support/communication_formula.h"
#include "support/presets.h"
#include "support/random_config.h"

namespace fsdpbench::schedule {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

std::vector<WastedGather> wasted(const config::RunConfig& config) {
  const testing::ScheduleCase made = testing::make_case(config);
  return wasted_gathers(made.plan, made.schedules.steady());
}

auto waste_of(Waste waste, int unit) {
  return AllOf(Field("waste", &WastedGather::waste, waste), Field("unit", &WastedGather::unit, unit));
}

config::RunConfig with_last_blocks_trained(const char* preset) {
  config::RunConfig config = testing::with_preset(testing::decoder_config(4, 4), preset);
  config.model.trainable = {config::Trainable::Mode::blocks, 2, 3};
  return config;
}

// FSDP2 prefetches by the order of forward, whether or not gradients go so far.
TEST(WastedGathers, Fsdp2PrefetchesBelowTheFirstUnitThatTrains) {
  const config::RunConfig config = with_last_blocks_trained("fsdp2");
  EXPECT_THAT(wasted(config), ElementsAre(waste_of(Waste::never_used, 2)));

  config::RunConfig two_ahead = config;
  two_ahead.fsdp.backward_prefetch = {config::Prefetch::Mode::explicit_, 2, 0};
  EXPECT_THAT(wasted(two_ahead), ElementsAre(waste_of(Waste::never_used, 2), waste_of(Waste::never_used, 1)));

  config::RunConfig none = config;
  none.fsdp.backward_prefetch = {config::Prefetch::Mode::none, 1, 0};
  EXPECT_THAT(wasted(none), IsEmpty());
  config::RunConfig all = config;
  all.model.trainable = {};
  EXPECT_THAT(wasted(all), IsEmpty());
}

// FSDP1's outputs need no gradient there, and it knows.
TEST(WastedGathers, Fsdp1PrefetchesNoneOfThem) { EXPECT_THAT(wasted(with_last_blocks_trained("fsdp1")), IsEmpty()); }

// Between the root's last use in forward and its first in backward nothing else computes.
TEST(WastedGathers, ARootThatIsFreedAfterForwardIsGatheredAgainAtOnce) {
  config::RunConfig config = testing::with_preset(testing::decoder_config(4, 4), "fsdp2");
  config.fsdp.reshard_after_forward.mode = config::ReshardAfterForward::Mode::always;
  EXPECT_THAT(wasted(config), ElementsAre(waste_of(Waste::freed_early, 0)));
  config.fsdp.reshard_after_forward.mode = config::ReshardAfterForward::Mode::automatic;
  EXPECT_THAT(wasted(config), IsEmpty());
}

// The first unit's backward is followed by its forward of the next microbatch.
TEST(WastedGathers, AMicrobatchBeginsWithTheUnitThatTheLastOneEndedWith) {
  config::RunConfig config = testing::with_preset(testing::decoder_config(4, 4), "fsdp2");
  config.train.accumulate = 3;
  EXPECT_THAT(wasted(config), ElementsAre(waste_of(Waste::freed_early, 0), waste_of(Waste::freed_early, 0)));
  config.fsdp.reshard_after_backward = false;
  EXPECT_THAT(wasted(config), IsEmpty());
}

// NVIDIA-NeMo/Automodel#3373: a reentrant checkpoint calls forward's hooks again, and with them the list to prefetch.
TEST(WastedGathers, AReentrantRecomputationPrefetchesUnitsThatHaveHadTheirBackward) {
  config::RunConfig config = testing::with_preset(testing::decoder_config(4, 4), "fsdp2");
  config.fsdp.activation_checkpointing = true;
  config.fsdp.forward_prefetch = {config::Prefetch::Mode::explicit_, 1, 0};
  EXPECT_THAT(wasted(config), IsEmpty());
  config.fsdp.checkpoint_reentrant = true;
  EXPECT_THAT(wasted(config), ElementsAre(waste_of(Waste::never_used, 4), waste_of(Waste::never_used, 3),
                                          waste_of(Waste::never_used, 2)));
  const testing::ScheduleCase made = testing::make_case(config);
  EXPECT_THAT(check_schedules(made.schedules), IsEmpty());
  config.fsdp.forward_prefetch = {config::Prefetch::Mode::implicit, 1, 0};
  EXPECT_THAT(wasted(config), IsEmpty());
}

TEST(WastedGathers, TheClosedFormOfBytesCountsThem) {
  for (const bool keeps : {false, true}) {
    for (const std::int64_t every : {1, 2, 3}) {
      for (const int depth : {1, 2, 3}) {
        config::RunConfig config = testing::with_preset(testing::decoder_config(5, 4), "fsdp2");
        config.fsdp.activation_checkpointing = config.fsdp.checkpoint_reentrant = true;
        config.fsdp.checkpoint_every = every;
        config.fsdp.forward_prefetch = {config::Prefetch::Mode::explicit_, depth, 0};
        config.fsdp.reshard_after_backward = !keeps;
        config.train.accumulate = 2;
        const testing::ScheduleCase made = testing::make_case(config);
        double sent = 0;
        for (const Op& op : made.schedules.steady().ops) {
          if (op.kind == OpKind::all_gather) sent += static_cast<double>(op.collective()->bytes() * 3);
        }
        EXPECT_EQ(sent, plan::communication_volume(made.plan, config, regathers(made.policy, made.plan)).all_gather)
            << every << " " << depth << " " << keeps;
      }
    }
  }
}

/// Gathers of units into buffers, copies out of them (the last two buffers stay), and passes that read them; the first
/// pass is number 0.
TEST(WastedGathers, AreFollowedFromBufferToBuffer) {
  const plan::Plan plan = plan::make_plan(testing::decoder_config(2, 4));
  Schedule schedule;
  schedule.buffers.resize(10);
  schedule.buffers[8].persistent = schedule.buffers[9].persistent = true;
  const auto gather = [](int unit, BufferId to, std::vector<int> others = {}) {
    return Op{.kind = OpKind::all_gather,
              .unit = unit,
              .work = Collective{.group = Group::shard, .output = to, .count = 3},
              .others = std::move(others)};
  };
  const auto copy = [](int unit, BufferId from, BufferId to) {
    return Op{.kind = OpKind::copy_out, .unit = unit, .work = LayoutCopy{.from = from, .to = to}};
  };
  const auto pass = [](int module, BufferId parameters, BufferId experts = kNoBuffer, int part = -1) {
    return Op{.module = module, .work = Forward{.parameters = parameters, .experts = experts, .part = part}};
  };
  using Found = std::vector<WastedGather>;
  const auto found = [&](std::vector<Op> ops) {
    schedule.ops = std::move(ops);
    return wasted_gathers(plan, schedule);
  };
  constexpr std::int64_t kSent = 3 * 4 * 3;  // three floats to each of the three others
  EXPECT_EQ(found({gather(1, 0), pass(1, 0), pass(2, 5), gather(1, 1), pass(1, 1)}), Found{});
  EXPECT_EQ(found({gather(1, 0), pass(1, 0), gather(1, 1), pass(2, 1)}), (Found{{Waste::freed_early, 1, 2, 0, kSent}}));
  EXPECT_EQ(found({gather(1, 0), pass(1, 0, kNoBuffer, 0), pass(1, 5, kNoBuffer, 1), gather(1, 1), pass(2, 1)}),
            (Found{{Waste::freed_early, 1, 3, 0, kSent}}))
      << "parts of one pass are one use";
  EXPECT_EQ(found({gather(1, 0), gather(1, 1), pass(1, 0, 1), pass(2, 1)}), Found{}) << "read together";
  EXPECT_EQ(found({gather(1, 0), gather(1, 1), pass(1, 1)}), (Found{{Waste::used_once, 1, 0, 1, kSent}}));
  EXPECT_EQ(found({gather(1, 0), gather(1, 1), gather(2, 2), pass(1, 2)}),
            (Found{{Waste::never_used, 1, 0, -1, kSent}, {Waste::never_used, 1, 1, -1, kSent}}));
  EXPECT_EQ(found({gather(1, 0), pass(1, 0), pass(2, 5), gather(1, 1)}), (Found{{Waste::never_used, 1, 3, -1, kSent}}))
      << "that was used before, and not again";
  EXPECT_EQ(found({gather(1, 0, {2}), copy(1, 0, 1), copy(2, 0, 2), pass(1, 1)}),
            (Found{{Waste::never_used, 2, 0, -1, kSent / 2}}))
      << "half of the bucket";
  EXPECT_EQ(found({gather(1, 0, {2}), copy(1, 0, 8), copy(2, 0, 9)}), Found{}) << "for the next step";
}

TEST(WastedGathers, HaveNames) {
  for (const auto& [waste, name] : {std::pair{Waste::never_used, "never_used"},
                                    {Waste::used_once, "used_once"},
                                    {Waste::freed_early, "freed_early"}}) {
    EXPECT_EQ(to_string(waste), name);
    EXPECT_TRUE(words_of(waste).starts_with("gathered"));
  }
}

TEST(WastedGathers, BytesAreWhatARankSends) {
  const config::RunConfig config = with_last_blocks_trained("fsdp2");
  config::RunConfig none = config;
  none.fsdp.backward_prefetch = {config::Prefetch::Mode::none, 1, 0};
  const auto sent = [](const config::RunConfig& c) {
    const testing::ScheduleCase made = testing::make_case(c);
    return plan::communication_volume(made.plan, c, regathers(made.policy, made.plan)).all_gather;
  };
  EXPECT_EQ(static_cast<double>(wasted(config).front().bytes), sent(config) - sent(none));
}

// Whatever the policy: what is said to be never used is read by nothing but copies, and bytes of all are no more than
// what is sent.
TEST(WastedGathers, OfAnyPolicyAreNoMoreThanAllGathers) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    config::RunConfig config = testing::decoder_config(3, 4);
    testing::reorder(random, config.fsdp);
    config.train.accumulate = testing::pick<std::int64_t>(random, {1, 2});
    const testing::ScheduleCase made = testing::make_case(config);
    const std::vector<WastedGather> found = wasted_gathers(made.plan, made.schedules.steady());
    std::int64_t bytes = 0;
    for (const WastedGather& w : found) {
      bytes += w.bytes;
      EXPECT_EQ(made.schedules.steady().ops.at(static_cast<std::size_t>(w.op)).kind, OpKind::all_gather);
      EXPECT_NE(w.waste, Waste::never_used) << "all units train and are used";
    }
    EXPECT_LE(static_cast<double>(bytes),
              plan::communication_volume(made.plan, config, regathers(made.policy, made.plan)).all_gather);
  }
}

// A root without parameters does not end a microbatch's backward: the last unit is prefetched for a backward that is
// over.
TEST(WastedGathers, TheClosedFormHasEachGatherOfTheSchedule) {
  for (const int layers : {1, 2, 4}) {
    for (const std::int64_t accumulate : {1, 3}) {
      for (const bool waits : {false, true}) {
        config::RunConfig config = testing::decoder_config(layers, 4);
        config.model.kind = config::ModelKind::mlp;
        config.train.accumulate = accumulate;
        config.fsdp.wait_each_backward = waits;
        const testing::ScheduleCase made = testing::make_case(config);
        const plan::Regathers again = regathers(made.policy, made.plan);
        for (int u = 1; u < made.plan.with_modules; ++u) {
          const auto gathers = std::ranges::count_if(
              made.schedules.steady().ops, [u](const Op& op) { return op.kind == OpKind::all_gather && op.unit == u; });
          const auto unit = static_cast<std::size_t>(u);
          EXPECT_EQ(gathers, accumulate * (again.for_backward[unit] ? 2 : 1) + again.unused[unit])
              << layers << " layers, " << accumulate << " microbatches, unit " << u;
          const bool across = !waits && accumulate > 1 && u == layers && layers > 1;
          EXPECT_EQ(again.unused[unit], across ? 1 : 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fsdpbench::schedule
