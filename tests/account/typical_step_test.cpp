#include "account/typical_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "account/cause_report.h"
#include "account/step_breakdown.h"
#include "support/cause_cases.h"
#include "support/hand_run.h"
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
  for (const CauseShare& cause : report.causes) EXPECT_DOUBLE_EQ(cause.share_pct, 100 * cause.ms / report.step_ms);
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

TEST(TypicalStep, OneRankThatStandsForManyBeginsAsLate) {
  const CauseReport report = ManyRanks([](config::RunConfig& c) {
                               c.fsdp.layout = config::Layout::per_param;
                               c.inject.delay_lane = "copy";
                               c.inject.delay_us = 5000;
                             }).report();
  EXPECT_NEAR(report.typical_ms, report.step_ms, 1e-6);
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

/// Costs of a simulated step by hand, in nanoseconds, and what of it is left out.
struct Costs {
  std::function<bool(const schedule::Op&)> nothing = [](const schedule::Op&) { return false; };  ///< ops that take none
  double issue = 700, launch = 1300, gap = 110, wake = 170;
  double lag = 0;          ///< of each start on the lane of copies
  double latency = 4'000;  ///< of a collective
  bool links_apart = false;
  double factor = 1;
};

clock::OpTimes times_by_hand(const engine::Setup& setup, clock::OpTimes times, const Costs& costs) {
  for (std::size_t s = 0; s < times.steps.size(); ++s) {
    const std::vector<schedule::Op>& ops = setup.schedules.steps[s].ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      clock::OpCost& cost = times.steps[s][i];
      cost = {.fabric = costs.links_apart && ops[i].kind == schedule::OpKind::reduce_scatter ? 1 : 0};
      if (!ops[i].has_work() || costs.nothing(ops[i])) continue;
      const double ns = costs.factor * static_cast<double>(20'000 + 1'000 * (i % 7));
      (ops[i].is_collective() ? cost.link_ns : cost.run_ns) = ns;
      if (ops[i].is_collective()) cost.run_ns = costs.factor * costs.latency;
    }
  }
  times.host = {.issue_ns = costs.issue, .launch_ns = costs.launch, .gap_ns = costs.gap, .wake_ns = costs.wake};
  times.delays.fixed_ns[index_of(Lane::copy)] = costs.lag;
  return times;
}

clock::Changes without(clock::Part part) {
  clock::Changes changes;
  changes.without = {part};
  return changes;
}

struct ByHand {
  ByHand(const config::RunConfig& config, const Costs& costs)
      : run(config, [&](const engine::Setup& setup, clock::OpTimes times) {
          return times_by_hand(setup, std::move(times), costs);
        }) {}
  std::int64_t step_ns() const { return run.view.steps().back().slowest_ns(); }
  std::int64_t forecast_ns(const clock::Changes& changes) const {
    return std::llround(run.typical.forecast(run.typical.training(), changes).slowest_ns());
  }
  SimulatedRun run;
};

config::RunConfig small_step() {
  config::RunConfig config = testing::splittable_decoder();
  config.emulate.compute_tflops = 0.001;
  config.emulate.link_gb_per_s = 1;
  config.train.steps = 2;
  config.fsdp.layout = config::Layout::per_param;
  return config;
}

/// Without a part of it the step is the one that is simulated with that part costing nothing.
TEST(TypicalStep, WithoutAPartIsTheStepThatIsSimulatedWithoutIt) {
  using clock::Part;
  using schedule::Op;
  using schedule::OpKind;
  config::RunConfig offloaded = small_step(), twice = small_step(), split = small_step(), experts = small_step(),
                    apart = small_step();
  offloaded.fsdp.cpu_offload = config::CpuOffload::all;
  twice.train.accumulate = 2;
  split.mesh.tensor = 2;
  experts.model.experts = 4;
  experts.model.active_experts = 2;
  experts.mesh.expert = 2;
  apart.fsdp.separate_reduce_scatter_comm = true;
  Costs no_copies, no_pcie, no_updates, no_ends, no_ends_once, no_sums, no_rows, no_host, no_gaps, apart_costs;
  no_copies.nothing = [](const Op& op) { return classify(op) == OpClass::copy && !op.is_transfer(); };
  no_pcie.nothing = [](const Op& op) { return op.is_transfer(); };
  no_updates.nothing = [](const Op& op) { return op.lane == Lane::host_compute; };
  // Gathers of units 0 and 1 in the first forward, and their reductions in the last backward.
  const auto is_end = [](const Op& op, int last) {
    if (!op.is_collective() || op.unit > 1) return false;
    return op.kind == OpKind::all_gather ? op.phase == schedule::Phase::forward && op.micro == 0 : op.micro == last;
  };
  no_ends.nothing = [&](const Op& op) { return is_end(op, 1); };
  no_ends_once.nothing = [&](const Op& op) { return is_end(op, 0); };
  no_sums.nothing = [](const Op& op) { return op.exchanges_parts() && !op.exchanges_rows(); };
  no_rows.nothing = [](const Op& op) { return op.exchanges_rows(); };
  no_host.issue = no_host.launch = 0;
  no_gaps.gap = no_gaps.wake = 0;
  apart_costs.links_apart = true;
  apart_costs.latency = no_rows.latency = 0;  // a part of a shared link's time otherwise
  struct Case {
    Part part;
    config::RunConfig config;
    Costs without;
    Costs with{};
  };
  for (const Case& one :
       {Case{Part::copies, offloaded, no_copies}, Case{Part::pcie, offloaded, no_pcie},
        Case{Part::host_update, offloaded, no_updates}, Case{Part::step_ends, twice, no_ends},
        Case{Part::step_ends, small_step(), no_ends_once}, Case{Part::tensor_group, split, no_sums},
        Case{Part::expert_rows, experts, no_rows, {.latency = 0}}, Case{Part::host, small_step(), no_host},
        Case{Part::lane_lags, small_step(), no_gaps}, Case{Part::lane_lags, small_step(), no_gaps, {.lag = 9'000}},
        Case{Part::link_sharing, apart, apart_costs, {.latency = 0}}}) {
    SCOPED_TRACE(static_cast<int>(one.part));
    const ByHand run(one.config, one.with), lacking(one.config, one.without);
    EXPECT_EQ(run.forecast_ns({}), run.step_ns());
    EXPECT_EQ(run.forecast_ns(without(one.part)), lacking.step_ns());
    EXPECT_LT(lacking.step_ns(), run.step_ns());
  }
}

TEST(TypicalStep, OpsMayTakeOtherTimesEach) {
  const ByHand run(small_step(), {}), half(small_step(), {.factor = 0.5});
  const std::size_t ops = run.run.typical.training().schedules.steady().ops.size();
  clock::Changes changes;
  changes.op_factor.assign(ops, 0.5);
  EXPECT_EQ(run.forecast_ns(changes), half.step_ns());
  changes.op_factor.pop_back();
  EXPECT_EQ(run.forecast_ns(changes), run.step_ns()) << "of another step";
}

/// Rank 0 computes 1.5 times as long, begins late and is issued late, or has a slow link; the others are alike. Beside
/// a slow group there is one that is not.
TEST(TypicalStep, ALateRankTakesWhatTheOthersTake) {
  const auto run = [](bool late, bool link) {
    config::RunConfig config = small_step();
    if (link) config.mesh = {4, 2, 2};
    if (link) config.fsdp.strategy = config::Strategy::hybrid_shard;
    return SimulatedRun(config, [&](const engine::Setup& setup, clock::OpTimes times) {
      times = times_by_hand(setup, std::move(times), {.latency = 0});
      times.delays.by_rank_ns.resize(4);
      times.issue = clock::OpTimes::Issue::given;
      for (const schedule::Schedule& schedule : setup.schedules.steps) {
        times.given_issue.emplace_back(4, std::vector<std::int64_t>(schedule.ops.size(), 900));
      }
      if (late && link) times.link_factor = {3, 1, 1, 1};
      if (!late || link) return times;
      times.compute_factor = {1.5, 1, 1, 1};
      times.delays.by_rank_ns[0][index_of(Lane::copy)] = 2'500;
      for (auto& by_rank : times.given_issue) std::ranges::fill(by_rank[0], 2'100);
      return times;
    });
  };
  for (const bool link : {false, true}) {
    const SimulatedRun late = run(true, link), alike = run(false, link);
    clock::Changes changes;
    changes.late_rank = 0;
    EXPECT_EQ(std::llround(late.typical.forecast(late.typical.training(), changes).slowest_ns()),
              alike.view.steps().back().slowest_ns());
    EXPECT_LT(alike.view.steps().back().slowest_ns(), late.view.steps().back().slowest_ns());
    const auto& found = late.typical.late_ranks();
    const auto first = std::ranges::find(found, 0, &LateRank::rank);
    ASSERT_NE(first, found.end());
    EXPECT_TRUE(link ? first->link.has_value() : first->work && first->issue);
  }
}

/// The step as it is, where the records say who waited for a core: 3 of the 5 us by which copies begin late.
TEST(TypicalStep, WaitsForACoreAreToldApart) {
  SimulatedRun run(small_step(), [](const engine::Setup& setup, clock::OpTimes times) {
    return times_by_hand(setup, std::move(times), {.lag = 5'000});
  });
  const std::vector<schedule::Op>& ops = run.setup.schedules.steady().ops;
  for (trace::RankTrace& trace : run.measurement.traces) {
    for (trace::Record& record : trace.records) {
      const schedule::Op& op = run.setup.schedules.of_step(static_cast<std::size_t>(record.step)).ops[record.op];
      if (op.lane == Lane::copy && op.has_work()) record.core_wait_ns = 3'000;
    }
  }
  const RunView view(run.setup.schedules, run.measurement.traces);
  const TypicalStep typical(view, run.setup, 0.1);
  const auto step_without = [&](clock::Part part) {
    return std::llround(typical.forecast(typical.training(), without(part)).slowest_ns());
  };
  EXPECT_EQ(step_without(clock::Part::core_waits), ByHand(small_step(), {.lag = 2'000}).step_ns());
  EXPECT_EQ(step_without(clock::Part::lane_lags), ByHand(small_step(), {.gap = 0, .wake = 0, .lag = 3'000}).step_ns());
  const clock::Forecast step = typical.forecast();
  EXPECT_EQ(std::llround(step.slowest_ns()), view.steps().back().slowest_ns());
  for (const trace::RankTrace& trace : step.traces) {
    EXPECT_EQ(trace.steps.front().begin_ns, 1'000'000 + std::llround(step.slowest_ns())) << "the second from 1 ms on";
    for (const trace::Record& record : trace.records) {
      const schedule::Op& op = ops[static_cast<std::size_t>(record.op)];
      EXPECT_EQ(record.step, 0);
      EXPECT_EQ(record.core_wait_ns, op.lane == Lane::copy && op.has_work() ? 3'000 : 0);
    }
  }
}

/// Medians of all ranks and steps, or of the one that is late: rank 0 at computing, rank 2 at its link, rank 3 at its
/// host.
TEST(TypicalStep, AnOpTakesTheMedianOfAllRanksButForTheLateOnes) {
  config::RunConfig config = small_step();
  config.train.steps = 7;
  config.simulate.jitter_pct = 3;
  SimulatedRun run(config, [&](const engine::Setup& setup, clock::OpTimes times) {
    const clock::Jitter jitter = times.jitter;
    times = times_by_hand(setup, std::move(times), {.launch = 0});
    times.jitter = jitter;
    times.compute_factor = {1.4, 1, 1, 1};
    times.link_factor = {1, 1, 3, 1};
    times.issue = clock::OpTimes::Issue::given;
    for (std::size_t s = 0; s < 8; ++s) {
      const schedule::Schedule& schedule = setup.schedules.of_step(s);
      auto& by_rank = times.given_issue.emplace_back();
      for (std::size_t rank = 0; rank < 4; ++rank) {
        auto& mine = by_rank.emplace_back();
        for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
          mine.push_back(static_cast<std::int64_t>((rank == 3 ? 2'600 : 900) + (7 * i + 5 * rank + 3 * s) % 11));
        }
      }
    }
    return times;
  });
  for (trace::RankTrace& trace : run.measurement.traces) {
    for (trace::Record& record : trace.records) {
      if (record.link_ns > 0) record.link_ns += 7 * trace.rank;  // a little, as of cables
    }
  }
  const TypicalStep typical(run.view, run.setup, 0.01);
  ASSERT_FALSE(typical.repeats());
  ASSERT_EQ(typical.steps(), 7U);
  ASSERT_EQ(typical.late_ranks().size(), 3U);
  EXPECT_TRUE(typical.late_ranks()[0].rank == 0 && typical.late_ranks()[0].work && !typical.late_ranks()[0].issue);
  EXPECT_TRUE(typical.late_ranks()[1].rank == 2 && typical.late_ranks()[1].link && !typical.late_ranks()[1].work);
  EXPECT_TRUE(typical.late_ranks()[2].rank == 3 && typical.late_ranks()[2].issue && !typical.late_ranks()[2].link);
  const std::vector<schedule::Op>& ops = run.setup.schedules.steady().ops;
  using Value = std::function<std::int64_t(const StepRecords&, int, std::size_t)>;
  // `late`: has its own.
  const auto median_of = [&](const Value& value, int rank, int late, std::size_t op) {
    std::vector<std::int64_t> all;
    for (const StepRecords& step : run.view.steps()) {
      for (int other = 0; other < 4; ++other) {
        if ((rank == late) == (other == late)) all.push_back(value(step, other, op));
      }
    }
    std::ranges::sort(all);
    return all[(all.size() - 1) / 2];
  };
  const Value took = [](const StepRecords& step, int rank, std::size_t op) {
    const trace::Record& r = step.of(rank)[op];
    return r.end_ns - std::max(r.begin_ns, r.peers_arrived_ns);
  };
  const Value link = [](const StepRecords& step, int rank, std::size_t op) { return step.of(rank)[op].link_ns; };
  const Value issue = [&](const StepRecords& step, int rank, std::size_t op) {
    const std::int64_t next = op + 1 < ops.size() ? step.of(rank)[op + 1].issued_ns : step.window(rank).issued_ns;
    return next - step.of(rank)[op].issued_ns;
  };
  const clock::Forecast step = typical.forecast();
  std::int64_t issues = 0;
  for (int rank = 0; rank < 4; ++rank) {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      SCOPED_TRACE(::testing::PrintToString(std::pair(rank, i)));
      const auto r = static_cast<std::size_t>(rank);
      if (ops[i].has_work()) {
        EXPECT_EQ(typical.times().ns(0, r)[i], median_of(took, rank, ops[i].is_collective() ? 2 : 0, i));
      }
      if (ops[i].is_collective()) {
        EXPECT_EQ(step.traces[r].records[i].link_ns, median_of(link, rank, 2, i));
      }
      if (ops[i].is_host()) continue;
      EXPECT_EQ(typical.times().issue_ns(0, r)[i], median_of(issue, rank, 3, i));
      issues += rank == 3 ? 1 : 0;
    }
  }
  EXPECT_EQ(typical.late_ranks()[2].issue->trials, 7 * issues) << "every op of every step is one";
}

/// One op of one step takes a nanosecond longer, so that the steps are not alike to the nanosecond; medians are.
TEST(TypicalStep, LagsOfOneRankAreItsOwnIfTheyAreMoreThanNoise) {
  struct Case {
    Lane lane;
    double all, of_rank_2, typical;
  };
  for (const Case& one : {Case{Lane::copy, 0, 30'000, 30'000},
                          {Lane::copy, 5'000, 5'200, 5'000},
                          {Lane::compute, 0, 30'000, 30'000},
                          {Lane::compute, 0, 200, 0}}) {
    SCOPED_TRACE(one.of_rank_2);
    const auto run = [&](double of_rank_2) {
      return SimulatedRun(small_step(), [&](const engine::Setup& setup, clock::OpTimes times) {
        times = times_by_hand(setup, std::move(times), {});
        times.delays.by_rank_ns.resize(4);
        for (auto& lanes : times.delays.by_rank_ns) lanes[index_of(one.lane)] = one.all;
        times.delays.by_rank_ns[2][index_of(one.lane)] = of_rank_2;
        return times;
      });
    };
    SimulatedRun late = run(one.of_rank_2);
    for (trace::Record& record : late.measurement.traces[0].records) {
      if (record.end_ns == late.measurement.traces[0].steps[0].end_ns) ++record.end_ns;
    }
    ++late.measurement.traces[0].steps[0].end_ns;
    const RunView view(late.setup.schedules, late.measurement.traces);
    const TypicalStep typical(view, late.setup, 0.05);
    EXPECT_FALSE(typical.repeats());
    EXPECT_EQ(std::llround(typical.forecast().slowest_ns()), run(one.typical).view.steps().back().slowest_ns());
  }
}

/// Two ranks of four wait for the others; then nobody has timed an op.
TEST(TypicalStep, WhereThereIsNoneIsAMatterOfTheNanosecond) {
  testing::HandRun run(2);
  for (const std::int64_t at : {1'000, 1'000'000}) {
    run.step(at, at + 500'000);
    run.forward({at + 10, at + 20, at});
    run.collective(schedule::OpKind::all_gather, Lane::all_gather,
                   {{at + 20, at + 400'000, at, at + 100'020}, {at + 30, at + 400'000, at, at + 100'020}});
    run.collective(schedule::OpKind::reduce_scatter, Lane::reduce_scatter,
                   testing::Times{at + 400'000, at + 450'000, at, at + 400'000});
  }
  const plan::Groups four(plan::Mesh{4, 1});
  EXPECT_EQ(why_no_typical_step(run.view(), four, 0.09999), "") << "least of both: 99 990 ns";
  EXPECT_NE(why_no_typical_step(run.view(), four, 0.099989), "");
  EXPECT_EQ(why_no_typical_step(run.view(), plan::Groups(plan::Mesh{2, 1}), 0), "") << "all are in view";
  testing::HandRun untimed = run;
  untimed.traces[1].records[0].begin_ns = 0;
  EXPECT_EQ(why_no_typical_step(untimed.view(), four, 1), "the records of an op are missing in every step");
}

/// A run that ended before its schedule was the steady one: what it did is its typical step.
TEST(TypicalStep, IsOfTheScheduleOfTheLastMeasuredStep) {
  CauseCases cases(3);
  config::RunConfig config = cases.healthy();
  SimulatedRun run(config);
  schedule::Schedule other = run.setup.schedules.steps.back();
  other.ops.pop_back();
  run.setup.schedules.steps.resize(5, run.setup.schedules.steps.back());
  run.setup.schedules.steps.push_back(other);
  const RunView view(run.setup.schedules, run.measurement.traces);
  const TypicalStep typical(view, run.setup, 0.1);
  EXPECT_EQ(typical.steps(), 1U) << "each measured step has a schedule of its own";
  EXPECT_EQ(typical.training().schedules.steps.size(), 1U);
  EXPECT_EQ(typical.training().schedules.steady().ops.size(), other.ops.size() + 1);
}

/// A rank that takes a little longer in a run without luck is late for certain, by less than a millisecond a step.
TEST(TypicalStep, WithoutLuckThereIsNoNoise) {
  SimulatedRun run(conditions()[1]);
  ASSERT_EQ(run.typical.late_ranks().size(), 1U);
  EXPECT_EQ(run.typical.late_ranks()[0].rank, 1);
  EXPECT_LT(run.typical.late_ranks()[0].work->excess_ms.median, 1);
}

TEST(CauseReport, AdvisesWhatItsKnobsGainAndSumsUpWhatIsSmall) {
  CauseCases cases(11);
  double small_ms = 0;
  std::string advice;
  for (const Cause cause : {Cause::late_prefetch, Cause::link_bound, Cause::host_bound, Cause::straggler}) {
    const SimulatedRun run(cases.one(cause).config);
    const CauseReport report = report_causes(run.view, run.setup, run_metrics(run.view, run.setup.plan.groups, 1));
    for (const CauseShare& found : report.causes) {
      EXPECT_DOUBLE_EQ(found.share_pct, 100 * found.ms / report.step_ms);
      EXPECT_GE(found.share_pct, kSmallSharePct) << to_string(found.cause);
      advice += found.advice;
    }
    small_ms += report.small_ms;
  }
  EXPECT_NE(advice.find("set fsdp."), advice.npos) << advice;
  EXPECT_GT(small_ms, 0);
}

}  // namespace
}  // namespace fsdpbench::account
