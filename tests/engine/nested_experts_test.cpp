// fsdp.expert_unit = "module": the experts of a block as a unit with hooks of its own, within the block's. Exact
// orders, the gathers that a recomputation wastes, bytes and memory.
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/validate.h"
#include "engine/setup.h"
#include "plan/communication.h"
#include "schedule/prefetcher.h"
#include "schedule/print_schedule.h"
#include "schedule/wasted_gathers.h"
#include "support/check_schedules.h"
#include "support/communication_formula.h"
#include "support/tiny_run.h"

namespace fsdpbench::engine {
namespace {

using namespace config;  // NOLINT: nothing here but settings
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using NestedChange = std::function<void(RunConfig&)>;

/// Three blocks of six experts on four ranks, of which two split the experts.
RunConfig nested_experts(const NestedChange& change = {}) {
  RunConfig c = testing::tiny_decoder();
  c.model.vocab = 256;
  c.model.experts = 6;
  c.model.active_experts = 2;
  c.mesh.ranks = 4;
  c.mesh.expert = 2;
  c.fsdp.expert_unit = ExpertUnit::module;
  c.train.steps = 3;
  c.train.warmup = 0;
  if (change) change(c);
  return testing::settled(c);
}

/// Each block lists the next one and its experts, in both directions. The root and experts have no list.
void list_modules(RunConfig& c) {
  c.fsdp.forward_prefetch = c.fsdp.backward_prefetch = {Prefetch::Mode::explicit_, 1};
  c.fsdp.root_prefetches_forward = false;
}

std::string units_issued(const RunConfig& c) {
  const engine::Setup setup = set_up(c);
  return schedule::issue_order(setup.plan, setup.schedules.steady());
}

TEST(NestedExperts, AreGatheredAndFreedAtTheirOwnHooks) {
  EXPECT_EQ(
      units_issued(nested_experts()),
      "UR U0 UE0 SE0 S0 U1 UE1 SE1 S1 U2 UE2 SE2 S2 | U2 UE2 U1 SE2 PE2 S2 P2 UE1 U0 SE1 PE1 S1 P1 UE0 SE0 PE0 S0 "
      "P0 SR PR");
}

TEST(NestedExperts, AListNamesTheNextBlockAndItsExperts) {
  EXPECT_EQ(
      units_issued(nested_experts(list_modules)),
      "UR U0 U1 UE1 UE0 SE0 S0 U2 UE2 SE1 S1 SE2 S2 | U2 U1 UE1 UE2 SE2 PE2 S2 P2 U0 UE0 SE1 PE1 S1 P1 SE0 PE0 S0 "
      "P0 SR PR");
  const auto listed = [](RunConfig& c) { list_modules(c), c.fsdp.root_prefetches_forward = true; };
  EXPECT_THAT(units_issued(nested_experts(listed)), ::testing::StartsWith("UR U0 UE0 U1 UE1 SE0 S0"));
}

/// pytorch#164009 and VeOmni#1043.
TEST(NestedExperts, ARecomputationThatFreesGathersTwiceAndBringsWhatNobodyUses) {
  const NestedChange recomputed = [](RunConfig& c) { c.fsdp.activation_checkpointing = true; };
  const auto wasted = [](const RunConfig& c) {
    const engine::Setup setup = set_up(c);
    EXPECT_THAT(schedule::check_schedules(setup.schedules), IsEmpty());
    std::vector<std::string> found;
    for (const schedule::WastedGather& w : schedule::wasted_gathers(setup.plan, setup.schedules.steady())) {
      found.push_back(std::string(to_string(w.waste)) + " " +
                      setup.plan.units[static_cast<std::size_t>(w.unit)].label());
    }
    return found;
  };
  EXPECT_THAT(wasted(nested_experts(recomputed)), IsEmpty());
  EXPECT_EQ(units_issued(nested_experts(recomputed)), units_issued(nested_experts()));
  const RunConfig frees = nested_experts([&](RunConfig& c) { recomputed(c), c.fsdp.recompute_frees = true; });
  EXPECT_EQ(units_issued(frees),
            "UR U0 UE0 SE0 S0 U1 UE1 SE1 S1 U2 UE2 SE2 S2 | U2 UE2 SE2 UE2 SE2 PE2 S2 P2 U1 UE1 SE1 UE1 UE2 SE1 PE1 S1 "
            "P1 U0 UE0 SE0 UE0 UE1 SE0 PE0 S0 P0 SR PR");
  EXPECT_THAT(wasted(frees),
              ElementsAre("freed_early E2", "freed_early E1", "never_used E2", "freed_early E0", "never_used E1"));
}

TEST(NestedExperts, TheClosedFormOfBytesCountsEveryGather) {
  for (const bool frees : {false, true}) {
    for (const bool kept : {false, true}) {
      for (const int every : {1, 2}) {
        for (const auto mode : {ReshardAfterForward::Mode::automatic, ReshardAfterForward::Mode::never}) {
          const RunConfig c = nested_experts([&](RunConfig& config) {
            config.fsdp.activation_checkpointing = true;
            config.fsdp.recompute_frees = frees;
            config.fsdp.checkpoint_every = every;
            config.fsdp.reshard_after_forward.mode = mode;
            config.fsdp.reshard_after_backward = !kept;
            config.train.accumulate = 2;
          });
          const engine::Setup setup = set_up(c);
          double sent = 0;
          for (const schedule::Op& op : setup.schedules.steady().ops) {
            if (op.kind != schedule::OpKind::all_gather) continue;
            sent += static_cast<double>(op.collective()->bytes() * (setup.plan.groups.size(op.group()) - 1));
          }
          EXPECT_EQ(sent,
                    plan::communication_volume(setup.plan, c, schedule::regathers(setup.policy, setup.plan)).all_gather)
              << frees << kept << every << static_cast<int>(mode);
        }
      }
    }
  }
}

TEST(NestedExperts, ReadNothingBeforeItIsThere) {
  const std::vector<NestedChange> policies{
      [](RunConfig&) {},
      list_modules,
      [](RunConfig& c) { c.fsdp.activation_checkpointing = true; },
      [](RunConfig& c) { c.fsdp.activation_checkpointing = c.fsdp.recompute_frees = true; },
      [](RunConfig& c) { c.fsdp.forward_prefetch.mode = c.fsdp.backward_prefetch.mode = Prefetch::Mode::none; },
      [](RunConfig& c) { c.fsdp.strategy = Strategy::shard_grad_op, c.fsdp.separate_reduce_scatter_comm = true; },
      [](RunConfig& c) { c.fsdp.reduce_scatter_buffers = 3, c.mesh.expert_sync = false; }};
  for (const int accumulate : {1, 2}) {
    const NestedChange base = [&](RunConfig& c) { c.train.accumulate = accumulate, c.train.clip_norm = 0.05; };
    for (std::size_t i = 0; i < policies.size(); ++i) {
      const RunConfig c = nested_experts([&](RunConfig& config) { base(config), policies[i](config); });
      SCOPED_TRACE(::testing::Message() << "policy " << i << ", " << accumulate << " microbatches");
      EXPECT_THAT(schedule::check_schedules(set_up(c).schedules), IsEmpty());
    }
  }
}

/// Experts are whole only around their own computation: what backward computes before and after, it does without them.
TEST(NestedExperts, AreNotWholeWhileTheBlockDoesOtherThings) {
  const auto peak = [](ExpertUnit unit) {
    return set_up(nested_experts([&](RunConfig& c) {
             c.model.layers = 1;
             c.model.ffn_width = 256;
             c.fsdp.expert_unit = unit;
             c.fsdp.strategy = Strategy::full_shard;
           }))
        .memory.peak_occupied;
  };
  EXPECT_LE(peak(ExpertUnit::module), peak(ExpertUnit::group));
}

TEST(NestedExperts, ReductionsMayHaveCommunicatorsOfTheirOwn) {
  const engine::Setup setup = set_up(nested_experts([](RunConfig& c) { c.fsdp.separate_reduce_scatter_comm = true; }));
  std::vector<std::string> groups;
  for (const schedule::Op& op : setup.schedules.steady().ops) {
    if (op.kind == schedule::OpKind::reduce_scatter) groups.emplace_back(to_string(op.group()));
  }
  EXPECT_THAT(groups, ElementsAre("expert_shard_separate", "shard_separate", "expert_shard_separate", "shard_separate",
                                  "expert_shard_separate", "shard_separate", "shard_separate"));
}

TEST(NestedExperts, WhatDoesNotGoWithThemSaysSo) {
  const auto error_of = [](const NestedChange& change) -> std::string {
    try {
      RunConfig c = nested_experts(change);
      validate(c);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_THAT(error_of([](RunConfig& c) { c.fsdp.backward_prefetch.mode = Prefetch::Mode::post; }),
              HasSubstr("fsdp.backward_prefetch = \"post\""));
  EXPECT_THAT(error_of([](RunConfig& c) {
                c.fsdp.all_gather_limit = {AllGatherLimit::Mode::strict, 1, 0};
              }),
              HasSubstr("fsdp.all_gather_limit = \"strict:1\""));
  RunConfig alone = nested_experts();
  alone.mesh.expert = 1;
  alone.fsdp.recompute_frees = true;
  EXPECT_THAT(validate(alone),
              ::testing::AllOf(::testing::Contains(HasSubstr("fsdp.expert_unit = \"module\" has no effect")),
                               ::testing::Contains(HasSubstr("fsdp.recompute_frees has no effect"))));
}

}  // namespace
}  // namespace fsdpbench::engine
