#include "accept/gate/gated_result.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>

#include "accept/gate/gate_cases.h"
#include "accept/gate/gate_report.h"
#include "base/digest.h"
#include "base/error.h"
#include "config/support.h"
#include "runs/result_file.h"

namespace fsdpbench::app {
namespace {

using config::config_error;
using config::TemporaryFolder;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

TEST(GatedResultTest, ARunBringsItsStepsAndWhatIsCounted) {
  const GatedResult r = stored(run_json({10, 11, 12}), "monday");
  EXPECT_EQ(r.name, "monday");
  EXPECT_EQ(r.kind, "run");
  EXPECT_EQ(r.not_accepted_because, "");
  EXPECT_THAT(r.figures.figures.front().samples, ElementsAre(10, 11, 12));
  EXPECT_FALSE(r.measured["train"].contains("steps")) << "how often is not what";
  std::vector<std::string> told;
  for (const accept::MeasuredFigure& f : r.figures.figures) {
    told.push_back(fmt::format("{}: {} {}{}{}{}", f.name, f.value.median, f.unit, f.higher_is_better ? ", more" : "",
                               f.counted ? ", counted" : "", f.explains ? ", explains" : ""));
  }
  EXPECT_THAT(told, ElementsAre("step time: 11 ms", "compute: 5 ms, explains", "exposed communication: 0 ms, explains",
                                "peak memory: 8 B, counted", "bytes on the wire: 36 B, counted"));
}

TEST(GatedResultTest, OtherWorkBesideARunIsKept) {
  json j = run_json({10, 11, 12});
  EXPECT_EQ(stored(j).figures.others_share, 0);
  j["others_share"] = 0.25;
  EXPECT_EQ(stored(j).figures.others_share, 0.25);
}

TEST(GatedResultTest, ATableOfItsConfigurationIsOne) {
  json j = run_json({10, 11, 12});
  j["config"]["train"] = 3;
  EXPECT_THAT(config_error([&] { stored(j); }), HasSubstr("config.train"));
}

TEST(GatedResultTest, AnAcceptanceBringsEachMeasuredFigureOnce) {
  const GatedResult r = stored(accept_json(40));
  ASSERT_THAT(r.figures.figures, SizeIs(2));
  EXPECT_EQ(r.figures.figures[0].name, "pairs");
  EXPECT_TRUE(r.figures.figures[0].higher_is_better);
  EXPECT_EQ(r.figures.figures[1].name, "share of a step without exposed communication, steps");
  EXPECT_DOUBLE_EQ(r.figures.figures[1].value.low, 0.99);
}

TEST(GatedResultTest, AnAcceptanceBringsTailsLatenciesAndTheArmsOfAStep) {
  json j = accept_json(40);
  const json value{{"median", 3.0}, {"ci_low", 2.0}, {"ci_high", 4.0}, {"n", 5}};
  for (const char* rule : {"tail", "latency", "slow-down", "peers"}) {
    j["judgements"].push_back(
        {{"rule", rule}, {"figure", "f"}, {"verdict", "pass"}, {"why", "w"}, {"unit", "us"}, {"value", value}});
  }
  json unmeasured = j["judgements"][0];
  unmeasured["figure"] = "not measured";
  unmeasured.erase("value");
  j["judgements"].push_back(unmeasured);
  json round{{"compute_ms", 7.0}, {"comm_ms", 5.0}, {"step_ms", 9.0}};
  for (const char* more : {"kernels_alone_ms", "kernels_beside_ms", "transfers_alone_ms", "transfers_beside_ms"}) {
    round[more] = 1.0;
  }
  j["arms"] = {{"rounds", std::vector<json>(8, round)}};
  const GatedResult r = stored(j);
  std::vector<std::string> names;
  for (const accept::MeasuredFigure& f : r.figures.figures) names.push_back(f.name);
  EXPECT_THAT(names, ElementsAre("pairs", "share of a step without exposed communication, steps", "f, time", "f",
                                 "f, again", "computation of a step, alone", "communication of a step, alone", "step"));
  const accept::MeasuredFigure& tail = r.figures.figures[2];
  EXPECT_FALSE(tail.higher_is_better);
  EXPECT_EQ(tail.value.median, 3);
  EXPECT_EQ(tail.unit, "us");
  EXPECT_TRUE(r.figures.figures[1].higher_is_better);
  EXPECT_EQ(r.figures.figures[1].value.high, 1);
  EXPECT_EQ(r.figures.figures[1].value.n, 8);
  EXPECT_EQ(r.figures.figures[5].value.median, 7);
  EXPECT_EQ(r.figures.figures[6].value.median, 5);
  EXPECT_EQ(r.figures.figures[7].samples, std::vector<double>(8, 9));
  EXPECT_EQ(r.figures.figures[7].unit, "ms");
  EXPECT_EQ(r.figures.measured_on, accept::MeasuredOn::processors);
  EXPECT_EQ(r.date, "2026-01-01T00:00:00+0000");

  j["judgements"][2]["value"] = {{"median", 0.25}, {"ci_low", 0.125}, {"ci_high", 0.5}, {"n", 1}};
  const accept::Interval rest = stored(j).figures.figures[1].value;
  EXPECT_EQ(rest.median, 0.75);
  EXPECT_EQ(rest.low, 0.5);
  EXPECT_EQ(rest.high, 0.875);
  j["arms"]["rounds"] = json::array();
  EXPECT_THAT(stored(j).figures.figures, SizeIs(5));
}

TEST(GatedResultTest, OtherWorkBesideCpuRanksIsKept) {
  json j = accept_json(40);
  EXPECT_EQ(stored(j).figures.others_share, 0);
  j["others_share"] = 0.5;
  EXPECT_EQ(stored(j).figures.others_share, 0.5);
  for (const double share : {0.1, 0.09}) {
    j["others_share"] = share;
    EXPECT_EQ(stored(j).figures.others_share, share < 0.1 ? 0 : share) << "less than a tenth is a quiet machine";
  }
  for (const double share : {2.5, -0.5}) {
    j["others_share"] = share;
    EXPECT_THAT(config_error([&] { stored(j); }), HasSubstr("others_share: expected a share from 0 to 1"));
  }
  j["others_share"] = 0.5;
  World gpus = world_of();
  gpus.backend = "cuda";
  json on_gpus = accept_json(40, "pass", gpus);
  on_gpus["others_share"] = 0.5;
  EXPECT_EQ(stored(on_gpus).figures.others_share, 0) << "GPUs are nobody else's";
  EXPECT_EQ(stored(on_gpus).figures.measured_on, accept::MeasuredOn::gpus);
  gpus.backend = "virtual";
  EXPECT_EQ(stored(run_json({10, 10, 10}, gpus)).figures.measured_on, accept::MeasuredOn::computed_clock);
}

TEST(GatedResultTest, OnlyRunsAndAcceptancesAreGated) {
  EXPECT_THAT(config_error([] {
                stored({{"kind", "collectives"}});
              }),
              HasSubstr("it is a result of collectives; expected one of accept, run or simulate"));
  EXPECT_THAT(config_error([] { stored({{"sweep_hash", "x"}}); }), HasSubstr("it is a result of sweep"));
}

TEST(GatedResultTest, AnInjectedFaultIsGatedAsOneThatCameByItselfAndIsSaid) {
  const json good = run_json({10, 10.1, 10.2, 10, 10.1, 10.2});
  json slow = run_json({30, 30.1, 30.2, 30, 30.1, 30.2});
  slow["config"]["inject"] = {{"slow_rank", 2}, {"slow_rank_factor", 3.0}, {"slow_link_rank", -1}};
  const GateReport report = judge_gate(three_of(good), {stored(slow)}, OtherMachine::no, 0.05);
  EXPECT_EQ(report.not_comparable_because, "");
  EXPECT_EQ(report.exit_code(), static_cast<int>(ExitCode::slower));
  EXPECT_THAT(report.headline(), HasSubstr("INJECTED: inject.slow_rank = 2, inject.slow_rank_factor = 3.0"));
  EXPECT_EQ(gate_json(report)["now"]["results"][0]["injected"].size(), 2U);
}

TEST(GatedResultTest, WhatDidNotPassSaysWhy) {
  EXPECT_EQ(stored(accept_json(40, "inconclusive")).not_accepted_because, "its verdict is inconclusive");
  json stopped = run_json({10, 11, 12});
  stopped["complete"] = false;
  EXPECT_THAT(stored(stopped).not_accepted_because, HasSubstr("stopped"));
  json unrated = run_json({10, 11, 12});
  unrated["rated"] = false;
  unrated["not_rated_because"] = "too slow";
  EXPECT_THAT(stored(unrated).not_accepted_because, HasSubstr("too slow"));
}

TEST(GatedResultTest, WhatIsNoResultIsSaidToBeNone) {
  const TemporaryFolder folder;
  EXPECT_THAT(config_error([&] { read_gated_result(folder.write("x.json", "{}")); }),
              HasSubstr("x.json: is no result"));
  EXPECT_THAT(config_error([&] { read_gated_result(folder.write("y.json", "{\"kind\":")); }), HasSubstr("cut off"));
  EXPECT_THAT(config_error([&] { read_gated_result((folder.path() / "nowhere").string()); }),
              HasSubstr("there is no such file"));
  json damaged = accept_json(40);
  damaged["judgements"][0]["value"].erase("n");
  EXPECT_THAT(config_error([&] { stored(damaged); }), HasSubstr("judgements[0].value.n is missing"));
}

TEST(GatedResultTest, AVerdictThatWasChangedByHandIsNoBaseline) {
  const TemporaryFolder folder;
  const auto refused = [&](const json& content) {
    return config_error([&] { read_gated_result(folder.write("r/result.json", content.dump())); });
  };
  const json failed = json::parse(result_text(accept_json(40, "fail")));
  json changed = failed;
  changed["verdict"] = "pass";
  EXPECT_THAT(refused(changed), HasSubstr("it was changed after it was written"));
  changed["digest"] = json_digest(changed);
  EXPECT_THAT(refused(changed), HasSubstr("verdict: expected \"fail\", as the judgements have it"));
  for (json& one : changed["judgements"]) one["verdict"] = "pass";
  changed["digest"] = json_digest(changed);
  EXPECT_EQ(read_gated_result(folder.write("r/result.json", changed.dump())).not_accepted_because, "");
}

TEST(GatedResultTest, EveryKeyThatDecidesIsAskedForAndOfItsType) {
  // Without any of these something was passed, or said in a library's words.
  const std::vector<std::pair<json, std::vector<const char*>>> needed{
      {run_json({10, 11, 12}),
       {"/complete", "/rated", "/config", "/world", "/metrics/step_ms/n", "/metrics/step_ms/median",
        "/metrics/compute_ms", "/memory/peak_bytes/total", "/comm/wire_bytes_per_rank/all_gather"}},
      {accept_json(40),
       {"/verdict", "/fabric", "/ranks", "/nodes", "/world", "/judgements/0/rule", "/judgements/0/verdict",
        "/judgements/0/value/n"}}};
  for (const auto& [whole, keys] : needed) {
    EXPECT_NO_THROW(stored(whole));
    for (const char* key : keys) {
      const json::json_pointer at(key);
      json j = whole;
      j[at.parent_pointer()].erase(at.back());
      EXPECT_THAT(config_error([&] { stored(j); }), HasSubstr(at.back() + " is missing")) << key;
    }
  }
}

TEST(GatedResultTest, WhatNothingMeasuresIsRefused) {
  const std::vector<std::tuple<json, const char*, json>> all{
      {run_json({10, 11}), "/steps_ms/1", 0},
      {run_json({10, 11}), "/steps_ms", json::array()},
      {run_json({10, 11}), "/metrics/step_ms/median", 86},
      {run_json({10, 11}), "/metrics/exposed_comm_ms", -1},
      {run_json({10, 11}), "/comm/wire_bytes_per_rank/all_gather", -1},
      {accept_json(40), "/judgements/0/value/ci_high", 30},
      {accept_json(40), "/judgements/0/value/n", 0}};
  for (const auto& [whole, key, value] : all) {
    json j = whole;
    j[json::json_pointer(key)] = value;
    EXPECT_THAT(config_error([&] { stored(j); }), HasSubstr("expected ")) << key << " " << value;
  }
}

TEST(GatedResultTest, FilesOfOtherCommandsAreNamed) {
  const TemporaryFolder folder;
  const auto refused = [&](const char* text) {
    return config_error([&] { read_gated_result(folder.write("x.json", text)); });
  };
  EXPECT_THAT(refused(R"({"schema_version": 1, "name": "x", "optimality_gap": 0.1})"),
              HasSubstr("x.json: is what tune found; expected the folder or file of a result of `fsdpbench accept`"));
  EXPECT_THAT(refused(R"({"schema_version": 1, "what_if": {}})"), HasSubstr("x.json: is a prediction of what-if; "));
  EXPECT_THAT(refused(R"({"schema_version": 1, "kind": "expect"})"), HasSubstr("is what expect says of a machine; "));
  EXPECT_THAT(refused(R"({"kind": "trace_explanation"})"), HasSubstr("is an explained trace; "));
}

TEST(GatedResultTest, WhyARunWasNotAcceptedIsASentence) {
  const auto why = [](const std::function<void(json&)>& change) {
    json j = run_json({10, 11, 12});
    change(j);
    return stored(j).not_accepted_because;
  };
  EXPECT_EQ(why([](json&) {}), "");
  EXPECT_EQ(why([](json& j) {
              j["failure"] = {{"message", "rank 1 died"}};
            }),
            "this run did not finish (rank 1 died) and its result holds the step times of one rank only");
  EXPECT_EQ(why([](json& j) { j["complete"] = false; }), "the run was stopped before its last step");
  EXPECT_EQ(why([](json& j) { j["diverged_because"] = "the loss is NaN"; }), "training diverged: the loss is NaN");
  EXPECT_EQ(why([](json& j) { j["rated"] = false; }), "it is not rated: the file does not say why");
}

TEST(GatedResultTest, AFigureThatCannotBeIsNamedWithItsInterval) {
  const auto with = [](double low, double median, double high) {
    json j = accept_json(40);
    j["judgements"][0]["value"] = {{"median", median}, {"ci_low", low}, {"ci_high", high}, {"n", 2}};
    return j;
  };
  for (const auto& [low, median, high] :
       {std::tuple{40.0, 40.0, 40.0}, {0.0, 0.0, 0.0}, {0.0, 1.0, 1.0}, {1.0, 1.0, 2.0}}) {
    EXPECT_NO_THROW(stored(with(low, median, high))) << low << ' ' << median << ' ' << high;
  }
  for (const auto& [low, median, high] : {std::tuple{41.0, 40.0, 42.0}, {39.0, 43.0, 42.0}, {-1.0, 40.0, 42.0}}) {
    EXPECT_THROW(stored(with(low, median, high)), ConfigError) << low << ' ' << median << ' ' << high;
  }
  EXPECT_THAT(config_error([&] { stored(with(-1, 40, 42)); }),
              ::testing::EndsWith("its figure 'pairs' is 40 GB/s (-1 to 42, of 2 values): expected values from 0 on."));
  GatedResult two = stored(run_json({10, 11}));
  EXPECT_EQ(two.figures.name, "r");
  json twice = accept_json(40);
  twice["judgements"].push_back(twice["judgements"][0]);
  EXPECT_EQ(stored(twice).figures.figures.back().name, "pairs, again");
  twice["judgements"].push_back(twice["judgements"][0]);
  EXPECT_EQ(stored(twice).figures.figures.back().name, "pairs, again, again");
  json none = accept_json(40);
  none["judgements"] = json::array({none["judgements"][1]});
  EXPECT_THAT(config_error([&] { stored(none); }), HasSubstr("it has no figure to compare"));
}

TEST(GatedResultTest, ItsNameIsThatOfItsFolderUnlessTheFileHasOne) {
  const TemporaryFolder folder;
  const std::string text = result_text(run_json({10, 11, 12}));
  EXPECT_EQ(read_gated_result(folder.write("monday/result.json", text)).name, "monday");
  EXPECT_EQ(read_gated_result(folder.write("monday/tuesday.json", text)).name, "tuesday");
}

TEST(GatedResultTest, OnlyWhatDiffersFromNoFaultIsInjected) {
  json j = run_json({10, 11, 12});
  j["config"]["inject"] = {{"slow_rank", -1}, {"slow_rank_factor", 1.0}, {"unheard_of", 3}};
  j["config"]["trace"] = {{"x", 1}};
  j["config"]["checkpoint"] = {{"folder", "f"}};
  j["config"]["train"]["warmup"] = 3;
  const GatedResult r = stored(j);
  EXPECT_THAT(r.injected, ::testing::Contains("inject.unheard_of = 3"));
  EXPECT_THAT(r.injected, Not(::testing::Contains(HasSubstr("slow_rank = "))));
  EXPECT_EQ(r.measured, json::parse(R"({"fsdp": {"layout": "flat"}, "train": {"seq_len": 16}})"));
}

}  // namespace
}  // namespace fsdpbench::app
