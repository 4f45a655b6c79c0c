// Accepted results, and later ones held against them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "accept/gate/gate_report.h"
#include "accept/stages/judgement_files.h"
#include "base/digest.h"
#include "base/error.h"
#include "config/support.h"
#include "runs/result_fields.h"
#include "runs/result_file.h"
#include "support/trials.h"

namespace fsdpbench::app {
namespace {

using accept::Verdict;
using config::config_error;
using config::TemporaryFolder;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

World world_of(const std::string& revision = "abc") {
  World world = fsdpbench::testing::made_up_trial({1}).world;
  world.program.git_revision = revision;
  return world;
}

/// A result.json of `run`.
json run_json(const std::vector<double>& steps_ms, const World& world = world_of()) {
  json j = to_json(fsdpbench::testing::made_up_trial(steps_ms));
  j["complete"] = true;
  j["steps"] = {{"slowest_rank_ms", steps_ms}};
  j["config"] = {{"fsdp", {{"layout", "flat"}}}, {"train", {{"steps", steps_ms.size()}, {"seq_len", 16}}}};
  j["world"] = to_json(world);
  return j;
}

json accept_json(double gb_per_s, const std::string& verdict = "pass", const World& world = world_of()) {
  const json value{{"median", gb_per_s}, {"ci_low", 0.99 * gb_per_s}, {"ci_high", 1.01 * gb_per_s}, {"n", 20}};
  json j{{"kind", "acceptance"}, {"verdict", verdict}, {"fabric", "a fabric"},
         {"ranks", 2},           {"nodes", 1},         {"findings", json::array()}};
  j["judgements"] = {
      {{"rule", "floor"}, {"figure", "pairs"}, {"verdict", verdict}, {"why", "w"}, {"unit", "GB/s"}, {"value", value}},
      {{"rule", "ceiling"},
       {"figure", "pairs"},
       {"verdict", verdict},
       {"why", "w"},
       {"unit", "GB/s"},
       {"value", value}},
      {{"rule", "exposed communication"},
       {"figure", "steps"},
       {"verdict", verdict},
       {"why", "w"},
       {"unit", "of a step"},
       {"value", {{"median", 0.0}, {"ci_low", 0.0}, {"ci_high", 0.01}, {"n", 8}}}}};
  j["world"] = to_json(world);
  return j;
}

GatedResult stored(const json& content, const std::string& name = "r") {
  const TemporaryFolder folder;
  folder.write(name + "/result.json", result_text(content));
  return read_gated_result((folder.path() / name).string());
}

Baseline baseline_of(const std::vector<GatedResult>& results) { return {"some", results, {}}; }
/// As many results as show how much they scatter: not at all.
Baseline three_of(const json& content) { return baseline_of({stored(content), stored(content), stored(content)}); }

TEST(GatedResultTest, ARunBringsItsStepsAndWhatIsCounted) {
  const GatedResult r = stored(run_json({10, 11, 12}), "monday");
  EXPECT_EQ(r.name, "monday");
  EXPECT_EQ(r.kind, "run");
  EXPECT_EQ(r.not_accepted_because, "");
  EXPECT_THAT(r.figures.figures.front().samples, ElementsAre(10, 11, 12));
  EXPECT_FALSE(r.measured["train"].contains("steps")) << "how often is not what";
  const auto memory = std::ranges::find(r.figures.figures, "peak memory", &accept::MeasuredFigure::name);
  ASSERT_NE(memory, r.figures.figures.end());
  EXPECT_TRUE(memory->counted);
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
  EXPECT_EQ(r.figures.figures[7].samples, std::vector<double>(8, 9));
  EXPECT_EQ(r.figures.figures[7].unit, "ms");
  EXPECT_EQ(r.figures.measured_on, accept::MeasuredOn::processors);
  EXPECT_EQ(r.date, "2026-01-01T00:00:00+0000");
}

TEST(GatedResultTest, OtherWorkBesideCpuRanksIsKept) {
  json j = accept_json(40);
  EXPECT_EQ(stored(j).figures.others_share, 0);
  j["others_share"] = 0.5;
  EXPECT_EQ(stored(j).figures.others_share, 0.5);
  j["others_share"] = 0.01;
  EXPECT_EQ(stored(j).figures.others_share, 0) << "less than a quiet machine has";
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

/// A folder of results, by name.
class BaselineFolder {
 public:
  void add(const std::string& name, const json& content) const {
    folder_.write(name + "/result.json", result_text(content));
  }
  Baseline found_for(const json& now) const { return find_baseline(path(), stored(now, "now")); }
  std::vector<std::string> names_for(const json& now) const {
    std::vector<std::string> names;
    for (const GatedResult& result : found_for(now).results) names.push_back(result.name);
    return names;
  }
  std::string path() const { return folder_.path().string(); }
  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
};

World other_kernel() {
  World world = world_of();
  world.kernel = "an older kernel";
  return world;
}

TEST(FindBaseline, AllResultsOfOneMachineCountWhateverTheRevision) {
  const BaselineFolder kept;
  kept.add("monday", run_json({10, 11, 12}));
  kept.add("tuesday", run_json({10, 11, 13}, world_of("def")));
  kept.add("other", run_json({10, 11, 14}, other_kernel()));
  kept.folder().write("README.md", "no result");
  kept.folder().write("gate/gate.json", "{}");
  EXPECT_THAT(kept.names_for(run_json({1, 2, 3}, world_of("ghi"))), ElementsAre("monday", "tuesday"));
  EXPECT_THAT(kept.names_for(run_json({1, 2, 3}, other_kernel())), ElementsAre("other"));
  kept.folder().write("wednesday.json", result_text(run_json({10, 11, 15})));
  EXPECT_THAT(kept.names_for(run_json({1, 2, 3})), ElementsAre("monday", "tuesday", "wednesday"));
}

TEST(FindBaseline, ACopyAndTheResultItselfCountNotTwice) {
  const BaselineFolder kept;
  kept.add("a", run_json({10, 11, 12}));
  kept.add("b", run_json({10, 11, 12}));
  kept.add("now", run_json({20, 21, 22}));
  EXPECT_THAT(kept.names_for(run_json({20, 21, 22})), ElementsAre("a"));
}

TEST(FindBaseline, WhatWasNotAcceptedIsLeftOutUnlessTheLaterResultWasNotEither) {
  const BaselineFolder kept;
  kept.add("good", accept_json(40));
  kept.add("bad", accept_json(41, "fail"));
  const Baseline found = kept.found_for(accept_json(42));
  EXPECT_THAT(found.results, SizeIs(1));
  EXPECT_THAT(found.left_out, ElementsAre("bad was not accepted: its verdict is fail"));
  EXPECT_THAT(kept.names_for(accept_json(43, "fail")), ElementsAre("bad", "good"));
  const BaselineFolder bad;
  bad.add("bad", accept_json(41, "fail"));
  EXPECT_THAT(config_error([&] { bad.found_for(accept_json(42)); }), HasSubstr("no result there was accepted: bad"));
}

TEST(FindBaseline, TheNearestMeasurementIsFoundAndSaidToDiffer) {
  const BaselineFolder kept;
  json other = run_json({10, 11, 12});
  other["config"]["fsdp"]["layout"] = "per_param";
  kept.add("other", other);
  EXPECT_THAT(kept.names_for(run_json({10, 11, 12})), ElementsAre("other")) << "gate says in what it differs";
  kept.add("same", run_json({10, 11, 13}, other_kernel()));
  EXPECT_THAT(kept.names_for(run_json({10, 11, 12})), ElementsAre("same"));
}

TEST(FindBaseline, AResultIsABaselineOfOne) {
  const BaselineFolder kept;
  kept.add("plain", run_json({20, 21, 22}));
  const GatedResult now = stored(run_json({20, 21, 22}), "now");
  const Baseline alone = find_baseline(kept.path() + "/plain", now);
  EXPECT_EQ(alone.name, "plain");
  EXPECT_EQ(alone.results.front().name, "plain");
  EXPECT_THAT(config_error([&] { find_baseline("nowhere-at-all", now); }), HasSubstr("no such file or folder"));
}

TEST(FindBaseline, WhatIsThereInsteadIsSaid) {
  const BaselineFolder kept;
  EXPECT_THAT(config_error([&] { kept.found_for(run_json({10, 11, 12})); }), HasSubstr("holds no result"));
  kept.add("monday", run_json({10, 11, 12}));
  EXPECT_THAT(config_error([&] { kept.found_for(accept_json(40)); }),
              AllOf(HasSubstr("no other result there is of an acceptance, as now is"), HasSubstr("results of: run")));
}

TEST(FindBaseline, ADamagedResultIsNotPassedOver) {
  const BaselineFolder kept;
  kept.add("monday", run_json({10, 11, 12}));
  json changed = json::parse(result_text(run_json({10, 11, 13})));
  changed["steps"]["slowest_rank_ms"][0] = 86;
  kept.folder().write("tuesday/result.json", changed.dump());
  EXPECT_THAT(config_error([&] {
                kept.found_for(run_json({1, 2, 3}));
              }),
              AllOf(HasSubstr("tuesday"), HasSubstr("it was changed after it was written")));
}

TEST(FindBaseline, ARunWithoutAStepIsLeftOut) {
  const BaselineFolder kept;
  json none = run_json({10, 11, 12});
  none.erase("metrics");
  kept.folder().write("tuesday/result.json", result_text(none));
  EXPECT_THAT(
      config_error([&] {
        kept.found_for(run_json({1, 2, 3}));
      }),
      AllOf(HasSubstr("holds no result that can be gated: "), HasSubstr("tuesday/result.json: no measured step")));
  kept.add("monday", run_json({10, 11, 12}));
  const Baseline found = kept.found_for(run_json({1, 2, 3}));
  EXPECT_EQ(found.results.size(), 1U);
  EXPECT_THAT(found.left_out, ElementsAre(HasSubstr("no measured step was completed")));
}

TEST(Gate, ASlowerRunFailsAndAnEqualOnePasses) {
  const Baseline before =
      baseline_of({stored(run_json({2000, 2020, 1980, 2000})), stored(run_json({2020})), stored(run_json({1980}))});
  const GateReport same = judge_gate(before, {stored(run_json({2000, 2000, 2020, 1980}))}, OtherMachine::no, 0.05);
  EXPECT_EQ(same.exit_code(), static_cast<int>(ExitCode::ok)) << gate_table(same);
  const GateReport slow = judge_gate(before, {stored(run_json({2400, 2400, 2420, 2380}))}, OtherMachine::no, 0.05);
  EXPECT_EQ(slow.exit_code(), static_cast<int>(ExitCode::slower));
  EXPECT_THAT(gate_table(slow), AllOf(HasSubstr("WORSE: 1 of"), HasSubstr("step time")));
  EXPECT_THAT(gate_markdown(slow), HasSubstr("| step time | 2.00 s | 2.40 s | WORSE |"));
  EXPECT_THAT(junit_xml({.suite = "gate"}, slow.judgements), HasSubstr("<failure type=\"change\""));
  EXPECT_EQ(gate_json(slow)["verdict"], "fail");
}

TEST(Gate, OneStepAgainstOneResultCannotBeJudged) {
  for (const double now : {13.6, 86.0}) {
    const GateReport r =
        judge_gate(baseline_of({stored(run_json({13.6}))}), {stored(run_json({now}))}, OtherMachine::no, 0.05);
    EXPECT_EQ(r.exit_code(), static_cast<int>(ExitCode::inconclusive)) << gate_table(r);
  }
}

TEST(Gate, BytesAloneArePassedByEverySlowMachine) {
  GatedResult before = stored(run_json({10, 10, 10}));
  std::erase_if(before.figures.figures, [](const accept::MeasuredFigure& f) { return !f.counted; });
  const GateReport r = judge_gate(baseline_of({before}), {stored(run_json({86, 86, 86}))}, OtherMachine::no, 0.05);
  EXPECT_EQ(r.exit_code(), static_cast<int>(ExitCode::inconclusive));
  EXPECT_THAT(gate_table(r), HasSubstr("no figure that was measured could be judged"));
}

TEST(Gate, AnotherMachineIsNotCompared) {
  World other = world_of();
  other.cpu = "another processor";
  const Baseline before = three_of(run_json({10, 10, 10}));
  const GatedResult now = stored(run_json({20, 20, 20}, other));
  const GateReport no = judge_gate(before, {now}, OtherMachine::software, 0.05);
  EXPECT_EQ(no.exit_code(), static_cast<int>(ExitCode::other_machine));
  EXPECT_THAT(no.changes, IsEmpty());
  EXPECT_THAT(no.not_comparable_because, HasSubstr("processor"));
  EXPECT_EQ(no.judgements.back().sentence, no.not_comparable_because);
  EXPECT_THAT(gate_table(no),
              AllOf(HasSubstr("processor: a processor / another processor"), HasSubstr("--other-machine")));
  EXPECT_THAT(junit_xml({.suite = "gate"}, no.judgements), HasSubstr("<error type=\"machine\""));
  EXPECT_EQ(judge_gate(before, {now}, OtherMachine::any, 0.05).exit_code(), static_cast<int>(ExitCode::slower));
}

TEST(Gate, ShortRunsSayWhyTheirScatterIsNotBelieved) {
  const GateReport report =
      judge_gate(three_of(run_json({10, 10, 10})), {stored(run_json({11, 11, 11}))}, OtherMachine::no, 0.05);
  EXPECT_THAT(gate_table(report),
              HasSubstr("by 3 results, and runs as short as these (0.03 s) were recorded to scatter "
                        "by 16 %"));
}

TEST(Gate, TwoVersionsAreComparedOnPurpose) {
  World newer = world_of();
  newer.libraries = {{"fmt", "10.0.0"}};
  const Baseline before = three_of(run_json({2000, 2000, 2000}));
  const GatedResult now = stored(run_json({2000, 2000, 2000}, newer));
  EXPECT_EQ(judge_gate(before, {now}, OtherMachine::no, 0.05).exit_code(), static_cast<int>(ExitCode::other_machine));
  const GateReport asked = judge_gate(before, {now}, OtherMachine::software, 0.05);
  EXPECT_EQ(asked.exit_code(), static_cast<int>(ExitCode::ok));
  EXPECT_EQ(gate_json(asked)["differences"][0]["now"], "10.0.0");
}

TEST(Gate, AnotherConfigurationIsNotCompared) {
  json other = run_json({10, 10, 10});
  other["config"]["fsdp"]["layout"] = "per_param";
  const GateReport r =
      judge_gate(baseline_of({stored(run_json({10, 10, 10}))}), {stored(other)}, OtherMachine::any, 0.05);
  EXPECT_EQ(r.exit_code(), static_cast<int>(ExitCode::other_machine));
  EXPECT_THAT(gate_table(r), HasSubstr("fsdp.layout: \"flat\" / \"per_param\""));
}

TEST(Gate, AcceptancesThatMeasuredOtherwiseAreNotCompared) {
  json good = accept_json(40);
  good["settings"] = {{"matrix", 1024},
                      {"memory_mib", 32},
                      {"config", {{"fsdp", {{"layout", "flat"}}}, {"train", {{"steps", 30}, {"seq_len", 16}}}}}};
  const Baseline before = three_of(good);
  const auto code = [&](const json& now) {
    return judge_gate(before, {stored(now)}, OtherMachine::any, 0.05).exit_code();
  };
  EXPECT_EQ(code(good), static_cast<int>(ExitCode::ok));
  json more_steps = good;
  more_steps["settings"]["config"]["train"]["steps"] = 60;
  EXPECT_EQ(code(more_steps), static_cast<int>(ExitCode::ok)) << "how often is not what";
  const std::vector<std::pair<const char*, json>> others{{"/settings/matrix", 512},
                                                         {"/settings/memory_mib", 64},
                                                         {"/settings/config/fsdp/layout", "per_param"},
                                                         {"/settings/config/train/seq_len", 32},
                                                         {"/ranks", 4},
                                                         {"/nodes", 2},
                                                         {"/fabric", "another fabric"}};
  for (const auto& [key, value] : others) {
    json other = good;
    other[json::json_pointer(key)] = value;
    EXPECT_EQ(code(other), static_cast<int>(ExitCode::other_machine)) << key;
    // Nor are results that are gated together.
    EXPECT_EQ(judge_gate(before, {stored(good), stored(other)}, OtherMachine::any, 0.05).exit_code(),
              static_cast<int>(ExitCode::other_machine))
        << key;
  }
  json matrix = good;
  matrix["settings"]["matrix"] = 512;
  EXPECT_THAT(gate_table(judge_gate(before, {stored(matrix)}, OtherMachine::any, 0.05)),
              HasSubstr("measured differs: settings.matrix: 1024 / 512"));
  json older = good;
  older.erase("settings");
  EXPECT_EQ(code(older), static_cast<int>(ExitCode::other_machine)) << "it does not say what was set";
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
  GatedResult two = stored(run_json({10, 11}));
  EXPECT_EQ(two.figures.name, "r");
  json twice = accept_json(40);
  twice["judgements"].push_back(twice["judgements"][0]);
  EXPECT_EQ(stored(twice).figures.figures.back().name, "pairs, again");
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

TEST(FindBaseline, OfResultsOfItsKindThatAreAllItselfNoneIsLeft) {
  const BaselineFolder kept;
  kept.add("a", run_json({10, 11, 12}));
  kept.add("b", accept_json(40));
  EXPECT_THAT(config_error([&] {
                kept.found_for(run_json({10, 11, 12}));
              }),
              ::testing::EndsWith(": each result of its kind (run) there is now itself."));
  const BaselineFolder others;
  others.add("b", accept_json(40));
  EXPECT_THAT(config_error([&] {
                others.found_for(run_json({10, 11, 12}));
              }),
              ::testing::EndsWith("no other result there is of a run, as now is; there are results of: acceptance."));
}

/// First the same measurement, then the same hardware, then the same software.
TEST(FindBaseline, TheNearestIsOfTheSameMeasurementThenOfTheSameMachine) {
  json other_run = run_json({10, 11, 12});
  other_run["config"]["fsdp"]["layout"] = "per_param";
  World other_cpu = world_of();
  other_cpu.cpu = "another";
  World both = other_cpu;
  both.kernel = "7";
  const BaselineFolder kept;
  kept.add("measurement", other_run);
  kept.add("both", run_json({10, 11, 13}, both));
  EXPECT_THAT(kept.names_for(run_json({1, 2, 3})), ElementsAre("both"));
  kept.add("cpu", run_json({10, 11, 14}, other_cpu));
  EXPECT_THAT(kept.names_for(run_json({1, 2, 3})), ElementsAre("cpu"));
  kept.add("kernel", run_json({10, 11, 15}, other_kernel()));
  EXPECT_THAT(kept.names_for(run_json({1, 2, 3})), ElementsAre("kernel")) << "software is nearer than hardware";
}

TEST(Gate, AResultThatFailedByItselfPassesNoGate) {
  const GateReport r = judge_gate(three_of(accept_json(40)), {stored(accept_json(40, "fail"))}, OtherMachine::no, 0.05);
  EXPECT_EQ(r.verdict, Verdict::inconclusive);
  EXPECT_THAT(gate_markdown(r), HasSubstr("was not accepted"));
  const GatedResult kept = stored(accept_json(40, "unrated"));
  EXPECT_EQ(
      judge_gate(baseline_of({kept, kept, kept}), {stored(accept_json(40, "unrated"))}, OtherMachine::no, 0.05).verdict,
      Verdict::pass);
}

/// A result with figures of these values, lower is better; each was measured three times alike.
GatedResult with_figures(const std::vector<std::pair<std::string, double>>& figures) {
  GatedResult r = stored(run_json({10, 10, 10}));
  r.figures.figures.clear();
  r.figures.measured_on = accept::MeasuredOn::computed_clock;
  for (const auto& [name, value] : figures) {
    accept::MeasuredFigure& f = r.figures.figures.emplace_back();
    f.name = name;
    f.unit = "ms";
    f.samples.assign(3, value);
    f.value = {value, value, value, 3};
  }
  return r;
}

/// First two words of the lines that begin with one of `words`.
std::vector<std::string> first_words(const std::string& text, const std::vector<std::string>& words) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    std::string word, figure;
    if (in >> word >> figure && std::ranges::find(words, word) != words.end()) found.push_back(word + " " + figure);
  }
  return found;
}

TEST(Gate, TheHeadlineCountsAndTheWorstComesFirst) {
  const Baseline before = baseline_of({with_figures({{"same", 10}, {"faster", 10}, {"slower", 10}, {"gone", 10}})});
  GatedResult now = with_figures({{"new", 1}, {"same", 10}, {"faster", 8}, {"slower", 12}});
  const GateReport slow = judge_gate(before, {now}, OtherMachine::no, 0.05);
  EXPECT_EQ(slow.headline(), "WORSE: 1 of 5 figures by 5 % or more than some; 1 better");
  const std::string table = gate_table(slow);
  EXPECT_THAT(first_words(table, {"WORSE", "inconclusive", "pass", "better", "unrated"}),
              ElementsAre("WORSE slower", "inconclusive gone", "better faster", "pass same"));
  EXPECT_THAT(table, HasSubstr("1 figures were not rated: --verbose shows them"));
  EXPECT_THAT(gate_table(slow, true), AllOf(HasSubstr("\nunrated "), Not(HasSubstr("--verbose"))));
  EXPECT_THAT(table, AllOf(HasSubstr("worse: slower: 12.0 ms instead of 10.0: "), HasSubstr("inconclusive: gone: ")));
  EXPECT_THAT(table, Not(HasSubstr("pass: same")));
  EXPECT_THAT(table, HasSubstr("1 result of run, 1 in the baseline: with 3 or more, how much"));
  const json j = gate_json(slow);
  EXPECT_EQ(j["changes"][2]["verdict"], "fail");
  EXPECT_EQ(j["changes"][1]["verdict"], "better");
  EXPECT_EQ(j["changes"][2]["ratio"], 1.2);
  EXPECT_EQ(j["changes"][2]["better"], "less");
  EXPECT_TRUE(j["changes"][3]["now"].is_null());
  EXPECT_FALSE(j["changes"][3].contains("ratio"));
  EXPECT_TRUE(j["changes"][4]["before"].is_null());

  now = with_figures({{"same", 10}, {"faster", 8}, {"slower", 10}});
  const GateReport open = judge_gate(before, {now}, OtherMachine::no, 0.05);
  EXPECT_EQ(open.headline(), "INCONCLUSIVE against some: 1 of 4 figures could not be judged; 1 better");
  EXPECT_EQ(open.exit_code(), static_cast<int>(ExitCode::inconclusive));
  const Baseline three =
      baseline_of({with_figures({{"same", 10}}), with_figures({{"same", 10}}), with_figures({{"same", 10}})});
  const GateReport good =
      judge_gate(three, {with_figures({{"same", 10}}), with_figures({{"same", 10}})}, OtherMachine::no, 0.025);
  EXPECT_EQ(good.headline(), "PASS: none of 1 figures is worse than some by 2.5 % or more");
  EXPECT_THAT(gate_table(good), HasSubstr("2 results of run, 3 in the baseline.\n"));
  const GateReport one = judge_gate(three, {with_figures({{"same", 12}})}, OtherMachine::no, 0.05);
  EXPECT_EQ(one.headline(), "WORSE: 1 of 1 figure by 5 % or more than some");
}

TEST(Gate, AllThatIsWrittenOfASimpleOne) {
  const Baseline before = baseline_of({with_figures({{"step", 10}, {"gone", 5}})});
  const GateReport r = judge_gate(before, {with_figures({{"step", 12}})}, OtherMachine::no, 0.05);
  EXPECT_EQ(
      gate_table(r),
      "WORSE: 1 of 2 figures by 5 % or more than some\n"
      "verdict       figure  before   now  unit  now / before  interval\n"
      "------------  ------  ------  ----  ----  ------------  --------\n"
      "WORSE         step      10.0  12.0  ms           1.200         –\n"
      "inconclusive  gone      5.00     –  ms               –         –\n"
      "\n"
      "worse: step: 12.0 ms instead of 10.0: 20.0 % more (worse), interval of now / before 1.200 to 1.200; on a "
      "computed clock results do not scatter\n"
      "inconclusive: gone: the baseline has it, and the result does not\n"
      "1 result of run, 1 in the baseline: with 3 or more, how much results of this machine scatter would count.\n");
  EXPECT_EQ(
      gate_markdown(r),
      "# WORSE: 1 of 2 figures by 5 % or more than some\n\n"
      "| figure | before | now | verdict | why |\n"
      "|---|---|---|---|---|\n"
      "| step | 10.0 ms | 12.0 ms | WORSE | 12.0 ms instead of 10.0: 20.0 % more (worse), interval of now / before "
      "1.200 to 1.200; on a computed clock results do not scatter |\n"
      "| gone | 5.00 ms | – | inconclusive | the baseline has it, and the result does not |\n");
  json j = gate_json(r);
  EXPECT_EQ(j["kind"], "gate");
  EXPECT_EQ(j["schema_version"], 2);
  EXPECT_EQ(j["threshold"], 0.05);
  EXPECT_EQ(j["baseline"], "some");
  EXPECT_EQ(j["sentence"], r.headline());
  EXPECT_EQ(j["before"]["kind"], "run");
  EXPECT_EQ(j["before"]["summary"], "a processor, 2 ranks");
  EXPECT_EQ(j["now"]["results"][0], json::parse(R"({"name": "r", "date": "2026-01-01T00:00:00+0000"})"));
  EXPECT_EQ(j["changes"][0]["by"], "samples of these results");
  EXPECT_EQ(j["changes"][0]["at_most"], 1.2);
  EXPECT_EQ(j["changes"][0]["unit"], "ms");
  EXPECT_EQ(j["changes"][0]["why"], r.changes[0].judgement.sentence);
  std::vector<std::string> rules;
  for (const accept::Judgement& one : r.judgements) rules.push_back(one.rule + " " + one.figure);
  EXPECT_THAT(rules, ElementsAre("accepted r", "change step", "change gone"));
  EXPECT_EQ(r.judgements[0].sentence, "the result itself was accepted");
}

TEST(Gate, AReasonOfSeveralFiguresIsSaidOnce) {
  GatedResult now = with_figures({{"a", 12}, {"b", 10}, {"c", 11}});
  now.figures.others_share = 0.96;
  const std::string text =
      gate_table(judge_gate(baseline_of({with_figures({{"a", 10}, {"b", 10}, {"c", 10}, {"d", 5}, {"e", 5}})}), {now},
                            OtherMachine::no, 0.05));
  EXPECT_EQ(text.substr(text.find("\n\n") + 2),
            "inconclusive: 3 figures (a; b; c): on a computed clock results do not scatter; so busy a host may have "
            "slowed it by any factor: measure again when the host is quiet; other programs took up to 96 % of the "
            "processors\n"
            "inconclusive: 2 figures (d; e): the baseline has it, and the result does not\n"
            "1 result of run, 1 in the baseline: with 3 or more, how much results of this machine scatter would "
            "count.\n");
}

TEST(Gate, WhatWasLeftOutIsTold) {
  Baseline before = baseline_of({});
  for (const double ms : {100.0, 101.0, 99.0, 100.5, 60.0}) before.results.push_back(with_figures({{"step", ms}}));
  for (GatedResult& r : before.results) r.figures.measured_on = accept::MeasuredOn::gpus;
  before.results.back().figures.name = "friday";
  before.left_out = {"monday was not accepted"};
  const GateReport r = judge_gate(before, {with_figures({{"step", 100}})}, OtherMachine::no, 0.05);
  EXPECT_THAT(gate_table(r),
              AllOf(HasSubstr("left out: monday was not accepted\n"), HasSubstr("left out of step: friday (60 ms)\n")));
  EXPECT_THAT(gate_json(r)["changes"][0]["left_out"], ElementsAre("friday (60 ms)"));
  EXPECT_THAT(gate_json(r)["left_out"], ElementsAre("monday was not accepted"));
}

TEST(Gate, WhyNothingIsComparedIsASentence) {
  const auto why = [](const GatedResult& before, const GatedResult& now, OtherMachine allowed = OtherMachine::no) {
    return judge_gate(baseline_of({before}), {now}, allowed, 0.05).not_comparable_because;
  };
  const GatedResult run = stored(run_json({10, 10, 10}));
  EXPECT_EQ(why(run, stored(accept_json(40))), "the baseline is of a run, and the result of a acceptance");
  json longer = run_json({10, 10, 10});
  longer["config"]["train"]["seq_len"] = 32;
  EXPECT_EQ(why(run, stored(longer)), "they did not measure the same: train.seq_len differs");
  longer["config"]["fsdp"]["layout"] = "per_param";
  EXPECT_EQ(why(run, stored(longer)), "they did not measure the same: fsdp.layout and 1 more differ");
  World other = world_of();
  other.kernel = "7";
  const GatedResult software = stored(run_json({10, 10, 10}, other));
  EXPECT_EQ(why(run, software),
            "they are not of the same machine (kernel: none / 7); --other-software compares two "
            "versions of a machine's software on purpose");
  EXPECT_EQ(why(run, software, OtherMachine::software), "");
  other.cpu = "EPYC";
  const GatedResult hardware = stored(run_json({10, 10, 10}, other));
  EXPECT_EQ(
      why(run, hardware, OtherMachine::software),
      "they are not of the same machine (processor: a processor / EPYC); --other-machine compares two machines on "
      "purpose");
  EXPECT_EQ(why(run, hardware, OtherMachine::any), "");
  const GateReport r = judge_gate(baseline_of({run}), {hardware}, OtherMachine::any, 0.05);
  EXPECT_THAT(gate_markdown(r), AllOf(HasSubstr("| processor (hardware) | a processor | EPYC |"),
                                      HasSubstr("| kernel (software) |  | 7 |")));
  EXPECT_THAT(gate_table(r), AllOf(HasSubstr("hardware differs: processor: a processor / EPYC\n"),
                                   HasSubstr("software differs: kernel: none / 7\n")));
}

TEST(Gate, AnEmulatedMachineIsSaidToBeOne) {
  World emulated = world_of();
  const auto headline = [&] {
    const GatedResult r = stored(run_json({10, 10, 10}, emulated));
    return judge_gate(baseline_of({r}), {r}, OtherMachine::no, 0.05).headline();
  };
  EXPECT_THAT(headline(), Not(HasSubstr("EMULATED")));
  emulated.emulated_link = true;
  EXPECT_THAT(headline(), ::testing::EndsWith("; EMULATED"));
  emulated.emulated_link = false;
  emulated.emulated_compute = true;
  EXPECT_THAT(headline(), ::testing::EndsWith("; EMULATED"));
}

TEST(Gate, ResultsOfOneGateAreOfOneMachine) {
  World other = world_of();
  other.cpu = "another processor";
  const GatedResult a = stored(run_json({10, 10, 10})), b = stored(run_json({10, 10, 10}, other));
  const GateReport r = judge_gate(baseline_of({a}), {a, b}, OtherMachine::any, 0.05);
  EXPECT_EQ(r.exit_code(), static_cast<int>(ExitCode::other_machine));
  EXPECT_THAT(r.headline(), HasSubstr("not of the same machine and program"));
}

TEST(Junit, HasTheCountsAndAttributesThatReadersAskFor) {
  std::vector<accept::Judgement> all(2);
  all[0].rule = "floor";
  all[0].figure = "<pairs>";
  all[0].verdict = Verdict::fail;
  const std::string text =
      junit_xml({.suite = "accept", .host = "a&b", .date = "2026-01-02T03:04:05+0000", .seconds = 1.5}, all);
  EXPECT_THAT(text,
              AllOf(HasSubstr("timestamp=\"2026-01-02T03:04:05\""), HasSubstr("hostname=\"a&amp;b\""),
                    HasSubstr("time=\"1.500\""), HasSubstr("failures=\"1\" errors=\"1\""), Not(HasSubstr("<pairs>"))));
}

}  // namespace
}  // namespace fsdpbench::app
