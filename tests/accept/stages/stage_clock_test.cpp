#include "accept/stages/stage_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "accept/stages/measure_acceptance.h"
#include "base/error.h"
#include "engine/setup.h"
#include "launch/addresses.h"
#include "support/tiny_run.h"

namespace fsdpbench::app {
namespace {

using ::testing::HasSubstr;

/// An acceptance on a clock that the test turns.
struct Turned {
  double now = 100;
  std::vector<std::string> said;
  StageClock clock{300, [this] { return now; }, [this](const std::string& text) { said.push_back(text); }};
};

TEST(StageClockTest, SaysWhatAStageWillTakeAndKeepsWhatItTook) {
  Turned t;
  t.clock.begin("pairs", 2.5);
  t.now += 4;
  t.clock.begin("steps");
  t.now += 6;
  t.clock.end();
  ASSERT_EQ(t.clock.stages().size(), 2U);
  EXPECT_DOUBLE_EQ(t.clock.stages()[0].took_s, 4);
  EXPECT_DOUBLE_EQ(t.clock.stages()[1].took_s, 6);
  EXPECT_EQ(t.said[0], "0.0 s of 5 min 00 s: pairs, about 3 s");
  EXPECT_EQ(t.said[1], "4 s of 5 min 00 s: steps");
  EXPECT_DOUBLE_EQ(t.clock.left_s(), 290);
}

TEST(StageClockTest, WhatIsLeftShrinksWhatComes) {
  Turned t;
  EXPECT_EQ(t.clock.fitting(20, 6, 1, 0.5), 20);
  t.now += 280;  // 20 s are left
  EXPECT_EQ(t.clock.fitting(20, 6, 1, 0.5), 10);
  t.clock.begin("arms");
  EXPECT_EQ(t.clock.stages().back().note, "10 of 20 repetitions: 20 s of the budget are left");
  EXPECT_EQ(t.said.back(), "4 min 40 s of 5 min 00 s: arms (" + t.clock.stages().back().note + ")");
  EXPECT_FALSE(t.clock.stages().back().skipped);
  t.now += 13;  // 7 s
  EXPECT_EQ(t.clock.fitting(20, 6, 1, 0.5), 6) << "no fewer than say something";
  t.now += 3;  // 4 s
  EXPECT_EQ(t.clock.fitting(20, 6, 1, 0.5), 0);
  t.clock.begin("collectives");  // which are measured all the same
  EXPECT_EQ(t.clock.stages().back().note, "the fewest repetitions: 4 s of the budget are left");
  EXPECT_EQ(t.clock.fitting(20, 6, 1, 0.5), 0);
  t.clock.skip("soak", "the budget is spent");
  EXPECT_TRUE(t.clock.stages().back().skipped);
  EXPECT_EQ(t.clock.stages().back().note, "the budget is spent");
}

TEST(StageClockTest, WhatAStageLeavesOutIsNotedWhileItIsUnderWay) {
  Turned t;
  t.now += 280;
  (void)t.clock.fitting(20, 6, 1, 0.5);
  t.clock.begin("arms");
  t.clock.note("4 of 10 rounds");
  EXPECT_EQ(t.clock.stages().back().note, "10 of 20 repetitions: 20 s of the budget are left; 4 of 10 rounds");
  EXPECT_EQ(t.said.back(), "4 of 10 rounds");
}

TEST(StageClockTest, AStageUnderWayHasTakenNothingYetAndANoteIsOfTheStageThatBeginsNext) {
  Turned t;
  t.clock.begin("pairs");
  t.now += 4;
  EXPECT_EQ(t.clock.stages().back().took_s, 0);
  t.clock.note("some");
  EXPECT_EQ(t.clock.stages().back().note, "some");
  t.now += 286;  // 10 s are left
  EXPECT_EQ(t.clock.fitting(20, 6, 1, 0.5), 6);
  t.clock.skip("steps", "why");
  EXPECT_EQ(t.clock.stages()[0].took_s, 290);
  EXPECT_EQ(t.clock.stages()[1].took_s, 0);
  EXPECT_EQ(t.said.back(), "not measured: steps: why");
  t.clock.begin("soak");
  EXPECT_EQ(t.clock.stages().back().note, "") << "the stage that it was noted for was skipped";
  EXPECT_FALSE(t.clock.is_spent());
  t.now += 9.5;
  EXPECT_FALSE(t.clock.is_spent());
  t.now += 0.5;
  EXPECT_TRUE(t.clock.is_spent());
  t.clock.end();
  t.now += 5;
  t.clock.end();
  EXPECT_EQ(t.clock.stages().back().took_s, 10) << "it has ended already";
  EXPECT_EQ(t.clock.budget_s(), 300);
}

TEST(StageClockTest, AsOftenAsItFitsAndNoMoreThanWanted) {
  Turned t;
  EXPECT_EQ(t.clock.fitting(20, 6, 0, 0.5), 20) << "nobody knows how long it takes";
  EXPECT_EQ(t.clock.fitting(3, 6, 1, 0.5), 3) << "fewer than say something, as it was wanted";
  EXPECT_EQ(t.clock.fitting(20, 6, 1e-300, 0.5), 20);
  t.clock.begin("a");
  EXPECT_EQ(t.clock.stages().back().note, "") << "all that was wanted";
  EXPECT_EQ(t.clock.fitting(20, 6, 7.5, 0.5), 20) << "150 of 300 s";
  EXPECT_EQ(t.clock.fitting(20, 6, 7.6, 0.5), 19);
  EXPECT_EQ(t.clock.fitting(20, 6, 50, 0.5), 6) << "all that is left";
  EXPECT_EQ(t.clock.fitting(20, 6, 50.1, 0.5), 0);
}

TEST(StageClockTest, AStageOfWhichLessIsOfNoUseIsLeftOutWithItsReason) {
  Turned t;
  EXPECT_TRUE(t.clock.admits("pairs", 300));
  EXPECT_TRUE(t.clock.stages().empty());
  t.now += 240;
  ASSERT_FALSE(t.clock.admits("pairs", 90));
  EXPECT_TRUE(t.clock.stages().back().skipped);
  EXPECT_EQ(t.clock.stages().back().note,
            "it takes 1 min 30 s at least, and 1 min 00 s of the budget of 5 min 00 s are left");
  t.now += 60;
  EXPECT_FALSE(t.clock.admits("soak", 0));
  EXPECT_EQ(t.clock.stages().back().note, "5 min 00 s of the budget of 5 min 00 s are spent");
}

TEST(StageClockTest, AStageOfRepetitionsBeginsWithAsManyAsFit) {
  Turned t;
  EXPECT_EQ(t.clock.begin_fitting("steps", 20, 5, 2, 4, 0.4), 20) << "80 of 120 s";
  EXPECT_EQ(t.clock.stages().back().estimate_s, 88);
  t.now += 240;  // 60 s are left
  EXPECT_EQ(t.clock.begin_fitting("steps", 20, 5, 2, 4, 0.4), 6) << "24 s";
  EXPECT_EQ(t.clock.stages().back().estimate_s, 32);
  t.now += 32;  // 28 s: as much as five and two take
  EXPECT_EQ(t.clock.begin_fitting("steps", 20, 5, 2, 4, 0.4), 5);
  t.now += 1;
  EXPECT_EQ(t.clock.begin_fitting("steps", 20, 5, 2, 4, 0.4), 0);
  EXPECT_EQ(t.clock.stages().back().note, "it takes 28 s at least, and 27 s of the budget of 5 min 00 s are left");
  EXPECT_TRUE(t.clock.stages().back().skipped);
  // A clock on which the time runs out between two looks.
  double now = 0;
  StageClock quick(
      10, [&] { return std::exchange(now, now + 4); }, [](const std::string&) {});
  EXPECT_EQ(quick.begin_fitting("steps", 9, 1, 0, 3, 0.5), 0);
  EXPECT_TRUE(quick.stages().back().skipped);
  EXPECT_THAT(quick.stages().back().note, HasSubstr(" of the budget of 10 s are spent"));
}

/// All stages before the steps, of a tiny decoder on threads.
struct Acceptances {
  engine::Setup setup = [] {
    config::RunConfig config = testing::settled(testing::tiny_decoder());
    config.device.backend = config::BackendKind::cpu;
    return engine::set_up(config);
  }();
  AcceptanceEffort effort{.matrix = 16, .device_rounds = 15, .iterations = 6, .pair_bytes = 4096, .memory_bytes = 4096};

  AcceptanceMeasurements measure(StageClock& clock) const {
    AcceptanceMeasurements measured;
    const AcceptanceLead lead{clock, {}, [](const AcceptanceMeasurements&) { return std::string(); }, measured};
    measure_acceptance(setup, effort, nullptr, &lead);
    return measured;
  }
};

TEST(StageClockTest, AnAcceptanceOverrunsItsBudgetByOneRoundOnly) {
  constexpr double kLooks = 4;  // at the clock, from the decision until a stage is announced
  const Acceptances acceptances;
  for (const double budget_s : {5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 5000.0}) {
    // Each look at the clock turns it by a second, and each round of a stage looks once.
    double now = 0, last_began = 0;
    StageClock clock(
        budget_s, [&] { return now++; },
        [&](const std::string& text) {
          if (!text.starts_with("not measured")) last_began = now;
        });
    const AcceptanceMeasurements m = acceptances.measure(clock);
    clock.end();
    const std::size_t rounds = m.device_rates.size() + m.memory_rates.size();
    EXPECT_LT(static_cast<double>(rounds + m.ladder.size() + m.scales.size() / 2), budget_s);
    EXPECT_LE(last_began, budget_s + kLooks) << "nothing begins when all is spent";
    if (budget_s < 1000) {
      EXPECT_TRUE(clock.stages().back().skipped) << budget_s;
      continue;
    }
    EXPECT_EQ(rounds, 30U) << "with enough time nothing is left out";
    EXPECT_FALSE(m.ladder.empty());
    EXPECT_FALSE(m.scales.empty());
    for (const Stage& stage : clock.stages()) EXPECT_FALSE(stage.skipped) << stage.name;
  }
}

TEST(StageClockTest, WithoutALimitEverythingIsMeasuredAsOftenAsItWasWanted) {
  Acceptances acceptances;
  acceptances.effort.iterations = 100;
  acceptances.effort.device_rounds = 2;
  StageClock clock(
      1e9, [] { return 0.0; }, [](const std::string&) {});
  const AcceptanceMeasurements m = acceptances.measure(clock);
  EXPECT_TRUE(m.rates_tails) << "100 iterations have a p99";
  EXPECT_TRUE(m.on_processors && m.computes && m.cores_move_bytes);
  EXPECT_EQ(m.shares_cores, 4U > std::thread::hardware_concurrency());
  EXPECT_EQ(m.cluster.hosts, std::vector<std::string>(4, launch::node_name()));
  EXPECT_EQ(m.transports, std::vector<std::string>(4, "shared memory of one process"));
  EXPECT_EQ(m.ready_s.size(), 4U);
  for (const double ready_s : m.ready_s) EXPECT_GT(ready_s, 0);
  EXPECT_TRUE(m.clocks.empty());
  for (const CollectiveRow& row : m.ladder) {
    EXPECT_EQ(row.out_of_place->iterations_us.size(), 100U);
    EXPECT_EQ(row.in_place->wrong, 0);
  }
  for (const CollectiveRow& row : m.scales) EXPECT_EQ(row.timing().iterations_us.size(), 100U);
  acceptances.effort.iterations = 99;
  EXPECT_FALSE(acceptances.measure(clock).rates_tails);
}

TEST(StageClockTest, WhatCannotFitDoesNotBegin) {
  // A clock that stands still, and less left than any op takes.
  StageClock clock(
      1e-9, [] { return 0.0; }, [](const std::string&) {});
  const AcceptanceMeasurements m = Acceptances().measure(clock);
  EXPECT_TRUE(m.device_rates.empty());
  EXPECT_TRUE(m.memory_rates.empty());
  EXPECT_TRUE(m.links.one_way.empty());
  std::vector<std::string> skipped;
  for (const Stage& stage : clock.stages()) {
    if (!stage.skipped) continue;
    skipped.push_back(stage.name);
    EXPECT_THAT(stage.note, HasSubstr("at least, and"));
  }
  EXPECT_THAT(skipped, ::testing::IsSupersetOf(
                           {"matrix products of all 4 ranks", "copies in memory of all 4 ranks", "pairs of ranks"}));
}

TEST(StageClockTest, DurationsAreRead) {
  EXPECT_DOUBLE_EQ(duration_s("5m"), 300);
  EXPECT_DOUBLE_EQ(duration_s("90"), 90);
  EXPECT_DOUBLE_EQ(duration_s("1.5h"), 5400);
  EXPECT_DOUBLE_EQ(duration_s("2s"), 2);
  EXPECT_DOUBLE_EQ(duration_s("1"), 1);
  EXPECT_DOUBLE_EQ(duration_s("1e6"), 1e6);
  for (const char* wrong : {"", "m", "5 minutes", "-3", "0", "1e9h", "nan", "0.99", "1000001", "278h", "5x"}) {
    EXPECT_THROW(duration_s(wrong), ConfigError) << wrong;
  }
}

}  // namespace
}  // namespace fsdpbench::app
