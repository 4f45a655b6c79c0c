// A counterfactual is a prediction that a simulation can check: without jitter it is the simulated step of the
// configuration in which the cause is not, to the nanosecond.
#include "account/counterfactual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "account/cause_report.h"
#include "account/run_metrics.h"
#include "base/error.h"
#include "clock/contention.h"
#include "clock/forecast.h"
#include "clock/machine.h"
#include "config/find_file.h"
#include "config/load.h"
#include "config/presets.h"
#include "config/validate.h"
#include "dialects/make_export.h"
#include "dialects/sayable.h"
#include "schedule/training.h"
#include "support/cause_cases.h"
#include "support/presets.h"
#include "support/simulated_run.h"

namespace fsdpbench::account {
namespace {

using testing::CauseCases;
using testing::SimulatedRun;

std::int64_t simulated_ns(const config::RunConfig& config) {
  const SimulatedRun run(config);
  return run.view.steps().back().slowest_ns();
}

std::int64_t whole(double ms) { return std::llround(ms * 1e6); }

/// The step without `cause`, by replay.
std::int64_t without_ns(const config::RunConfig& config, Cause cause, int late_rank = -1) {
  const SimulatedRun run(config);
  return whole(find_counterfactuals(run.typical, {{cause, late_rank}}, 0).causes.front().step_ms);
}

TEST(Counterfactual, WithoutAKnobsCauseIsTheStepThatIsSimulatedWithoutIt) {
  for (const Cause cause : {Cause::late_prefetch, Cause::all_gather_limit, Cause::host_sync,
                            Cause::communicator_serialisation, Cause::reduce_scatter_buffers}) {
    CauseCases cases(11);
    const config::RunConfig config =
        cause == Cause::reduce_scatter_buffers ? cases.one(Cause::link_bound).config : cases.one(cause).config;
    EXPECT_EQ(without_ns(config, cause), simulated_ns(lifted(cause, config))) << to_string(cause);
  }
}

TEST(Counterfactual, WithoutATimesCauseIsTheStepThatIsSimulatedWithoutIt) {
  CauseCases cases(12);
  config::RunConfig config = cases.one(Cause::link_bound).config;
  config.emulate.link_latency_us = 30;
  config::RunConfig changed = config;
  changed.emulate.link_gb_per_s = 1e12;
  EXPECT_EQ(without_ns(config, Cause::link_bound), simulated_ns(changed));

  config = changed = cases.one(Cause::inefficient_collective).config;
  changed.emulate.link_latency_us = 0;
  EXPECT_EQ(without_ns(config, Cause::inefficient_collective), simulated_ns(changed));

  const testing::CauseCase slow = cases.one(Cause::straggler);
  config = changed = slow.config;
  changed.inject.slow_rank = -1;
  EXPECT_EQ(without_ns(config, Cause::straggler, slow.late_rank), simulated_ns(changed));

  for (const int rank : {2, 0}) {
    config = cases.healthy();
    config.mesh.ranks = 4;
    config.emulate.link_latency_us = rank == 0 ? 30 : 0;
    changed = config;
    config.inject.slow_link_rank = rank;
    config.inject.slow_link_factor = 3;
    EXPECT_EQ(without_ns(config, Cause::slow_link, rank), simulated_ns(changed));
  }

  config = changed = cases.one(Cause::host_bound).config;
  changed.inject.host_delay_us = 0;
  EXPECT_EQ(without_ns(config, Cause::host_bound), simulated_ns(changed));
  config = changed = cases.healthy();
  config.simulate.host_issue_us = 11;
  config.simulate.launch_us = 300;
  EXPECT_LT(simulated_ns(changed), simulated_ns(config));
  EXPECT_EQ(without_ns(config, Cause::host_bound), simulated_ns(changed)) << "launches are the host's, too";

  config = changed = cases.one(Cause::unknown).config;
  changed.inject.delay_lane = "";
  EXPECT_EQ(without_ns(config, Cause::unknown), simulated_ns(changed));
}

TEST(Counterfactual, AKnobGainsWhatItsSimulationGainsAndNeedsWhatItsScheduleNeeds) {
  int checked = 0;
  for (const Cause cause : {Cause::late_prefetch, Cause::all_gather_limit, Cause::link_bound,
                            Cause::inefficient_collective, Cause::communicator_serialisation}) {
    CauseCases cases(13);
    const SimulatedRun run(cases.one(cause).config);
    const Counterfactuals found = find_counterfactuals(run.typical, {}, 0);
    EXPECT_TRUE(std::ranges::is_sorted(found.knobs, std::ranges::greater(), &Counterfactual::gain_ms));
    for (const Knob& knob : knobs_of(run.config)) {
      // Other sizes are fitted, not measured; their gain is a prediction.
      if (knob.cause == Cause::inefficient_collective || knob.set == "fsdp.reduce_dtype=bf16") continue;
      const SimulatedRun turned(knob.config);
      const std::int64_t gain = run.view.steps().back().slowest_ns() - turned.view.steps().back().slowest_ns();
      const auto at = std::ranges::find(found.knobs, knob.set, &Counterfactual::set);
      if (at == found.knobs.end()) {
        EXPECT_LE(gain, 0) << knob.set;
        continue;
      }
      EXPECT_EQ(whole(at->gain_ms), gain) << knob.set;
      if (knob.cause == Cause::copy) continue;  // FSDP2 has no flat layout
      ASSERT_TRUE(at->advised);
      EXPECT_EQ(at->more_bytes, turned.setup.memory.peak_occupied_total - run.setup.memory.peak_occupied_total);
      ++checked;
    }
  }
  EXPECT_GE(checked, 5);
}

TEST(Counterfactual, WhatIsLostInTheNoiseIsNotAdvised) {
  CauseCases cases(14);
  config::RunConfig config = cases.one(Cause::late_prefetch).config;
  config.train.steps = 8;
  config.simulate.jitter_pct = 2;
  const SimulatedRun run(config);
  const Counterfactual prefetch = find_counterfactuals(run.typical, {{Cause::late_prefetch, -1}}, 0.5).causes.front();
  EXPECT_TRUE(prefetch.advised);
  EXPECT_EQ(prefetch.interval, IntervalKind::bootstrap);
  EXPECT_LT(prefetch.ci_low, prefetch.gain_ms);
  EXPECT_GT(prefetch.ci_high, prefetch.gain_ms);
  EXPECT_NEAR(prefetch.step_ms + prefetch.gain_ms, run.typical.forecast().slowest_ns() / 1e6, 1e-9);
  EXPECT_FALSE(find_counterfactuals(run.typical, {{Cause::late_prefetch, -1}}, 1000).causes.front().advised);
}

TEST(Counterfactual, AGainWhoseIntervalHasZeroIsNotAdvised) {
  int uncertain = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    CauseCases cases(seed);
    config::RunConfig config = cases.healthy();
    config.train.steps = 6;
    config.simulate.jitter_pct = 30;
    config.simulate.seed = seed;
    const SimulatedRun run(config);
    const Counterfactuals found =
        find_counterfactuals(run.typical, {{Cause::host_bound, -1}, {Cause::link_bound, -1}}, 0);
    for (const auto& those : {found.causes, found.knobs}) {
      for (const Counterfactual& one : those) {
        if (one.gain_ms <= 0 || one.ci_low > 0) continue;
        EXPECT_FALSE(one.advised) << one.gain_ms << " [" << one.ci_low << " to " << one.ci_high << "]";
        ++uncertain;
      }
    }
  }
  EXPECT_GE(uncertain, 2);
}

TEST(Counterfactual, OneMeasuredStepOfAMachineAdvisesNothing) {
  CauseCases cases(15);
  config::RunConfig config = cases.one(Cause::late_prefetch).config;
  config.train.steps = 1;
  const auto advised = [&] {
    const SimulatedRun run(config);
    return find_counterfactuals(run.typical, {{Cause::late_prefetch, -1}}, 0).causes.front().advised;
  };
  EXPECT_FALSE(advised());
  config.device.backend = config::BackendKind::virtual_;  // whose next step is the same
  EXPECT_TRUE(advised());
}

/// Fate of a key in the words of the preset's system.
dialects::Fate fate_of(const config::RunConfig& config, const std::string& key) {
  const config::Field* const field = config::find_field(key);
  return dialects::key_fates(*dialects::dialect_of(config), config, {&field, 1}).front().said.fate;
}

TEST(Counterfactual, NobodyIsToldWhatThePresetsSystemHasNoWordFor) {
  int told = 0, untold = 0;
  for (const std::string& preset : config::fsdp_preset_names()) {
    for (const Cause cause : {Cause::link_bound, Cause::inefficient_collective, Cause::communicator_serialisation}) {
      const config::RunConfig config = testing::settled(testing::with_preset(CauseCases(13).one(cause).config, preset));
      const bool any = dialects::dialect_of(config) == nullptr;
      const SimulatedRun run(config);
      const CauseReport report = report_causes(run.view, run.setup, run_metrics(run.view, run.setup.plan.groups, 1));
      for (const Knob& knob : knobs_of(config)) {
        const std::string key = knob.set.substr(0, knob.set.find('='));
        if (any || fate_of(knob.config, key) != dialects::Fate::lost || fate_of(config, key) == dialects::Fate::lost) {
          ++told;
          continue;
        }
        ++untold;
        for (const Counterfactual& gains : report.knobs) EXPECT_NE(gains.set, knob.set) << preset;
        for (const CauseShare& share : report.causes) {
          EXPECT_THAT(share.advice, ::testing::Not(::testing::HasSubstr(key))) << preset << " " << knob.set;
          if (share.cause == knob.cause && kCauses[share.cause].liftable) {
            EXPECT_EQ(share.advice, "") << preset << " " << knob.set;
          }
        }
      }
    }
  }
  EXPECT_GE(told, 100);
  EXPECT_GE(untold, 90);
}

std::vector<std::string> settings_of(const config::RunConfig& config) {
  std::vector<std::string> all;
  for (const Knob& knob : knobs_of(config)) all.push_back(knob.set);
  return all;
}

TEST(Knobs, AreTheSettingsThatARunCouldTurn) {
  using config::AllGatherLimit;
  using config::Prefetch;
  using ::testing::AllOf;
  using ::testing::Contains;
  using ::testing::Not;
  config::RunConfig c = CauseCases(1).healthy();
  c.mesh = {4, 4};
  c.fsdp.strategy = config::Strategy::full_shard;
  c.fsdp.layout = config::Layout::per_param;
  c.fsdp.forward_prefetch = c.fsdp.backward_prefetch = {Prefetch::Mode::none, 1};
  c.fsdp.all_gather_limit = {AllGatherLimit::Mode::strict, 3, 0};
  c.fsdp.reduce_scatter_buffers = 2;
  c.fsdp.reduce_lane = config::ReduceLane::compute;
  c.fsdp.separate_reduce_scatter_comm = false;
  c.fsdp.wrap = {config::Wrap::Mode::block, 1, 0};
  c.fsdp.reduce_dtype = DType::f32;
  EXPECT_THAT(settings_of(c),
              ::testing::ElementsAre("fsdp.forward_prefetch=implicit", "fsdp.backward_prefetch=pre",
                                     "fsdp.all_gather_limit=strict:4", "fsdp.reduce_scatter_buffers=3",
                                     "fsdp.reduce_lane=reduce_scatter", "fsdp.separate_reduce_scatter_comm=true",
                                     "fsdp.wrap=blocks:2", "fsdp.layout=flat", "fsdp.strategy=shard_grad_op",
                                     "fsdp.reduce_dtype=bf16"));
  for (const Knob& knob : knobs_of(c)) {
    // Turned, it is no knob any more, or has gone on by one.
    EXPECT_THAT(settings_of(knob.config), Not(Contains(knob.set))) << knob.set;
  }
  EXPECT_EQ(knobs_of(c)[0].config.fsdp.forward_prefetch, (Prefetch{Prefetch::Mode::implicit, 1}));
  EXPECT_EQ(knobs_of(c)[1].config.fsdp.backward_prefetch, (Prefetch{Prefetch::Mode::pre, 1}));
  EXPECT_EQ(knobs_of(c)[2].config.fsdp.all_gather_limit.count, 4);
  EXPECT_EQ(knobs_of(c)[3].config.fsdp.reduce_scatter_buffers, 3);
  EXPECT_EQ(knobs_of(c)[2].cause, Cause::all_gather_limit);
  EXPECT_EQ(knobs_of(c)[5].cause, Cause::communicator_serialisation);
  c.fsdp.separate_reduce_scatter_comm = true;
  EXPECT_EQ(knobs_of(c)[5].cause, Cause::contention);
  EXPECT_EQ(knobs_of(c)[5].set, "fsdp.separate_reduce_scatter_comm=false");
  c.fsdp.backward_prefetch.mode = Prefetch::Mode::post;
  c.fsdp.forward_prefetch.mode = Prefetch::Mode::implicit;
  c.fsdp.all_gather_limit = {AllGatherLimit::Mode::fsdp1_queue, 1, 0};
  c.fsdp.strategy = config::Strategy::hybrid_shard;
  EXPECT_THAT(settings_of(c),
              AllOf(Contains("fsdp.backward_prefetch=pre"), Not(Contains("fsdp.forward_prefetch=implicit")),
                    Contains("fsdp.all_gather_limit=fsdp1_queue:2"), Contains("fsdp.strategy=hybrid_shard_grad_op")));
  c.fsdp.all_gather_limit = {AllGatherLimit::Mode::fsdp2_event, 2, 0};
  const std::vector<Knob> of_event = knobs_of(c);
  const auto unlimited = std::ranges::find(of_event, "fsdp.all_gather_limit=unlimited", &Knob::set);
  ASSERT_NE(unlimited, of_event.end());
  EXPECT_EQ(unlimited->config.fsdp.all_gather_limit, (AllGatherLimit{AllGatherLimit::Mode::unlimited, 2, 0}));
  c.fsdp.all_gather_limit = {AllGatherLimit::Mode::unlimited, 2, 0};
  c.fsdp.backward_prefetch.mode = Prefetch::Mode::pre;
  c.fsdp.reduce_scatter_buffers = 0;
  c.fsdp.reduce_lane = config::ReduceLane::reduce_scatter;
  c.fsdp.wrap = {config::Wrap::Mode::blocks, 2, 0};
  c.fsdp.layout = config::Layout::flat;
  c.fsdp.strategy = config::Strategy::shard_grad_op;
  c.fsdp.reduce_dtype = DType::bf16;
  EXPECT_THAT(settings_of(c), ::testing::ElementsAre("fsdp.separate_reduce_scatter_comm=false"));
  c.mesh.expert = 2;
  c.fsdp.layout = config::Layout::per_param;
  EXPECT_THAT(settings_of(c), Not(Contains("fsdp.layout=flat")));
  c.fsdp.strategy = config::Strategy::no_shard;
  EXPECT_THAT(knobs_of(c), ::testing::IsEmpty());
}

TEST(Knobs, LiftedIsWhatACauseIsWithout) {
  using config::Prefetch;
  config::RunConfig c = CauseCases(1).healthy();
  c.fsdp.forward_prefetch = c.fsdp.backward_prefetch = {Prefetch::Mode::none, 1};
  c.fsdp.reduce_scatter_buffers = 2;
  c.fsdp.reduce_lane = config::ReduceLane::compute;
  c.fsdp.separate_reduce_scatter_comm = false;
  c.inject.host_sync_after_layer = 3;
  c.mesh.expert_sync = true;
  EXPECT_EQ(lifted(Cause::late_prefetch, c).fsdp.forward_prefetch, (Prefetch{Prefetch::Mode::implicit, 1}));
  EXPECT_EQ(lifted(Cause::late_prefetch, c).fsdp.backward_prefetch, (Prefetch{Prefetch::Mode::pre, 1}));
  EXPECT_EQ(lifted(Cause::all_gather_limit, c).fsdp.all_gather_limit,
            (config::AllGatherLimit{config::AllGatherLimit::Mode::unlimited, 2, 0}));
  EXPECT_EQ(lifted(Cause::reduce_scatter_buffers, c).fsdp.reduce_scatter_buffers, 0);
  EXPECT_TRUE(lifted(Cause::communicator_serialisation, c).fsdp.separate_reduce_scatter_comm);
  EXPECT_EQ(lifted(Cause::serialised, c).fsdp.reduce_lane, config::ReduceLane::reduce_scatter);
  EXPECT_EQ(lifted(Cause::host_sync, c).inject.host_sync_after_layer, -1);
  EXPECT_TRUE(lifted(Cause::host_sync, c).mesh.expert_sync) << "without experts it means nothing";
  c.mesh.expert = 2;
  EXPECT_FALSE(lifted(Cause::host_sync, c).mesh.expert_sync);
  c.fsdp.forward_prefetch = {Prefetch::Mode::implicit, 3};
  c.fsdp.backward_prefetch = {Prefetch::Mode::post, 1};
  EXPECT_EQ(lifted(Cause::late_prefetch, c).fsdp.forward_prefetch.depth, 3) << "it stays as it is";
  EXPECT_EQ(lifted(Cause::late_prefetch, c).fsdp.backward_prefetch.mode, Prefetch::Mode::post);
}

TEST(Counterfactual, SaysWhatItIsOfAndWhetherItsMessagesAreGuesses) {
  CauseCases cases(16);
  const testing::CauseCase slow = cases.one(Cause::straggler);
  const SimulatedRun run(slow.config);
  const Counterfactuals found =
      find_counterfactuals(run.typical, {{Cause::straggler, slow.late_rank}, {Cause::late_prefetch, -1}}, 0);
  ASSERT_EQ(found.causes.size(), 2U);
  EXPECT_EQ(found.causes[0].cause, Cause::straggler);
  EXPECT_EQ(found.causes[0].late_rank, slow.late_rank);
  EXPECT_FALSE(found.causes[1].adds_collectives) << "the same messages in another order";
  EXPECT_EQ(found.causes[0].interval, IntervalKind::one_value);
  EXPECT_EQ(found.causes[0].ci_low, found.causes[0].gain_ms);
  for (const Counterfactual& knob : found.knobs) {
    EXPECT_TRUE(!knob.set.starts_with("fsdp.strategy=") || !knob.adds_collectives) << "fewer of the same";
  }
  config::RunConfig coarser = run.config;
  coarser.fsdp.wrap = {config::Wrap::Mode::blocks, 2, 0};
  EXPECT_TRUE(find_gain(run.typical, coarser, 0).adds_collectives) << "larger ones";
  EXPECT_EQ(find_gain(run.typical, run.config, 0).gain_ms, 0);
  EXPECT_FALSE(find_gain(run.typical, run.config, 0).advised);
  config::RunConfig healed = run.config;
  healed.inject.slow_rank = -1;  // the schedule is the same, and so are the times that were measured
  EXPECT_EQ(find_gain(run.typical, healed, 0).gain_ms, 0);
  config::RunConfig scattered = slow.config;
  scattered.train.steps = 6;
  scattered.simulate.jitter_pct = 3;
  const Counterfactuals in_jitter = find_counterfactuals(SimulatedRun(scattered).typical, {}, 0);
  ASSERT_FALSE(in_jitter.knobs.empty());
  EXPECT_TRUE(std::ranges::is_sorted(in_jitter.knobs, std::ranges::greater(), &Counterfactual::gain_ms));
  const SimulatedRun same(scattered);
  int advised = 0;
  for (const Counterfactual& gain : in_jitter.knobs) {
    const std::vector<Knob> knobs = knobs_of(same.config);
    const auto knob = std::ranges::find(knobs, gain.set, &Knob::set);
    ASSERT_NE(knob, knobs.end());
    EXPECT_EQ(gain.cause, knob->cause);
    EXPECT_EQ(gain.interval, IntervalKind::bootstrap);
    // The least and the most of as many draws as an interval of 95 % has.
    const schedule::Training other = schedule::make_training(knob->config, same.setup.sizes).steady();
    double low = gain.gain_ms, high = gain.gain_ms;
    for (int draw = 0; draw < clock::Uncertainty::kDraws; ++draw) {
      clock::Changes changes;
      changes.draw = draw;
      const double one = same.typical.forecast(same.typical.training(), changes).slowest_ns() / 1e6 -
                         same.typical.forecast(other, changes).slowest_ns() / 1e6;
      low = std::min(low, one);
      high = std::max(high, one);
    }
    const Counterfactual asked = find_gain(same.typical, knob->config, 0);
    EXPECT_EQ(asked.gain_ms, gain.gain_ms);
    for (const Counterfactual& told : {gain, asked}) {
      EXPECT_EQ(told.ci_low, low);
      EXPECT_EQ(told.ci_high, high);
      EXPECT_EQ(told.advised, gain.advised);
    }
    EXPECT_EQ(gain.more_bytes.has_value(), gain.advised);
    advised += gain.advised ? 1 : 0;
  }
  EXPECT_GT(advised, 0);
  config::RunConfig fewer = run.config;
  fewer.fsdp.strategy = config::Strategy::shard_grad_op;
  EXPECT_FALSE(find_gain(run.typical, fewer, 0).adds_collectives);
  EXPECT_TRUE(find_gain(SimulatedRun(fewer).typical, run.config, 0).adds_collectives);
}

/// Knows that reductions beside gathers take half as long again, and that nothing tells what units of two blocks take.
class OtherMachine final : public clock::Machine {
 public:
  std::vector<plan::ModuleSizes> sizes(const config::RunConfig& /*config*/) const override { return {}; }
  clock::LeastTimes least_times(const schedule::Training& /*training*/) const override { return {}; }
  bool in_doubt() const override { return true; }
  std::optional<double> doubt(const schedule::Training& /*training*/, double gain) const override {
    return gain > 0 ? 0.25 : 0;
  }
  clock::Forecast forecast(const schedule::Training& training, const clock::Changes& /*changes*/) const override {
    const config::Fsdp& fsdp = training.config.fsdp;
    if (fsdp.wrap.mode == config::Wrap::Mode::blocks) throw ConfigError("units of two blocks");
    if (fsdp.reduce_dtype == DType::bf16) return {{60}, {}};
    return {{fsdp.separate_reduce_scatter_comm ? 150.0 : 100.0}, {}};
  }
};

TEST(Counterfactual, AScheduleThatIsBuiltAnewTakesWhatTheRunsMachineSays) {
  CauseCases cases(13);
  config::RunConfig config = cases.one(Cause::communicator_serialisation).config;
  config.train.steps = 3;
  config.simulate.jitter_pct = 1;
  const SimulatedRun run(config);
  const std::vector<Asked> asked{{Cause::communicator_serialisation, -1}, {Cause::link_bound, -1}};
  const auto with = [&](const clock::Machine* machine) {
    return find_counterfactuals(run.typical, asked, 0, {.clock = machine});
  };
  const auto gains = [](const Counterfactuals& found, const std::string& set) {
    return std::ranges::find(found.knobs, set, &Counterfactual::set) != found.knobs.end();
  };
  const OtherMachine machine;
  const Counterfactuals replayed = with(nullptr), known = with(&machine);
  EXPECT_TRUE(replayed.causes[0].advised);
  EXPECT_FALSE(known.causes[0].advised);
  const double typical_ms = replayed.causes[0].step_ms + replayed.causes[0].gain_ms;
  EXPECT_NEAR(known.causes[0].step_ms, 1.5 * typical_ms, 1e-9 * typical_ms);
  EXPECT_LT(known.causes[0].ci_high, 0) << "and is so in every draw of steps";
  EXPECT_EQ(known.causes[1].step_ms, replayed.causes[1].step_ms) << "the same schedule is replayed";
  EXPECT_TRUE(gains(replayed, "fsdp.separate_reduce_scatter_comm=true"));
  EXPECT_FALSE(gains(known, "fsdp.separate_reduce_scatter_comm=true"));
  EXPECT_FALSE(gains(known, "fsdp.wrap=blocks:2")) << "of which the machine knows nothing";
  const auto bf16 = std::ranges::find(known.knobs, "fsdp.reduce_dtype=bf16", &Counterfactual::set);
  ASSERT_NE(bf16, known.knobs.end());
  EXPECT_NEAR(bf16->gain_ms, 0.4 * typical_ms, 1e-9 * typical_ms);
  EXPECT_NEAR(bf16->gain_ms - bf16->ci_low, 0.25 * 0.6 * typical_ms, 0.03 * typical_ms)
      << "the machine's doubt of 60 %";
  EXPECT_GT(bf16->ci_high - bf16->gain_ms, 0.25 * 0.6 * typical_ms);
}

TEST(Counterfactual, AKnobThatRunsOutOfMemoryIsNoAdvice) {
  CauseCases cases(13);
  config::RunConfig config = cases.one(Cause::link_bound).config;
  const SimulatedRun run(config);
  const auto strategy = [&](const MachineFacts& machine) -> const Counterfactual* {
    static Counterfactuals found;
    found = find_counterfactuals(run.typical, {}, 0, machine);
    const auto at = std::ranges::find(found.knobs, "fsdp.strategy=shard_grad_op", &Counterfactual::set);
    return at == found.knobs.end() ? nullptr : &*at;
  };
  const auto needs = [&](std::optional<std::int64_t> sharded, std::optional<std::int64_t> whole) {
    return MachineFacts{.peak_bytes = [=](const schedule::Training& training) {
      return training.config.fsdp.strategy == config::Strategy::full_shard ? sharded : whole;
    }};
  };
  ASSERT_NE(strategy({}), nullptr);
  ASSERT_NE(strategy(needs(100, 130)), nullptr);
  EXPECT_EQ(strategy(needs(100, 130))->more_bytes, 30);
  EXPECT_EQ(strategy(needs(100, std::nullopt)), nullptr);
  ASSERT_NE(strategy(needs(std::nullopt, std::nullopt)), nullptr) << "as does the run itself";
}

TEST(Counterfactual, NoKnobIsRefused) {
  config::RunConfig config = config::load_profile(config::find_profile("quickstart-moe"), {"mesh.expert=2"});
  config::validate(config);
  const auto wraps = [](const Knob& knob) { return knob.set == "fsdp.wrap=blocks:2"; };
  EXPECT_TRUE(std::ranges::none_of(knobs_of(config), wraps)) << "experts need units of one block";
  EXPECT_FALSE(knobs_of(config).empty());
  config = config::load_profile(config::find_profile("quickstart"), {});
  config::validate(config);
  EXPECT_TRUE(std::ranges::any_of(knobs_of(config), wraps));
}

TEST(Counterfactual, OneEndGoesAsFarAsComputationMayLoseBesideCollectives) {
  CauseCases cases(11);
  const SimulatedRun run(cases.one(Cause::late_prefetch).config);
  const TypicalStep contended(run.view, run.setup, 0, true, clock::most_slowed_computation);
  const std::vector<Asked> asked{{Cause::late_prefetch, -1}, {Cause::link_bound, -1}};
  const Counterfactuals sure = find_counterfactuals(run.typical, asked, 0),
                        told = find_counterfactuals(run.typical, asked, 0, {}, &contended);
  const Counterfactual &prefetch = told.causes[0], &link = told.causes[1];
  EXPECT_EQ(prefetch.gain_ms, sure.causes[0].gain_ms);
  EXPECT_EQ(prefetch.ci_high, prefetch.gain_ms);
  EXPECT_EQ(prefetch.interval, IntervalKind::range);
  EXPECT_LT(prefetch.ci_low, prefetch.gain_ms - 0.01 * prefetch.step_ms)
      << "what is prefetched runs beside computation";
  // At most 2/5 of the time in which both run now, and that is no longer than what the step gains.
  EXPECT_GT(prefetch.ci_low, 0.5 * prefetch.gain_ms);
  EXPECT_EQ(link.ci_low, link.gain_ms) << "no other schedule";
  EXPECT_EQ(link.interval, IntervalKind::one_value);
  // And the other way round: a schedule that takes computation away from beside collectives may gain more.
  config::RunConfig prefetching = run.config;
  for (const Knob& knob : knobs_of(run.config)) {
    if (knob.cause == Cause::late_prefetch) prefetching = knob.config;
  }
  const SimulatedRun fast(prefetching);
  const TypicalStep fast_contended(fast.view, fast.setup, 0, true, clock::most_slowed_computation);
  EXPECT_LT(
      fast_contended.forecast(run.setup.steady()).slowest_ns() /
          fast_contended.forecast(fast.setup.steady()).slowest_ns(),
      fast.typical.forecast(run.setup.steady()).slowest_ns() / fast.typical.forecast(fast.setup.steady()).slowest_ns());
  // The run's own step is what it is, however it is taken apart.
  const double own =
      contended.forecast(contended.training()).slowest_ns() / run.typical.forecast(run.typical.training()).slowest_ns();
  EXPECT_NEAR(own, 1, 2e-3);
}

}  // namespace
}  // namespace fsdpbench::account
