// Stages of an acceptance on threads of this process, by a clock that the test turns.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "accept/stages/acceptance.h"
#include "account/statistics.h"
#include "base/error.h"
#include "config/find_file.h"
#include "launch/addresses.h"
#include "launch/local_job.h"
#include "launch/run_ranks.h"
#include "record/json_fields.h"
#include "record/json_part.h"
#include "runs/cell.h"
#include "runs/job_run.h"

namespace fsdpbench::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kWithoutEnd_s = 1e9;

struct Heard {
  int lost = 0, kept = 0;
  int rank = -2;
  std::string why;
  std::vector<Stage> stages;  ///< of what was kept
  std::vector<std::string> nodes{};
  bool hangs = false;
};

config::RunConfig tiny(int ranks) {
  return load_config(config::find_profile("quickstart"),
                     {"model.layers=2", "model.width=64", "model.ffn_width=128", "train.seq_len=32",
                      "train.batch_per_rank=1", "train.steps=5", "train.warmup=1", "emulate.compute_tflops=1",
                      "emulate.link_gb_per_s=10", "emulate.link_latency_us=0", fmt::format("mesh.ranks={}", ranks)},
                     nullptr);
}

config::Acceptance expecting(int ranks) {
  config::Acceptance wanted;
  wanted.run = "quickstart";
  wanted.matrix = 16;
  wanted.memory_mib = 1;
  wanted.ranks = ranks;
  return wanted;
}

/// Stages of a tiny run on `ranks` ranks, of which the profile expects `expected`.
Measured stages(const Patience& patience, int ranks = 4, int expected = 0, Heard* heard = nullptr) {
  const Cell cell = open_cell(tiny(ranks));
  return measure_stages(
      expecting(expected), cell, patience, nullptr,
      [&](const std::vector<std::string>& nodes, int rank, const std::string& why, bool hangs) {
        EXPECT_EQ(nodes.size(), 1U);
        EXPECT_FALSE(hangs);
        if (heard != nullptr) *heard = {.lost = heard->lost + 1, .rank = rank, .why = why, .stages = {}};
      },
      [&](const Measured& so_far) {
        if (heard != nullptr) *heard = {.kept = heard->kept + 1, .why = "", .stages = so_far.raw.stages};
      });
}

Patience still(double left_s, bool full = false) {
  return {full, left_s, 0, [] { return 0.0; }};
}

std::vector<std::string> names(const Measured& measured) {
  std::vector<std::string> all;
  for (const Stage& stage : measured.raw.stages) {
    const std::string name = stage.name.substr(0, stage.name.find(" of "));
    if (all.empty() || all.back() != name) all.push_back(name);
  }
  return all;
}

TEST(AcceptanceStagesTest, AllAreMeasuredInTheirOrder) {
  const Measured m = stages(still(kWithoutEnd_s));
  const std::string parts = "computation alone, communication alone and both";
  EXPECT_THAT(names(m), ElementsAre("inventory", "matrix products", "pairs", "all_gather", "reduce_scatter",
                                    "all_gather", "reduce_scatter", "all_gather", "reduce_scatter",
                                    "collectives in groups", "training steps", parts));
  for (const Stage& stage : m.raw.stages) {
    EXPECT_FALSE(stage.skipped) << stage.name;
    EXPECT_EQ(stage.note, "") << stage.name;
  }
  EXPECT_EQ(m.raw.stopped_because, "");
  ASSERT_TRUE(m.trial && m.trial->metrics);
  EXPECT_EQ(m.trial->measurement.traces.size(), 4U);
  EXPECT_EQ(m.trial->measurement.traces.front().steps.size(), 5U);
  EXPECT_EQ(m.raw.arms.size(), 8U);
  EXPECT_EQ(m.raw.arrivals.size(), 5U + 2 * 8) << "of the training's steps, and of the whole ones among the arms";
  EXPECT_TRUE(m.raw.soak.empty());
  EXPECT_TRUE(m.raw.standstill_s.empty()) << "of processes alone";
  // The length of the steps is estimated from the fastest collective in place and the median product.
  const Cell cell = open_cell(load_config(config::find_profile("quickstart"),
                                          {"model.layers=2", "model.width=64", "model.ffn_width=128",
                                           "train.seq_len=32", "train.batch_per_rank=1", "mesh.ranks=4"},
                                          nullptr));
  double fastest = 0;
  for (const CollectiveRow& row : m.raw.ladder) {
    fastest = std::max(fastest, row.in_place->algorithm_gb_per_s(row.message) * 1e9);
  }
  std::vector<double> products;
  for (const std::vector<double>& round : m.raw.device_rates)
    products.insert(products.end(), round.begin(), round.end());
  const Stage& steps = m.raw.stages[m.raw.stages.size() - 2];
  EXPECT_EQ(steps.name, "training steps of quickstart");
  EXPECT_DOUBLE_EQ(*steps.estimate_s, 6 * about_step_s(cell.setup, fastest, account::median(products)));
  EXPECT_DOUBLE_EQ(*m.raw.stages.back().estimate_s, 8 * 6 * m.trial->metrics->step_ms.median * 1e-3);
}

TEST(AcceptanceStagesTest, ASoakRepeatsThePartsForWhatIsLeft) {
  // Each look at the clock turns it by a second; a step looks once.
  std::atomic<int> looks = 0;
  const double budget_s = 900;
  const Measured m = stages({true, budget_s, 0, [&] { return static_cast<double>(looks++); }});
  EXPECT_EQ(m.raw.arms.size(), 30U);
  EXPECT_EQ(m.raw.stages.back().name, "soak");
  EXPECT_FALSE(m.raw.stages.back().skipped);
  EXPECT_GT(*m.raw.stages.back().estimate_s, 100);
  EXPECT_GT(m.raw.stages.back().took_s, 100);
  EXPECT_GE(m.raw.soak.size(), 30U);
  EXPECT_EQ(m.raw.soak.size() % 30, 0U) << "whole passes, as it begins none for which no time is left";
  EXPECT_EQ(m.raw.arrivals.size(), 5U + 2 * 30);
  EXPECT_LT(looks, budget_s + 40);
  EXPECT_GT(looks, budget_s - 300) << "a pass takes some 180 s";
}

TEST(AcceptanceStagesTest, PartsThatAreCutShortSaySo) {
  std::atomic<int> looks = 0;
  // So many seconds that the steps are measured and then some rounds of the parts.
  Measured m;
  for (double budget_s = 120; budget_s < 400 && m.raw.arms.empty(); budget_s += 20) {
    looks = 0;
    m = stages({false, budget_s, 0, [&] { return static_cast<double>(looks++); }});
  }
  ASSERT_FALSE(m.raw.arms.empty());
  ASSERT_LT(m.raw.arms.size(), 8U);
  EXPECT_THAT(m.raw.stages.back().note, HasSubstr(fmt::format("{} of 8 rounds: ", m.raw.arms.size())));
  EXPECT_THAT(m.raw.stages.back().note, HasSubstr(" of the budget of "));
  EXPECT_FALSE(m.raw.stages.back().skipped);
}

TEST(AcceptanceStagesTest, PairsThatAreCutShortBlameNobody) {
  std::atomic<int> looks = 0;
  std::vector<Stage> of_pairs;
  Measured m;
  for (double budget_s = 20; budget_s < 60 && of_pairs.size() < 2; ++budget_s) {
    looks = 0;
    m = stages({false, budget_s, 0, [&] { return static_cast<double>(looks++); }});
    of_pairs = m.raw.stages;
    std::erase_if(of_pairs, [](const Stage& stage) { return !stage.name.starts_with("pairs of ranks"); });
  }
  ASSERT_EQ(of_pairs.size(), 2U);
  EXPECT_FALSE(of_pairs[0].skipped);
  EXPECT_TRUE(of_pairs[1].skipped);
  EXPECT_EQ(of_pairs[1].name, "pairs of ranks");
  EXPECT_THAT(of_pairs[1].note, HasSubstr(" of the budget of "));
  EXPECT_TRUE(m.raw.links.one_way.empty());
  EXPECT_TRUE(m.raw.ladder.empty());
}

TEST(AcceptanceStagesTest, WhenAllIsSpentEachIsLeftOutWithItsReason) {
  const Measured m = stages(still(0, true));
  std::vector<std::string> told;
  for (const Stage& stage : m.raw.stages) {
    if (stage.skipped) told.push_back(stage.name + ": " + stage.note);
  }
  const std::string spent = ": 0.0 s of the budget of 0.0 s are spent";
  EXPECT_THAT(told, ElementsAre("matrix products of all 4 ranks" + spent, "pairs of ranks" + spent,
                                "collectives" + spent, "training steps of quickstart" + spent,
                                "computation alone, communication alone and both: the training steps were not measured",
                                "soak: the training steps were not measured"));
  EXPECT_FALSE(m.trial);
  EXPECT_TRUE(m.raw.ladder.empty() && m.raw.scales.empty() && m.raw.device_rates.empty());
}

TEST(AcceptanceStagesTest, WithoutTheRatesOfPairsCollectivesAreRepeatedAFewTimes) {
  const Measured m = stages(still(1e-9));  // in which no pair can be measured
  EXPECT_TRUE(m.raw.links.one_way.empty());
  ASSERT_FALSE(m.raw.ladder.empty());
  for (const CollectiveRow& row : m.raw.ladder) EXPECT_EQ(row.in_place->iterations_us.size(), 6U);
  EXPECT_FALSE(m.raw.stages.back().estimate_s.has_value());
  EXPECT_FALSE(m.trial) << "they do not fit";
}

TEST(AcceptanceStagesTest, OneRankHasNoPeers) {
  const Measured m = stages(still(kWithoutEnd_s, true), 1);
  EXPECT_THAT(names(m), ElementsAre("inventory", "matrix products", "all_gather", "reduce_scatter", "all_gather",
                                    "reduce_scatter", "all_gather", "reduce_scatter", "training steps"));
  for (const CollectiveRow& row : m.raw.ladder) EXPECT_EQ(row.in_place->iterations_us.size(), 200U);
  EXPECT_TRUE(m.raw.arms.empty() && m.raw.soak.empty() && m.raw.pairs.empty());
  EXPECT_TRUE(m.trial);
}

TEST(AcceptanceStagesTest, TooFewRanksStopIt) {
  const Measured m = stages(still(kWithoutEnd_s, true), 2, 7);
  EXPECT_THAT(names(m), ElementsAre("inventory"));
  EXPECT_THAT(m.raw.stopped_because, ::testing::StartsWith("2 ranks came, and 7 are expected"));
  EXPECT_FALSE(m.trial);
}

TEST(AcceptanceStagesTest, WhatWasMeasuredIsKeptForItsUserAndALostRankIsTold) {
  const auto ending = [](const std::exception_ptr& error) {
    return Patience{false, kWithoutEnd_s, 0, [error, looks = 0]() mutable {
                      // Between the machine's stages and the training's steps, once.
                      if (++looks == 60) std::rethrow_exception(error);
                      return 0.0;
                    }};
  };
  Heard heard;
  EXPECT_THROW(stages(ending(std::make_exception_ptr(Interrupted())), 2, 0, &heard), Interrupted);
  EXPECT_EQ(heard.kept, 1);
  EXPECT_EQ(heard.lost, 0);
  ASSERT_FALSE(heard.stages.empty());
  EXPECT_EQ(heard.stages.back().name, "what was to follow");
  EXPECT_TRUE(heard.stages.back().skipped);
  EXPECT_EQ(heard.stages.back().note, "it was ended by its user (Ctrl-C, SIGTERM or SIGHUP)");
  Heard of_lost;
  EXPECT_THROW(stages(ending(std::make_exception_ptr(BackendError("it is gone"))), 2, 0, &of_lost), BackendError);
  EXPECT_EQ(of_lost.lost, 1);
  EXPECT_EQ(of_lost.kept, 0);
  EXPECT_EQ(of_lost.rank, 0) << "of one process it is the one";
  EXPECT_THAT(of_lost.why, HasSubstr("it is gone"));
}

/// Stages of two processes, which are threads here; the second one does `other`.
Measured of_processes(const Patience& patience, Heard& heard, const std::function<void(Job& job)>& other) {
  const Cell cell = open_cell(tiny(2));
  const config::Acceptance wanted = expecting(0);
  const int port = launch::testing::free_port();
  Measured measured;
  launch::run_ranks(2, [&](int rank) {
    Job job(launch::testing::place(rank, 2, port));
    if (rank == 1) return other(job);
    try {
      measured = measure_stages(
          wanted, cell, patience, &job,
          [&](const std::vector<std::string>& nodes, int lost, const std::string& why, bool hangs) {
            heard = {.lost = heard.lost + 1, .rank = lost, .why = why, .stages = {}};
            heard.nodes = nodes;
            heard.hangs = hangs;
          },
          [&](const Measured&) { ++heard.kept; });
      announce_end(job, 7);
    } catch (const BackendError& error) {
      job.channel().fail(error.what());
    }
  });
  return measured;
}

TEST(AcceptanceStagesTest, ProcessesServeTheStagesThatRank0Leads) {
  Heard heard;
  std::atomic<int> code = 0;
  ::testing::internal::CaptureStderr();
  const Measured m = of_processes({false, kWithoutEnd_s, 600, [] { return 0.0; }}, heard, [&](Job& job) {
    code = serve(job, {{kAcceptanceService, serve_acceptance}});
    const nlohmann::json order{
        {"stage", "steps"}, {"config", ""}, {"effort", fields<AcceptanceEffort>().write(AcceptanceEffort{})}};
    EXPECT_THROW(serve_acceptance(job, JsonPart(order)), Error) << "a training is ordered by others";
  });
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr(": matrix products of all 2 ranks, about "));
  EXPECT_EQ(code, 7);
  EXPECT_EQ(heard.lost + heard.kept, 0);
  const std::string parts = "computation alone, communication alone and both";
  EXPECT_THAT(names(m), ElementsAre("inventory", "matrix products", "pairs", "all_gather", "reduce_scatter",
                                    "all_gather", "reduce_scatter", "all_gather", "reduce_scatter",
                                    "collectives in groups", "training steps", parts));
  EXPECT_EQ(m.raw.hosts.size(), 2U);
  EXPECT_EQ(m.raw.clocks.size(), 2U);
  EXPECT_EQ(m.raw.standstill_s.size(), 2U);
  EXPECT_EQ(m.raw.arms.size(), 8U);
  EXPECT_EQ(m.trial->measurement.traces.size(), 2U);
}

TEST(AcceptanceStagesTest, RanksThatHangAreEndedAtTheLimitAndTheLastStageIsTold) {
  Heard heard;
  ::testing::internal::CaptureStderr();
  of_processes({false, kWithoutEnd_s, 0.2, [] { return 0.0; }}, heard, [](Job& job) {
    EXPECT_THROW(job.channel().receive(0, "what never comes"), BackendError);  // it serves nothing
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("the ranks did not come to an end within 0.2 s"));
  EXPECT_EQ(heard.lost, 1);
  EXPECT_TRUE(heard.hangs);
  EXPECT_EQ(heard.rank, -1);
  EXPECT_EQ(heard.why,
            "the ranks did not come to an end within 0.2 s (--limit); the last stage was: before the first stage");
  EXPECT_EQ(heard.nodes.size(), 2U);
}

TEST(AcceptanceStagesTest, ARankThatFailsIsNamedWithItsReason) {
  Heard heard;
  ::testing::internal::CaptureStderr();
  of_processes({false, kWithoutEnd_s, 600, [] { return 0.0; }}, heard, [](Job& job) {
    const Service names_only = [](Job& other, const JsonPart& order) {
      if (order.text("stage", "") == "names") return serve_acceptance(other, order);
      other.channel().fail("its memory is full");
    };
    EXPECT_THROW(serve(job, {{kAcceptanceService, names_only}}), BackendError);
  });
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(heard.lost, 1);
  EXPECT_FALSE(heard.hangs);
  EXPECT_EQ(heard.rank, 1);
  EXPECT_THAT(heard.why, HasSubstr("its memory is full"));
  EXPECT_EQ(heard.nodes, std::vector<std::string>(2, launch::node_name()));
}

}  // namespace
}  // namespace fsdpbench::app
