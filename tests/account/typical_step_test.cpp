#include "account/typical_step.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

#include "account/cause_report.h"
#include "support/cause_cases.h"
#include "support/simulated_run.h"

namespace fsdpbench::account {
namespace {

using testing::CauseCases;
using testing::SimulatedRun;

std::vector<config::RunConfig> conditions() {
  CauseCases cases(3);
  std::vector<config::RunConfig> all(8, cases.healthy());
  all[1].inject.slow_rank = 1;
  all[1].inject.slow_rank_factor = 1.001;
  all[2].inject.host_delay_us = 1700;
  all[3].simulate.host_issue_us = 11;
  all[3].simulate.launch_us = 13;
  all[3].simulate.wake_us = 7;
  all[4].inject.delay_lane = "copy";
  all[4].inject.delay_us = 5000;
  all[4].fsdp.layout = config::Layout::per_param;
  all[5].fsdp.separate_reduce_scatter_comm = true;  // transfers share the link
  *all[5].emulate.link_gb_per_s /= 3;
  all[6].inject.host_sync_after_layer = 1;
  all[6].fsdp.all_gather_limit = {config::AllGatherLimit::Mode::strict, 1, 0};
  all[7].inject.slow_link_rank = 1;
  all[7].inject.slow_link_factor = 3;
  return all;
}

TEST(TypicalStep, WithoutJitterIsTheSimulatedStepToTheNanosecond) {
  for (const config::RunConfig& config : conditions()) {
    const SimulatedRun run(config);
    EXPECT_TRUE(run.typical.repeats());
    const clock::Forecast step = run.typical.forecast();
    const StepRecords& last = run.view.steps().back();
    EXPECT_EQ(static_cast<std::int64_t>(step.slowest_ns()), last.slowest_ns());
    for (int rank = 0; rank < last.ranks(); ++rank) {
      const trace::RankTrace& mine = step.traces[static_cast<std::size_t>(rank)];
      const std::int64_t shift = last.window(rank).begin_ns - mine.steps.front().begin_ns;
      for (std::size_t i = 0; i < mine.records.size(); ++i) {
        if (mine.records[i].end_ns == 0) continue;
        ASSERT_EQ(mine.records[i].end_ns + shift, last.of(rank)[i].end_ns) << "rank " << rank << ", op " << i;
      }
    }
  }
}

TEST(TypicalStep, JitterIsWhatAStepTookBeyondItAndNoCauseHasIt) {
  CauseCases cases(4);
  config::RunConfig config = cases.healthy();
  config.train.steps = 15;
  const SimulatedRun without(config);
  config.simulate.pause_chance = 0.02;
  config.simulate.pause_us = 4000;
  const SimulatedRun run(config);
  EXPECT_FALSE(run.typical.repeats());
  EXPECT_EQ(run.typical.forecast().slowest_ns(), without.typical.forecast().slowest_ns());
  const RunMetrics metrics = run_metrics(run.view, run.setup.plan.groups, 1);
  const CauseReport report = report_causes(run.view, run.setup, metrics);
  ASSERT_TRUE(report.jitter.has_value());
  EXPECT_GT(report.jitter->ms, 1);
  EXPECT_NEAR(report.jitter->ms, metrics.step_ms.median - report.typical_ms, 1e-9);
  EXPECT_NEAR(report.jitter->ms, report.jitter->computation_ms + report.jitter->stalled_ms, 1e-9);
  EXPECT_DOUBLE_EQ(report.jitter->share_pct, 100 * report.jitter->ms / report.step_ms);
  double sum = report.small_ms + report.jitter->stalled_ms;
  for (const CauseShare& cause : report.causes) sum += cause.ms;
  EXPECT_NEAR(sum, metrics.exposed_comm_ms + metrics.exposed_copy_ms + metrics.idle_ms, 1e-9);
  EXPECT_TRUE(report.late_ranks.empty());
  EXPECT_TRUE(testing::found_causes(report).empty());
}

TEST(CauseReport, TheExampleTellsWhatRepeatsAndWhatIsJitter) {
  CauseCases cases(4);
  config::RunConfig config = cases.one(Cause::link_bound).config;
  config.train.steps = 9;
  config.simulate.jitter_pct = 5;
  const SimulatedRun run(config);
  const RunMetrics metrics = run_metrics(run.view, run.setup.plan.groups, 1);
  const CauseReport report = report_causes(run.view, run.setup, metrics);
  const auto step = std::ranges::find(run.view.steps(), report.example_step, &StepRecords::number);
  const std::vector<Stall> stalls =
      find_stalls(*step, run.setup.plan.groups, config.emulate.link(),
                  schedule::prefetches_backward(run.setup.policy.fsdp), report.example_place);
  const std::vector<ToldStall> told = report.typical_stalls.value().tell(*step, report.example_place, stalls);
  ASSERT_EQ(report.example.size(), told.size());
  for (std::size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(report.example[i].jitter, told[i].jitter);
    EXPECT_EQ(report.example[i].stall.time.begin, told[i].stall.time.begin);
    EXPECT_EQ(report.example[i].stall.time.end, told[i].stall.time.end);
  }
  EXPECT_TRUE(std::ranges::any_of(report.example, &ToldStall::jitter));
  EXPECT_FALSE(std::ranges::all_of(report.example, &ToldStall::jitter));
}

TEST(CauseReport, WhatIsLostInTheNoiseOfTheStepsIsNoGain) {
  CauseCases cases(11);
  const SimulatedRun run(cases.one(Cause::late_prefetch).config);
  RunMetrics metrics = run_metrics(run.view, run.setup.plan.groups, 1);
  const auto knobs = [&](std::optional<double> noise_pct) {
    metrics.aa_noise_pct = noise_pct;
    return report_causes(run.view, run.setup, metrics).knobs.size();
  };
  EXPECT_GT(knobs(std::nullopt), 0U);
  EXPECT_EQ(knobs(0), knobs(std::nullopt));
  EXPECT_EQ(knobs(1000), 0U);
}

TEST(TypicalStep, ALateRankStaysLateAmongJitter) {
  CauseCases cases(5);
  config::RunConfig config = cases.healthy();
  config.train.steps = 6;
  config.simulate.jitter_pct = 3;
  EXPECT_TRUE(SimulatedRun(config).typical.late_ranks().empty());
  config.inject.slow_rank = 1;
  config.inject.slow_rank_factor = 1.2;
  const SimulatedRun slow(config);
  ASSERT_EQ(slow.typical.late_ranks().size(), 1U);
  EXPECT_EQ(slow.typical.late_ranks()[0].rank, 1);
  EXPECT_TRUE(slow.typical.late_ranks()[0].work.has_value());
}

TEST(TypicalStep, ASlowLinkIsNoLateRank) {
  CauseCases cases(6);
  config::RunConfig config = cases.healthy();
  config.mesh = {4, 2, 2};
  config.fsdp.strategy = config::Strategy::hybrid_shard;
  config.inject.slow_link_rank = 2;
  config.inject.slow_link_factor = 3;
  const SimulatedRun run(config);
  ASSERT_FALSE(run.typical.late_ranks().empty());
  const LateRank* most = nullptr;
  for (const LateRank& late : run.typical.late_ranks()) {
    EXPECT_FALSE(late.work || late.issue);
    ASSERT_TRUE(late.link.has_value());
    if (most == nullptr || late.link->excess_ms.median > most->link->excess_ms.median) most = &late;
  }
  EXPECT_EQ(most->rank, 2);  // both of its groups are slow, of every other rank one
}

TEST(TypicalStep, ASlowLinkWithinOneGroupIsTold) {
  CauseCases cases(7);
  config::RunConfig config = cases.healthy();
  config.mesh.ranks = 4;
  config.inject.slow_link_rank = 2;
  config.inject.slow_link_factor = 4;
  for (const double jitter_pct : {0.0, 3.0}) {
    config.train.steps = jitter_pct > 0 ? 6 : 3;
    config.simulate.jitter_pct = jitter_pct;
    const SimulatedRun run(config);
    ASSERT_EQ(run.typical.late_ranks().size(), 1U);
    const LateRank& late = run.typical.late_ranks().front();
    EXPECT_EQ(late.rank, 2);
    EXPECT_TRUE(late.link && !late.work && !late.issue);
    RunMetrics metrics = run_metrics(run.view, run.setup.plan.groups, 1);
    const std::vector<CauseShare> found = testing::found_causes(report_causes(run.view, run.setup, metrics));
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found.front().cause, Cause::slow_link);
    EXPECT_EQ(found.front().late_rank, 2);
    const auto shard = static_cast<std::size_t>(plan::Group::shard);
    EXPECT_GT(metrics.ranks[2].transfer_ms[shard], 2 * metrics.ranks[0].transfer_ms[shard]);
    metrics.aa_noise_pct = 1000;
    EXPECT_EQ(report_causes(run.view, run.setup, metrics).late_ranks.empty(), jitter_pct > 0) << "lost in the noise";
  }
}

/// Simulation of many ranks, of which it records some.
struct ManyRanks {
  explicit ManyRanks(const std::function<void(config::RunConfig&)>& change) : config(CauseCases(8).healthy()) {
    config.mesh.ranks = engine::kMostRecordedRanks + 2;
    config.trace.ranks = 3;
    change(config);
    config = testing::settled(config);
    setup.emplace(engine::set_up(config));
    run = engine::simulate(*setup, engine::simulated_times(*setup, nullptr));
  }
  CauseReport report() const {
    const RunView view(setup->schedules, run.traces, run.slowest_ns);
    return report_causes(view, *setup, run_metrics(view, setup->plan.groups, 1));
  }
  config::RunConfig config;
  std::optional<engine::Setup> setup;
  engine::Measurement run;
};

TEST(TypicalStep, OneRankStandsForManyThatAreAlike) {
  const ManyRanks few([](config::RunConfig& c) { c.fsdp.backward_prefetch.mode = config::Prefetch::Mode::none; });
  ASSERT_EQ(few.run.traces.size(), 3U);
  const CauseReport report = few.report();
  EXPECT_EQ(report.no_typical_because, "");
  ASSERT_TRUE(report.jitter.has_value());
  EXPECT_NEAR(report.typical_ms, report.step_ms, 1e-6);

  const ManyRanks all([](config::RunConfig& c) {
    c.fsdp.backward_prefetch.mode = config::Prefetch::Mode::none;
    c.trace.ranks = 0;
  });
  const CauseReport whole = all.report();
  ASSERT_EQ(report.causes.size(), whole.causes.size());
  for (std::size_t i = 0; i < whole.causes.size(); ++i) {
    EXPECT_EQ(report.causes[i].cause, whole.causes[i].cause);
    EXPECT_NEAR(report.causes[i].ms, whole.causes[i].ms, 1e-6);
    ASSERT_TRUE(report.causes[i].without && whole.causes[i].without);
    EXPECT_NEAR(report.causes[i].without->gain_ms, whole.causes[i].without->gain_ms, 1e-6);
    EXPECT_EQ(report.causes[i].advice, whole.causes[i].advice);
  }
}

TEST(TypicalStep, WhereTheRecordedRanksDoNotSufficeItSaysWhy) {
  const CauseReport differ = ManyRanks([](config::RunConfig& c) {
                               c.inject.slow_rank = 1;
                               c.inject.slow_rank_factor = 1.5;
                             }).report();
  EXPECT_NE(differ.no_typical_because.find("the 3 recorded ranks differ"), std::string::npos)
      << differ.no_typical_because;
  EXPECT_FALSE(differ.jitter || differ.typical_stalls);
  EXPECT_FALSE(differ.causes.empty());
  ManyRanks waited([](config::RunConfig& c) {
    c.trace.ranks = 0;
    c.inject.slow_rank = 40;
    c.inject.slow_rank_factor = 1.5;
  });
  waited.run.traces.resize(3);
  const CauseReport report = waited.report();
  EXPECT_NE(report.no_typical_because.find("for ranks that were not recorded"), std::string::npos)
      << report.no_typical_because;
  EXPECT_FALSE(report.jitter || report.typical_stalls);
}

/// Own times of links are emulated; real links show none.
TEST(TypicalStep, KnowsLinksOnlyWhereTheyTell) {
  CauseCases cases(9);
  SimulatedRun run(cases.healthy());
  EXPECT_TRUE(run.typical.knows_links());
  for (trace::RankTrace& trace : run.measurement.traces) {
    for (trace::Record& record : trace.records) record.link_ns = 0;
  }
  EXPECT_FALSE(TypicalStep(RunView(run.setup.schedules, run.measurement.traces), run.setup, 0.1).knows_links());
}

}  // namespace
}  // namespace fsdpbench::account
