#include "account/cause_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "account/cause_table.h"
#include "account/run_metrics.h"
#include "support/hand_run.h"

namespace fsdpbench::account {
namespace {

using schedule::Op;
using schedule::OpKind;
using testing::HandRun;
using testing::Times;

plan::Plan plan_of(int ranks) {
  plan::Plan plan;
  plan.mesh = {ranks, 1};
  plan.groups = plan::Groups(plan.mesh);
  plan.units.resize(6);
  for (std::size_t u = 0; u < plan.units.size(); ++u) plan.units[u].members.label = std::to_string(u);
  return plan;
}

CauseReport report(const HandRun& run) {
  return rank_causes(run.view(), plan_of(static_cast<int>(run.traces.size())), schedule::Policy{}, {});
}

/// Computes for 100 ns, waits for the gather of `unit` until `end`, computes for 50 ns.
void add_gather_step(HandRun& run, std::int64_t at, int unit, std::int64_t end, int marks_before) {
  run.step(at, at + end + 50);
  for (int i = 0; i < marks_before; ++i) {
    Op& mark = run.op(OpKind::release, Lane::compute, Times{0, 0, at, 0});
    mark.unit = 5;
  }
  run.forward({at, at + 100, at});
  Op& gather = run.collective(OpKind::all_gather, Lane::all_gather, Times{at, at + end, at, 0});
  gather.unit = unit;
  gather.record = 0;
  Op& after = run.forward({at + end, at + end + 50, at}, unit);
  after.waits.push_back({0});
}

TEST(CauseReport, AnOpIsKnownByWhatItIsNotByItsIndexInSomeSchedule) {
  // The measured step has its own schedule, longer than the steady one: its gather has index 3, which is past the end
  // of the steady schedule's ops but one, and its neighbours there are others.
  HandRun run(2);
  add_gather_step(run, 0, 3, 180, 2);
  schedule::Schedule steady;
  for (int i = 0; i < 4; ++i) {
    Op& op = steady.ops.emplace_back();
    op.kind = OpKind::optimizer;
    op.unit = 1;
  }
  run.schedules.steps.push_back(steady);
  const CauseReport r = report(run);
  ASSERT_EQ(r.causes.size(), 1U);
  EXPECT_EQ(r.causes[0].cause, Cause::link_bound);
  EXPECT_EQ(r.causes[0].unit, "3");
  EXPECT_EQ(r.causes[0].op, "all_gather 3");
}

TEST(CauseReport, LossesToOneOpAddUpOverSchedules) {
  // The middle third by length: unit 3 loses 40 + 40 ns at two indices, unit 4 60 ns at one of them.
  HandRun run(2);
  for (const std::int64_t at : {0, 1000, 2000}) add_gather_step(run, at, 2, 110, 0);
  add_gather_step(run, 3000, 3, 140, 0);
  add_gather_step(run, 4000, 4, 160, 1);
  add_gather_step(run, 5000, 3, 140, 1);
  for (const std::int64_t at : {6000, 7000, 8000}) add_gather_step(run, at, 2, 300, 0);
  const CauseReport r = report(run);
  ASSERT_EQ(r.causes.size(), 1U);
  EXPECT_EQ(r.causes[0].unit, "3");
}

TEST(CauseReport, CausesPartitionTheStalledTimeOfTheMetrics) {
  HandRun run(2);
  for (int s = 0; s < 7; ++s) add_gather_step(run, 1000 * s, 2 + s % 3, 120 + 13 * ((s * 5) % 7), s % 2);
  const CauseReport r = report(run);
  const RunMetrics m = run_metrics(run.view(), plan::Groups(plan::Mesh{2, 1}), 1);
  double sum = r.small_ms;
  for (const CauseShare& c : r.causes) sum += c.ms;
  EXPECT_NEAR(sum, r.stalled_ms, 1e-12);
  EXPECT_NEAR(r.stalled_ms, m.exposed_comm_ms + m.exposed_copy_ms + m.idle_ms, 1e-12);
  EXPECT_DOUBLE_EQ(r.step_ms, m.step_ms.median);
}

TEST(CauseReport, OneRankHasNoOneToWaitFor) {
  HandRun run;
  run.step(0, 100);
  run.forward({0, 60});
  run.forward({80, 100, 80});
  const CauseReport r = report(run);
  ASSERT_EQ(r.causes.size(), 1U);
  EXPECT_EQ(r.causes[0].cause, Cause::host_bound);
  EXPECT_EQ(r.causes[0].late_rank, -1);
  EXPECT_NEAR(r.causes[0].share_pct, 20, 1e-9);
}

TEST(CauseReport, WhatCostsLessThanTwoPercentIsSummedUp) {
  const auto waits = [](std::int64_t ns) {
    HandRun run;
    run.step(0, 10'000);
    run.forward({0, 5000});
    run.forward({5000 + ns, 10'000, 5000 + ns});
    return report(run);
  };
  EXPECT_EQ(waits(201).causes.size(), 1U);
  EXPECT_EQ(waits(201).small_ms, 0);
  EXPECT_TRUE(waits(199).causes.empty());
  EXPECT_DOUBLE_EQ(waits(199).small_ms, 199e-6);
}

TEST(CauseReport, OfCausesThatCostAsMuchTheFirstOfTheirListIsFirst) {
  HandRun run;
  run.step(0, 1000);
  run.forward({0, 100});
  run.forward({200, 500});
  run.forward({600, 1000, 0, 0, 100});
  const CauseReport r = report(run);
  ASSERT_EQ(r.causes.size(), 2U);
  EXPECT_EQ(r.causes[0].cause, Cause::cores_busy);
  EXPECT_EQ(r.causes[1].cause, Cause::unknown);
}

TEST(CauseReport, NothingStalledIsNothingReported) {
  HandRun run;
  run.step(0, 100);
  run.forward({0, 100});
  const CauseReport r = report(run);
  EXPECT_TRUE(r.causes.empty());
  EXPECT_EQ(r.stalled_ms, 0);
  EXPECT_TRUE(r.example.empty());
}

/// Lines of a text, their cells with one space between them.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string& joined = lines.emplace_back();
    for (std::string word; words >> word;) joined += (joined.empty() ? "" : " ") + word;
  }
  return lines;
}

TEST(CauseTable, HasTheCausesTheRestAndWhatHelps) {
  CauseReport r;
  r.step_ms = 100;
  r.typical_ms = 80;
  r.small_ms = 1.25;
  r.causes.resize(3);
  r.causes[0] = {Cause::slow_link, 12.345, 12.345, "3", "all_gather 3", 2, {}, "mend it"};
  r.causes[1] = {Cause::straggler, 5, 5, "", "", 1, {}, ""};
  r.causes[2] = {Cause::host_bound, 2, 2, "", "forward 1", -1, {}, ""};
  const app::CauseTable how{.title = "why", .no_typical = "nothing was replayed\n", .knobs = {"turn it"}};
  using ::testing::ElementsAre;
  EXPECT_THAT(
      lines_of(app::cause_table(r, how)),
      ElementsAre("why", "cause ms of the step worst at", ::testing::StartsWith("-----"),
                  "slow_link 12.3 12.3 % all_gather 3, slow: rank 2", "straggler 5.00 5.0 % late: rank 1",
                  "host_bound 2.00 2.0 % forward 1", "small (each under 2 %) 1.25 1.2 %", "nothing was replayed", "",
                  "- slow_link: mend it", "", "knobs, by what they gain:", "- turn it"));
  Counterfactual& without = r.causes[0].without.emplace();
  without.step_ms = 70;
  without.gain_ms = 10;
  without.ci_low = 8;
  without.ci_high = 11.5;
  without.interval = IntervalKind::bootstrap;
  r.causes[1].without = without;
  r.causes[1].without->interval = IntervalKind::one_value;
  r.jitter.emplace().stalled_ms = 4;
  r.causes[0].advice.clear();
  EXPECT_THAT(lines_of(app::cause_table(r, {.title = "why", .no_typical = "", .knobs = {}, .step = "s"})),
              ElementsAre("why", "cause ms of the step s (80.0 ms) without it worst at", ::testing::StartsWith("-----"),
                          "slow_link 12.3 12.3 % 70.0 ms [68.5 to 72.0] all_gather 3, slow: rank 2",
                          "straggler 5.00 5.0 % 70.0 ms late: rank 1", "host_bound 2.00 2.0 % forward 1",
                          "small (each under 2 %) 1.25 1.2 %", "jitter, of no cause 4.00 4.0 %"));
}

TEST(PathTable, HasARowForEachOfEightRanksAndTheirSum) {
  PathReport path;
  for (int i = 0; i < 9; ++i) {
    PathRank& rank = path.ranks.emplace_back();
    rank.rank = 10 + i;
    rank.kinds_ms[PathKind::kernels] = 2;
    rank.kinds_ms[PathKind::copies] = i == 0 ? 2 : 0;
    rank.ms = i == 0 ? 4 : 2;
  }
  using ::testing::ElementsAre;
  const std::vector<std::string> all = lines_of(app::path_table(path));
  ASSERT_EQ(all.size(), 13U);
  EXPECT_EQ(all[1], "rank ms a step of the step kernels copies") << "kinds that nobody has have no column";
  EXPECT_EQ(all[3], "10 4.00 20.0 % 10.0 % 10.0 %");
  EXPECT_EQ(all[4], "11 2.00 10.0 % 10.0 % 0.0 %");
  EXPECT_EQ(all[10], "17 2.00 10.0 % 10.0 % 0.0 %");
  EXPECT_EQ(all[11], "all 20.0 100.0 % 90.0 % 10.0 %");
  EXPECT_EQ(all[12], "and 1 ranks more");
  path.ranks.resize(8);
  EXPECT_EQ(lines_of(app::path_table(path)).size(), 12U);
  path.ranks.resize(1);
  EXPECT_EQ(lines_of(app::path_table(path)).size(), 4U) << "no sum of one";
  path.ranks[0] = {};
  EXPECT_EQ(lines_of(app::path_table(path))[3], "0 0") << "of nothing no share";
}

/// The first gather of a step takes 40 of 100; so does that of unit 1 in the step after it.
TEST(CauseReport, OfOpsThatCostAsMuchTheFirstIsNamedEvenTheFirstOfAll) {
  HandRun run(2);
  for (const int unit : {1, 0}) {
    const std::int64_t at = unit == 0 ? 1000 : 0;
    run.step(at, at + 100);
    Op& gather = run.collective(OpKind::all_gather, Lane::all_gather, Times{at, at + 40, at, 0});
    gather.unit = unit;
    gather.record = 0;
    run.forward({at + 40, at + 100, at}, unit).waits.push_back({0});
  }
  const CauseReport r = report(run);
  ASSERT_EQ(r.causes.size(), 1U);
  EXPECT_EQ(r.causes[0].op, "all_gather 0");
  EXPECT_EQ(r.causes[0].unit, "0");
}

/// Rank 1 is late by 50 in one step, rank 2 by 30 in the other. Traces are of ranks 4, 5 and 6.
TEST(CauseReport, TheLateRankIsTheOneThatCostMostInAllStepsAndTheExampleIsTheSlowestRanks) {
  HandRun run(3);
  for (std::size_t rank = 0; rank < 3; ++rank) run.traces[rank].rank = static_cast<int>(rank) + 4;
  for (int s = 0; s < 2; ++s) {
    const std::int64_t at = 1000 * s, late = s == 0 ? 150 : 130;
    run.step({{at, at + 200 - s}, {at, at + 210 - s}, {at, at + 200 - s}});
    run.forward({at, at + 100, at});
    const Times on_time{at, at + late + 10, at, at + late}, last{at + late, at + late + 10, at + late, at + late};
    Op& gather = run.collective(OpKind::all_gather, Lane::all_gather,
                                {on_time, s == 0 ? last : on_time, s == 0 ? on_time : last});
    gather.unit = 3;
    gather.record = 0;
    run.forward({at + late + 10, at + 199, at}, 3).waits.push_back({0});
  }
  const EvenRows even_rows{1, 2, 1};
  const CauseReport r = rank_causes(run.view(), plan_of(8), schedule::Policy{}, {}, even_rows);
  ASSERT_FALSE(r.causes.empty());
  EXPECT_EQ(r.causes[0].cause, Cause::straggler);
  EXPECT_EQ(r.causes[0].late_rank, 5) << "50 is more than 30";
  EXPECT_EQ(r.example_rank, 5);
  EXPECT_EQ(r.example_place, 1);
  EXPECT_EQ(r.even_rows, even_rows);
}

TEST(CauseTable, LittleIsStillARowAndSharesAreOfTheStep) {
  CauseReport r;
  r.step_ms = 200;
  r.small_ms = 0.5;
  r.jitter.emplace().stalled_ms = 100;
  const std::vector<std::string> lines = lines_of(app::cause_table(r, {}));
  using ::testing::Contains;
  EXPECT_THAT(lines, Contains("small (each under 2 %) 0.500 0.2 %"));
  EXPECT_THAT(lines, Contains("jitter, of no cause 100 50.0 %"));
  EXPECT_EQ(app::cause_table(r, {}).find("without"), std::string::npos);
}

}  // namespace
}  // namespace fsdpbench::account
