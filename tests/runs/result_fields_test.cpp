#include "runs/result_fields.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/support.h"
#include "support/trials.h"

namespace fsdpbench::app {
namespace {

using fsdpbench::testing::made_up_trial;
using nlohmann::json;
using ::testing::HasSubstr;

TEST(TrialFields, ReadingGivesWhatWasWritten) {
  const json written = to_json(made_up_trial({3, 1, 2}));
  const Trial read = trial_from_json(written);
  EXPECT_EQ(to_json(read), written);
  EXPECT_EQ(read.metrics->steps_ms, (std::vector<double>{3, 1, 2}));
  EXPECT_EQ(read.causes->causes.front().late_rank, 1);
  EXPECT_EQ(read.world.program, made_up_trial({1}).world.program);
}

TEST(TrialFields, WhatWasNotMeasuredIsAbsentBothWays) {
  Trial trial = made_up_trial({1});
  trial.metrics->overlap_pct.reset();
  trial.flops->mfu_pct.reset();
  const json written = to_json(trial);
  EXPECT_FALSE(written["metrics"].contains("overlap_pct"));
  EXPECT_FALSE(written["metrics"].contains("mfu_pct"));
  const Trial read = trial_from_json(written);
  EXPECT_FALSE(read.metrics->overlap_pct.has_value());
  EXPECT_EQ(to_json(read), written);
}

TEST(TrialFields, ATrialWithoutMeasuredStepsHasNoMetrics) {
  Trial trial = made_up_trial({1});
  trial.metrics.reset();
  trial.causes.reset();
  trial.flops.reset();
  const json written = to_json(trial);
  for (const char* part : {"metrics", "causes", "comm", "steps_ms"}) EXPECT_FALSE(written.contains(part)) << part;
  EXPECT_FALSE(trial_from_json(written).metrics.has_value());
}

TEST(TrialFields, AnUnratedTrialHasAReasonInsteadOfCauses) {
  Trial trial = made_up_trial({1, 2});
  trial.fidelity = account::Fidelity{account::ModelledTime{100, 130}, {}, 30, 0.5};
  trial.caveats = {"not rated: of course"};
  const json written = to_json(trial);
  EXPECT_EQ(written["rated"], false);
  EXPECT_THAT(written["not_rated_because"].get<std::string>(), HasSubstr("130.0 ms a step where 100.0 are modelled"));
  EXPECT_FALSE(written.contains("causes"));
  EXPECT_EQ(written["metrics"]["emulation_fidelity"]["compute"]["observed_ms"], 130);
  EXPECT_EQ(to_json(trial_from_json(written)), written);
  trial.fidelity->excess_pct = 4;
  EXPECT_EQ(to_json(trial)["rated"], true);
  EXPECT_TRUE(to_json(trial).contains("causes"));
}

TEST(TrialFields, ReadsTheStepsOfAWholeResult) {
  json result = to_json(made_up_trial({3, 1, 2}));
  result["steps"]["slowest_rank_ms"] = result["steps_ms"];
  result.erase("steps_ms");
  EXPECT_EQ(trial_from_json(result).metrics->steps_ms, (std::vector<double>{3, 1, 2}));
}

TEST(TrialFields, SaysWhatIsMissingOrWrong) {
  const auto error = [](const json& broken) { return config::config_error([&] { trial_from_json(broken); }); };
  json j = to_json(made_up_trial({1}));
  j["metrics"].erase("idle_ms");
  EXPECT_THAT(error(j), HasSubstr("metrics.idle_ms is missing"));
  j = to_json(made_up_trial({1}));
  j["causes"][0]["cause"] = "bad luck";
  EXPECT_THAT(error(j), HasSubstr("bad luck"));
  j = to_json(made_up_trial({1}));
  j["world"]["cpu"] = 7;
  EXPECT_THAT(error(j), HasSubstr("world.cpu: expected a text, found 7"));
  for (const double share : {2.5, -0.5}) {
    j = to_json(made_up_trial({1}));
    j["others_share"] = share;
    EXPECT_THAT(error(j), HasSubstr(fmt::format("others_share: expected a share from 0 to 1, found {}", share)));
  }
}

TEST(TrialFields, EveryNumberOfTheMetricsIsAFigureOnce) {
  const Trial trial = made_up_trial({1});
  const json metrics = to_json(trial)["metrics"];
  std::set<std::string> numbers;
  for (const TrialFigure& figure : figures_of(trial)) {
    EXPECT_TRUE(numbers.insert(figure.path).second) << figure.path;
    EXPECT_EQ(&figure_at(figure.path), figure.field);
    EXPECT_FALSE(figure.field->figure.label.empty());
  }
  for (const auto& [name, value] : metrics.items()) {
    EXPECT_EQ(value.is_number() || name == "step_ms", numbers.contains("metrics." + name)) << name;
  }
  for (const char* whole : {"memory.peak_bytes", "comm.wire_bytes_per_rank"}) EXPECT_TRUE(numbers.contains(whole));
}

TEST(TrialFields, WholesOfFiguresAreTheirMedianTheirTotalOrTheirSum) {
  const std::vector<TrialFigure> figures = figures_of(made_up_trial({3, 1, 2}));
  const auto value = [&](std::string_view path) { return std::ranges::find(figures, path, &TrialFigure::path)->value; };
  EXPECT_EQ(value("metrics.step_ms"), 2);
  EXPECT_EQ(value("memory.peak_bytes"), 8);
  EXPECT_EQ(value("comm.wire_bytes_per_rank"), 36);
}

}  // namespace
}  // namespace fsdpbench::app
