// Accepted results, and later ones held against them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "accept/gate/gate_cases.h"
#include "accept/gate/gate_report.h"
#include "accept/stages/judgement_files.h"
#include "base/error.h"

namespace fsdpbench::app {
namespace {

using accept::Verdict;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

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
  EXPECT_EQ(no.judgements.back().figure, "r");
  EXPECT_EQ(no.judgements.size(), 2U);
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

TEST(Gate, AResultThatFailedByItselfPassesNoGate) {
  const GateReport r = judge_gate(three_of(accept_json(40)), {stored(accept_json(40, "fail"))}, OtherMachine::no, 0.05);
  EXPECT_EQ(r.verdict, Verdict::inconclusive);
  EXPECT_THAT(gate_markdown(r), HasSubstr("was not accepted"));
  EXPECT_EQ(r.headline(), "INCONCLUSIVE against some");
  EXPECT_EQ(r.judgements.front().verdict, Verdict::inconclusive);
  const GatedResult kept = stored(accept_json(40, "unrated"));
  const Baseline one_of_three = baseline_of({stored(accept_json(40)), stored(accept_json(40)), kept});
  const GateReport known = judge_gate(one_of_three, {kept}, OtherMachine::no, 0.05);
  EXPECT_EQ(known.verdict, Verdict::pass);
  EXPECT_EQ(known.judgements.front().verdict, Verdict::unrated);
  EXPECT_EQ(known.judgements.front().sentence,
            "the result itself was not accepted: its verdict is unrated, as the baseline was not");
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
  EXPECT_EQ(j["before"]["machine"], before.results.front().machine.to_json());
  EXPECT_EQ(j["changes"][0]["before"]["median"], 10);
  EXPECT_EQ(j["changes"][0]["now"]["median"], 12);
  EXPECT_EQ(gate_file_facts().name, "Gate");
  EXPECT_EQ(j["changes"][0]["by"], "samples of these results");
  EXPECT_EQ(j["changes"][0]["at_most"], 1.2);
  EXPECT_EQ(j["changes"][0]["unit"], "ms");
  EXPECT_EQ(j["changes"][0]["why"], r.changes[0].judgement.sentence);
  std::vector<std::string> rules;
  for (const accept::Judgement& one : r.judgements) rules.push_back(one.rule + " " + one.figure);
  EXPECT_THAT(rules, ElementsAre("accepted r", "change step", "change gone"));
  EXPECT_EQ(r.judgements[0].sentence, "the result itself was accepted");
}

/// Figures of a single value, in the unit of the larger one.
TEST(Gate, ASingleValueIsShownInTheUnitOfTheLargerOne) {
  for (const auto& [was, is] : {std::pair{500.0, 2000.0}, {2000.0, 500.0}}) {
    GatedResult before = with_figures({{"step", was}}), now = with_figures({{"step", is}});
    for (GatedResult* side : {&before, &now}) {
      accept::MeasuredFigure& f = side->figures.figures.front();
      f.samples.resize(1);
      f.value.n = 1;
      f.higher_is_better = true;
    }
    const GateReport r = judge_gate(baseline_of({before}), {now}, OtherMachine::no, 0.05);
    EXPECT_THAT(gate_table(r), HasSubstr(was < is ? " 0.500  2.00  s " : " 2.00  0.500  s "));
    EXPECT_THAT(gate_markdown(r), HasSubstr(was < is ? "| step | 500 ms | 2.00 s |" : "| step | 2.00 s | 500 ms |"));
    EXPECT_EQ(gate_json(r)["changes"][0]["before"]["median"], was);
    EXPECT_EQ(gate_json(r)["changes"][0]["better"], "more");
  }
}

TEST(Gate, ResultsOfTwoKindsAreNoneOfOneGate) {
  const GatedResult run = stored(run_json({10, 10, 10}));
  GatedResult other = run;
  other.kind = "acceptance";
  EXPECT_EQ(judge_gate(baseline_of({run}), {run, other}, OtherMachine::no, 0.05).not_comparable_because,
            "r and r did not measure the same, so they are no results of one gate");
}

TEST(Gate, AReasonOfSeveralFiguresIsSaidOnce) {
  GatedResult now = with_figures({{"a", 12}, {"b", 11}, {"c", 11}});
  now.figures.name = "tonight";
  now.figures.others_share = 0.96;
  const std::string text =
      gate_table(judge_gate(baseline_of({with_figures({{"a", 10}, {"b", 10}, {"c", 10}, {"d", 5}, {"e", 5}})}), {now},
                            OtherMachine::no, 0.05));
  EXPECT_EQ(text.substr(text.find("\n\n") + 2),
            "inconclusive: 3 figures (a; b; c): so busy a host may have slowed it by any factor: measure tonight again "
            "when the host is quiet; other programs took up to 96 % of the processors\n"
            "inconclusive: 2 figures (d; e): the baseline has it, and the result does not\n"
            "inconclusive: r: no figure that was measured could be judged, only what is counted\n"
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
