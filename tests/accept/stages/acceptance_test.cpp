// Verdicts of an acceptance, and the table that shows them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "accept/stages/acceptance_files.h"
#include "accept/stages/acceptance_report.h"
#include "accept/stages/lost_ranks.h"
#include "acceptance_cases.h"
#include "record/table.h"

namespace fsdpbench::app {
namespace {

using accept::Element;
using accept::Judgement;
using accept::Verdict;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(AcceptanceTest, AGoodMachinePasses) {
  const Trial trial = trial_with_exposed(0.05);
  const AcceptanceReport report = judge_acceptance(wanted(), measured({}), &trial);
  EXPECT_EQ(report.verdict, Verdict::pass) << acceptance_table(report);
  EXPECT_EQ(report.exit_code(), static_cast<int>(ExitCode::ok));
  EXPECT_TRUE(judgement(report, "floor", Verdict::unrated)) << "pairs have no reference";
}

TEST(AcceptanceTest, WhoIsToBlameFailsTheMachine) {
  const Trial trial = trial_with_exposed(0.05);
  const AcceptanceReport report =
      judge_acceptance(wanted(), measured({{{Element::Kind::gpu, 3, 0}, accept::Fault::Kind::slow, 0.7}}), &trial);
  EXPECT_EQ(report.exit_code(), static_cast<int>(ExitCode::below_floor));
  const Judgement* peers = judgement(report, "peers", Verdict::fail);
  ASSERT_TRUE(peers);
  EXPECT_EQ(peers->part, "rank 3 (device 3 of node 0)");
  EXPECT_EQ(peers->figure, "ranks among each other, in matrix products");
  EXPECT_THAT(acceptance_table(report), HasSubstr("check its clocks"));
}

TEST(AcceptanceTest, TheTableSaysWhatFailedFirstAndWhatWasNotRatedOnlyIfAsked) {
  const Trial trial = trial_with_exposed(0.05);
  const AcceptanceReport report =
      judge_acceptance(wanted(), measured({{{Element::Kind::gpu, 3, 0}, accept::Fault::Kind::slow, 0.7}}), &trial);
  const std::string brief = acceptance_table(report), all = acceptance_table(report, true);
  EXPECT_LT(brief.find("check its clocks"), brief.find("verdict"));
  const std::size_t rule = brief.find("\n---");
  EXPECT_EQ(brief.find("\nfail  ", rule), brief.find('\n', rule + 1)) << brief;
  EXPECT_THAT(brief, AllOf(Not(HasSubstr("\nunrated ")), HasSubstr("--verbose shows them")));
  EXPECT_THAT(all, AllOf(HasSubstr("\nunrated "), Not(HasSubstr("--verbose"))));
  std::istringstream lines(all.substr(all.find("verdict")));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(width_of(line), 100U) << line;
}

TEST(AcceptanceTest, WhoDidNotRunForAWhileIsNamedAndNothingPasses) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  m.standstill_s.assign(8, 0.1);
  ASSERT_EQ(judge_acceptance(wanted(), m, &trial).findings.size(), 0U);
  m.standstill_s[5] = 2.5;
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_EQ(report.verdict, Verdict::inconclusive);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_FALSE(report.findings[0].accuses());
  EXPECT_THAT(report.findings[0].evidence, HasSubstr("rank 5 (device 5 of node 0) did not run at all for 2.5 s"));
  m.standstill_s.assign(8, 2.5);
  const AcceptanceReport paused = judge_acceptance(wanted(), m, &trial);
  EXPECT_TRUE(paused.findings.empty()) << "a machine that was paused accuses nobody";
  EXPECT_EQ(paused.verdict, Verdict::inconclusive);
}

TEST(AcceptanceTest, RanksThatShareCoresAreNotAccusedOfTheirPairs) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({{{Element::Kind::link, 3, 5}, accept::Fault::Kind::slow, 0.5}});
  ASSERT_EQ(judge_acceptance(wanted(), m, &trial).verdict, Verdict::fail);
  m.shares_cores = true;
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_TRUE(report.findings.empty());
  const Judgement* peers = judgement(report, "peers", Verdict::unrated);
  ASSERT_TRUE(peers);
  EXPECT_THAT(peers->sentence, HasSubstr("8 ranks share fewer cores"));
}

TEST(AcceptanceTest, ARankThatWasSlowForAWhileIsNoPass) {
  AcceptanceMeasurements m = measured({});
  for (std::size_t round = 0; round < 6; ++round) m.device_rates[round][2] *= 0.5;
  const AcceptanceReport report = judge_acceptance(wanted(), m, nullptr);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].kind, accept::Finding::Kind::transient);
  const auto about = std::ranges::find(report.judgements, "rank 2 (device 2 of node 0)", &Judgement::part);
  ASSERT_NE(about, report.judgements.end());
  EXPECT_EQ(about->verdict, Verdict::inconclusive);
}

TEST(AcceptanceTest, OfRanksThatShareCoresOneThatWaitedForOneIsNoDoubt) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  for (std::size_t round = 0; round < 6; ++round) m.device_rates[round][2] *= 0.5;
  ASSERT_EQ(judge_acceptance(wanted(), m, &trial).verdict, Verdict::inconclusive);
  m.shares_cores = true;
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.verdict, Verdict::pass) << acceptance_table(report);
  const Judgement* peers = judgement(report, "peers", Verdict::unrated);
  ASSERT_TRUE(peers);
  EXPECT_THAT(peers->sentence, HasSubstr("1 of 8 ranks"));
}

TEST(AcceptanceTest, RanksThatWaitForCoresInTurnAreNotNamed) {
  AcceptanceMeasurements m = measured({{{Element::Kind::gpu, 7, 0}, accept::Fault::Kind::slow, 0.5}});
  m.memory_rates.assign(15, std::vector<double>(8, 1e11));
  for (std::size_t rank = 0; rank < 6; ++rank) {
    for (std::size_t round = rank; round < rank + 4; ++round) m.device_rates[round][rank] *= 0.5;
  }
  EXPECT_GT(judge_acceptance(wanted(), m, nullptr).findings.size(), 5U);
  m.shares_cores = true;
  const AcceptanceReport report = judge_acceptance(wanted(), m, nullptr);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].element, (accept::Element{Element::Kind::gpu, 7, 0}));
  EXPECT_EQ(report.findings[0].figure, "ranks among each other, in matrix products");
  const auto peers =
      std::ranges::find(report.judgements, "ranks among each other, in matrix products", &Judgement::figure);
  ASSERT_NE(peers, report.judgements.end());
  EXPECT_EQ(peers->verdict, Verdict::unrated);
}

TEST(AcceptanceTest, WhoIsToBlameComesFirstAndWhatToCheckIsSaidOnce) {
  AcceptanceMeasurements m = measured({{{Element::Kind::gpu, 7, 0}, accept::Fault::Kind::slow, 0.5}});
  m.memory_rates.assign(15, std::vector<double>(8, 1e11));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t round = 0; round < 4; ++round) m.device_rates[round][rank] *= 0.5;
  }
  const AcceptanceReport report = judge_acceptance(wanted(), m, nullptr);
  ASSERT_EQ(report.findings.size(), 3U);
  EXPECT_TRUE(report.findings[0].accuses());
  EXPECT_FALSE(report.findings[1].accuses());
  const std::string text = acceptance_table(report);
  const std::string check = report.findings[0].check;
  EXPECT_EQ(text.find(check), text.rfind(check));
}

TEST(AcceptanceTest, OfABusyMachineStepsThatGrowSlowerAreNoProofOfDrift) {
  AcceptanceMeasurements m = measured({});
  m.on_processors = true;
  for (int round = 0; round < 30; ++round) {
    const double ms = round < 15 ? 100 : 130;
    m.soak.push_back({.computation_ms = ms, .communication_ms = ms, .whole_ms = ms});
  }
  EXPECT_TRUE(judgement(judge_acceptance(wanted(), m, nullptr), "drift", Verdict::fail));
  m.others_share = 0.4;
  const AcceptanceReport busy = judge_acceptance(wanted(), m, nullptr);
  EXPECT_FALSE(judgement(busy, "drift", Verdict::fail));
  EXPECT_TRUE(judgement(busy, "drift", Verdict::inconclusive));
  m.on_processors = false;
  EXPECT_TRUE(judgement(judge_acceptance(wanted(), m, nullptr), "drift", Verdict::fail)) << "a GPU is nobody else's";
}

TEST(AcceptanceTest, AWrongResultIsWorseThanSlow) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  m.ladder.front().in_place->wrong = 3;
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_EQ(report.exit_code(), static_cast<int>(ExitCode::wrong_data));
  EXPECT_TRUE(judgement(report, "data", Verdict::fail));
}

TEST(AcceptanceTest, WhatWasNotMeasuredIsNoPass) {
  EXPECT_EQ(judge_acceptance(wanted(), measured({}), nullptr).exit_code(), static_cast<int>(ExitCode::inconclusive));
  const AcceptanceReport nothing = judge_acceptance(wanted(), {}, nullptr);
  EXPECT_NE(nothing.verdict, Verdict::pass);
  config::Acceptance without = wanted();
  without.references.clear();
  without.ranks = 0;
  without.exposed_pct = 100;
  const Trial trial = trial_with_exposed(0.05);
  EXPECT_FALSE(judgement(judge_acceptance(without, measured({}), &trial), "floor", Verdict::pass));
}

TEST(AcceptanceTest, OneRankHasNoCollectivesAndIsNoPass) {
  AcceptanceMeasurements m = measured({});
  m.cluster = {.nodes = 1, .gpus_per_node = 1};
  m.hosts.resize(1);
  m.fingerprints.resize(1);
  for (std::vector<double>& round : m.device_rates) round.resize(1);
  for (std::vector<double>& round : m.memory_rates) round.resize(1);
  m.ladder.clear();
  config::Acceptance any = wanted();
  any.ranks = 0;
  const Trial trial = trial_with_exposed(0.0);
  const AcceptanceReport report = judge_acceptance(any, m, &trial);
  EXPECT_EQ(report.exit_code(), static_cast<int>(ExitCode::inconclusive));
  EXPECT_THAT(acceptance_table(report), HasSubstr("start a process per rank by mpirun, torchrun or srun"));
}

TEST(AcceptanceTest, WhatIsMoreThanItsCeilingIsAWrongMeasurement) {
  const Trial trial = trial_with_exposed(0.05);
  for (const char* figure : {"gemm", "memory", "pair", "all_gather"}) {
    config::Acceptance w = wanted();
    std::erase_if(w.references, [&](const config::AcceptanceReference& r) { return r.figure == figure; });
    w.references.push_back({.figure = figure, .value = 1e-6, .hop_us = 0, .ceiling = 1e-3, .source = "a table"});
    const AcceptanceReport report = judge_acceptance(w, measured({}), &trial);
    EXPECT_TRUE(judgement(report, "ceiling", Verdict::inconclusive)) << figure;
    EXPECT_EQ(report.verdict, Verdict::inconclusive) << figure;
  }
}

TEST(AcceptanceTest, WhoDiffersFromTheMajorityIsNamed) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  m.fingerprints[5][1].second = "5.10";
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  const Judgement* inventory = judgement(report, "inventory", Verdict::fail);
  ASSERT_TRUE(inventory);
  EXPECT_EQ(inventory->sentence, "rank 5 on node has kernel = '5.10', and 7 of 8 ranks have '6.1'");
}

TEST(AcceptanceTest, ARankWhoseEnvironmentDiffersIsNamedAndNothingPasses) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  m.fingerprints[5].emplace_back(kVariableFact + std::string("NCCL_IB_HCA"), "mlx5_0");
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_EQ(report.verdict, Verdict::inconclusive) << "another variable is no other machine";
  const Judgement* set = judgement(report, "inventory", Verdict::inconclusive);
  ASSERT_TRUE(set);
  EXPECT_EQ(set->sentence, "rank 5 on node has variable NCCL_IB_HCA = 'mlx5_0', and 7 of 8 ranks have 'not set'");
  EXPECT_EQ(set->ranks, std::vector<int>{5});
  // Set everywhere but on one rank, that rank is the one to name.
  for (std::size_t rank = 0; rank < 8; ++rank) {
    if (rank != 5) m.fingerprints[rank].emplace_back(kVariableFact + std::string("LD_PRELOAD"), "libjemalloc.so");
  }
  const AcceptanceReport lacks = judge_acceptance(wanted(), m, &trial);
  EXPECT_THAT(acceptance_markdown(lacks),
              HasSubstr("rank 5 on node has variable LD_PRELOAD = 'not set', and 7 of 8 ranks "
                        "have 'libjemalloc.so'"));
  for (Fingerprint& print : m.fingerprints)
    std::erase_if(print, [](const auto& f) { return f.first.starts_with(kVariableFact); });
  for (Fingerprint& print : m.fingerprints) print.emplace_back(kVariableFact + std::string("NCCL_ALGO"), "Ring");
  EXPECT_EQ(judge_acceptance(wanted(), m, &trial).verdict, Verdict::pass) << "all ranks have the same";
}

TEST(AcceptanceTest, ARankTooFewFails) {
  config::Acceptance w = wanted();
  w.ranks = 16;
  const Trial trial = trial_with_exposed(0.05);
  const AcceptanceReport report = judge_acceptance(w, measured({}), &trial);
  ASSERT_TRUE(judgement(report, "rendezvous", Verdict::fail));
  EXPECT_EQ(judgement(report, "rendezvous", Verdict::fail)->sentence,
            "8 ranks came, and 16 are expected; the last to be ready was rank 0, after 0.25 s");
}

TEST(AcceptanceTest, SmallMessagesAreHeldAgainstWhatTheirStepsLeave) {
  config::Acceptance w = wanted();
  const Trial trial = trial_with_exposed(0.05);
  w.references[1].value = 60;  // 29.4 GB/s are half of it
  EXPECT_TRUE(judgement(judge_acceptance(w, measured({}), &trial), "floor", Verdict::fail));
  w.references[1].hop_us = 80;  // 7 steps of them take 560 of 1000 us
  EXPECT_FALSE(judgement(judge_acceptance(w, measured({}), &trial), "floor", Verdict::fail));
}

TEST(AcceptanceTest, TheArmsOfAStepAreHeldAgainstTheProfile) {
  const Trial trial = trial_with_exposed(0.05);
  config::Acceptance w = wanted();
  w.slowdown = 1.01;
  const AcceptanceReport report = judge_acceptance(w, measured({}), &trial);
  EXPECT_TRUE(judgement(report, "slow-down", Verdict::fail));
  AcceptanceMeasurements exposed = measured({});
  for (accept::ArmRound& round : exposed.arms) round.computation_ms = 80;  // 20 of 100 ms only communicate
  EXPECT_TRUE(judgement(judge_acceptance(wanted(), exposed, &trial), "exposed communication", Verdict::fail));
}

TEST(AcceptanceTest, TheScaleAtWhichACollectiveFallsFails) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  EXPECT_TRUE(judgement(judge_acceptance(wanted(), m, &trial), "scale", Verdict::pass));
  for (CollectiveRow& row : m.scales) {
    if (row.message.ranks != 8 || row.message.reduces()) continue;
    for (double& us : row.in_place->iterations_us) us *= 2;
  }
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  ASSERT_TRUE(judgement(report, "scale", Verdict::fail));
  EXPECT_THAT(judgement(report, "scale", Verdict::fail)->figure, HasSubstr("all_gather of 4.00 MiB per rank"));
  EXPECT_THAT(judgement(report, "scale", Verdict::fail)->sentence, HasSubstr("8 ranks carry 50 %"));
  EXPECT_EQ(acceptance_json(report, m, World{}, nlohmann::json())["scales"].size(), 6U);
  m.scales = {};
  EXPECT_TRUE(judgement(judge_acceptance(wanted(), m, &trial), "scale", Verdict::inconclusive));
}

TEST(AcceptanceTest, ASilentFallbackFails) {
  const Trial trial = trial_with_exposed(0.05);
  config::Acceptance w = wanted();
  AcceptanceMeasurements m = measured({});
  EXPECT_TRUE(judgement(judge_acceptance(w, m, &trial), "transport", Verdict::unrated));
  w.transport = {"p2p", "net/ib"};
  EXPECT_TRUE(judgement(judge_acceptance(w, m, &trial), "transport", Verdict::pass));
  m.transports[6] = "P2P/CUMEM (8 connections), NET/Socket/0 (2 connections), P2P/IPC (1 connections)";
  const AcceptanceReport report = judge_acceptance(w, m, &trial);
  ASSERT_TRUE(judgement(report, "transport", Verdict::fail));
  EXPECT_EQ(judgement(report, "transport", Verdict::fail)->sentence,
            "rank 6 on node: NET/Socket/0 (2 connections); the profile allows p2p, net/ib");
  EXPECT_EQ(judgement(report, "transport", Verdict::fail)->ranks, std::vector{6});
  m.transports[2].clear();
  EXPECT_TRUE(judgement(judge_acceptance(w, m, &trial), "transport", Verdict::inconclusive)) << "fail closed";
  m.transports.clear();
  EXPECT_TRUE(judgement(judge_acceptance(w, m, &trial), "transport", Verdict::inconclusive));
}

TEST(AcceptanceTest, WhatWasSkippedOrStoppedIsInconclusiveWithItsReason) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  m.stages = {{"pairs", 1.0, 1.5, "", false}, {"soak", std::nullopt, 0, "5 min of 5 min are spent", true}};
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  ASSERT_TRUE(judgement(report, "stages", Verdict::inconclusive));
  EXPECT_EQ(judgement(report, "stages", Verdict::inconclusive)->sentence,
            "it was not measured: 5 min of 5 min are spent");
  EXPECT_EQ(report.verdict, Verdict::inconclusive);
  EXPECT_EQ(acceptance_json(report, m, World{}, nlohmann::json())["stages"].size(), 2U);
  m.stages[1].skipped = false;  // only shrunk
  EXPECT_EQ(judge_acceptance(wanted(), m, &trial).verdict, Verdict::pass);

  config::Acceptance more = wanted();
  more.ranks = 16;
  m.stopped_because = "8 ranks came, and 16 are expected";
  const AcceptanceReport stopped = judge_acceptance(more, m, nullptr);
  EXPECT_EQ(stopped.verdict, Verdict::fail);
  EXPECT_TRUE(judgement(stopped, "stages", Verdict::inconclusive));
  EXPECT_FALSE(judgement(stopped, "floor", Verdict::inconclusive)) << "one sentence for all of it";
}

TEST(AcceptanceTest, WhatOtherWorkMayHaveCausedIsInconclusive) {
  AcceptanceMeasurements m = measured({});
  m.on_processors = true;
  m.others_share = 0.4;  // ranks may have been faster by 1 / 0.6
  const auto rules_of = [&](double value, double high, double bound) {
    std::vector<accept::Judgement> rules;
    for (const char* rule : {"floor", "tail", "inventory"}) {
      rules.push_back(accept::judged(rule, "x", Verdict::fail, "why"));
      rules.back().value = {value, value, high, 9};
      rules.back().bound = bound;
    }
    return rules;
  };
  const auto finding_of = [](double relative) {
    accept::Finding finding;
    finding.element = {accept::Element::Kind::gpu, 1, 0};
    finding.relative = {relative, relative, relative, 9};
    finding.on_cores = true;
    return finding;
  };
  std::vector<accept::Judgement> rules = rules_of(60, 65, 100);
  std::vector<accept::Finding> findings{finding_of(0.7), finding_of(0.3)};
  soften(m, rules, findings);
  EXPECT_EQ(rules[0].verdict, Verdict::inconclusive) << "65 / 0.6 is more than 100";
  EXPECT_THAT(rules[0].sentence, HasSubstr("other programs used 40 % of the CPU"));
  EXPECT_EQ(rules[1].verdict, Verdict::inconclusive);
  EXPECT_EQ(rules[2].verdict, Verdict::fail) << "no question of time";
  EXPECT_FALSE(findings[0].accuses());
  EXPECT_TRUE(findings[1].accuses()) << "slower than other work explains";
  findings = {finding_of(0.7)};
  findings.front().on_cores = false;
  soften(m, rules, findings);
  EXPECT_TRUE(findings[0].accuses()) << "an emulated link is as fast as it is told, whoever has the cores";
  rules = rules_of(40, 50, 100);
  soften(m, rules, findings);
  EXPECT_EQ(rules[0].verdict, Verdict::fail) << "50 / 0.6 is less than 100";
  m.on_processors = false;
  rules = rules_of(60, 65, 100);
  soften(m, rules, findings);
  EXPECT_EQ(rules[0].verdict, Verdict::fail) << "a GPU is nobody else's";
  EXPECT_EQ(rules[1].verdict, Verdict::fail);
}

TEST(AcceptanceTest, OtherWorkIsToldAndChangesNoVerdict) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  m.others_share = 0.05;
  EXPECT_FALSE(judgement(judge_acceptance(wanted(), m, &trial), "other work", Verdict::unrated));
  m.others_share = 0.83;
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_TRUE(judgement(report, "other work", Verdict::unrated));
  EXPECT_EQ(report.verdict, Verdict::pass);
  EXPECT_THAT(acceptance_table(report), HasSubstr("other programs used 83 % of the CPU during the test"));
}

TEST(AcceptanceTest, TailsThatWereAskedForAndNotMeasuredAreNoPass) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  EXPECT_FALSE(judgement(judge_acceptance(wanted(), m, &trial), "tail", Verdict::inconclusive));
  m.rates_tails = true;  // and the budget sufficed for 20 iterations
  EXPECT_TRUE(judgement(judge_acceptance(wanted(), m, &trial), "tail", Verdict::inconclusive));
}

TEST(AcceptanceTest, SlowMemoryIsFoundBesideFastProducts) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  for (std::vector<double>& round : m.memory_rates) round[2] *= 0.7;
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_THAT(report.findings.front().evidence, HasSubstr("rank 2 (device 2 of node 0) reaches 6"));
  EXPECT_THAT(report.findings.front().evidence, HasSubstr("in copies in its memory"));
}

TEST(AcceptanceTest, WhoTheOthersWaitForIsAFinding) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  for (accept::Arrivals& sample : m.arrivals) sample.arrival_us[5] += 3000;
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  ASSERT_TRUE(judgement(report, "lateness", Verdict::fail));
  EXPECT_GT(judgement(report, "lateness", Verdict::fail)->value.median, 2000);
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings.front().element, (Element{Element::Kind::gpu, 5, 0}));
  EXPECT_THAT(acceptance_table(report), HasSubstr("rank 5 (device 5 of node 0) comes last in 100 %"));
  EXPECT_NEAR(acceptance_json(report, m, World{}, nlohmann::json())["lateness"]["last_share"][5].get<double>(), 1,
              1e-9);
  m.arrivals.clear();
  EXPECT_TRUE(judgement(judge_acceptance(wanted(), m, &trial), "lateness", Verdict::inconclusive));
}

TEST(AcceptanceTest, WaitingThatIsSpreadOverAllRanksIsToldAndBlamesNobody) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  const auto told = [](const AcceptanceReport& report) {
    return acceptance_table(report).find("all ranks are late in turn") != std::string::npos &&
           acceptance_markdown(report).find("- no rank is last most of the time, and yet") != std::string::npos;
  };
  EXPECT_FALSE(told(judge_acceptance(wanted(), m, &trial))) << "healthy ranks hardly wait";
  for (std::size_t i = 0; i < m.arrivals.size(); ++i) m.arrivals[i].arrival_us[i % 8] += 3000;
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_TRUE(told(report)) << acceptance_table(report);
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.verdict, Verdict::pass) << "nobody is to blame";
  for (accept::Arrivals& sample : m.arrivals) sample.arrival_us[2] += 9000;
  EXPECT_FALSE(told(judge_acceptance(wanted(), m, &trial))) << "one rank is what the others wait for";
}

TEST(AcceptanceTest, WhatTheNamedPartDoesNotExplainIsToldBelowIt) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({{{Element::Kind::link, 3, 5}, accept::Fault::Kind::slow, 0.5}});
  const AcceptanceReport one = judge_acceptance(wanted(), m, &trial);
  EXPECT_THAT(acceptance_markdown(one), Not(HasSubstr("pairs beside the parts to blame")));
  m.links.remainder.emplace(accept::Interval{0.7, 0.69, 0.72, 8}, "part of what is slow is not explained by it");
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_EQ(report.findings.size(), one.findings.size()) << "nobody is accused of it";
  EXPECT_EQ(node_lists(report).fail, node_lists(one).fail);
  EXPECT_THAT(acceptance_markdown(report), HasSubstr(": part of what is slow is not explained by it\n"));
  EXPECT_THAT(acceptance_table(report),
              HasSubstr("inconclusive: peers, pairs beside the parts to blame: part of what"));
  EXPECT_THAT(acceptance_junit(report), HasSubstr("<error type=\"peers\" message=\"part of what is slow is not"));
  EXPECT_THAT(acceptance_metrics(report),
              HasSubstr("fsdpbench_accept_rule{rule=\"peers\",figure=\"pairs beside the parts to blame\"} 2\n"));
}

TEST(AcceptanceTest, HostDeviceAndNicAreInAllThatPeopleAndProgramsRead) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({{{Element::Kind::gpu, 3, 0}, accept::Fault::Kind::slow, 0.7}});
  m.cluster.hosts.assign(8, "node7");
  for (int i = 0; i < 8; ++i) m.cluster.devices.push_back("PCI 0000:0" + std::to_string(i) + ":00.0");
  for (int i = 0; i < 8; ++i) m.cluster.uuids.push_back("GPU-" + std::to_string(i));
  for (int i = 0; i < 8; ++i) m.cluster.adapters.push_back("mlx5_" + std::to_string(i));
  m.fingerprints[5][1].second = "5.10";
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  const std::string name = "rank 3 (device 3 of node 0, node7, PCI 0000:03:00.0)";
  const std::string headline = "rules rated; to blame: " + name;
  const std::string page = acceptance_markdown(report), text = acceptance_table(report),
                    junit = acceptance_junit(report);
  EXPECT_THAT(text, HasSubstr(headline));
  EXPECT_THAT(page, HasSubstr(headline));
  EXPECT_THAT(page, HasSubstr("\n- " + name + " reaches "));
  EXPECT_THAT(page, HasSubstr("have '6.1' (host node7, device PCI 0000:05:00.0, UUID GPU-5, NIC mlx5_5)\n"));
  EXPECT_THAT(junit, HasSubstr(headline));
  EXPECT_THAT(junit, HasSubstr("<system-out>host node7, device PCI 0000:03:00.0, UUID GPU-3, NIC mlx5_3</system-out>"));
  EXPECT_THAT(acceptance_metrics(report),
              HasSubstr("fsdpbench_accept_accused{part=\"" + name +
                        "\",host=\"node7\",device=\"PCI 0000:03:00.0\",uuid=\"GPU-3\",nic=\"mlx5_3\"} 1\n"));
  const nlohmann::json finding = acceptance_json(report, m, World{}, nlohmann::json())["findings"][0];
  EXPECT_EQ(finding["device"], "PCI 0000:03:00.0");
  EXPECT_EQ(finding["uuid"], "GPU-3");
  EXPECT_EQ(finding["nic"], "mlx5_3");
  EXPECT_THAT(page, HasSubstr("(GPU-3)"));
  EXPECT_FALSE(acceptance_json(judge_acceptance(wanted(), measured({}), &trial), m, World{}, nlohmann::json())
                   .dump()
                   .find("uuid") != std::string::npos)
      << "CPU ranks have none";

  AcceptanceMeasurements late = measured({});
  late.cluster.hosts = m.cluster.hosts;
  late.cluster.devices = m.cluster.devices;
  for (accept::Arrivals& sample : late.arrivals) sample.arrival_us[5] += 3000;
  const AcceptanceReport of_late = judge_acceptance(wanted(), late, &trial);
  ASSERT_TRUE(judgement(of_late, "lateness", Verdict::fail));
  EXPECT_EQ(judgement(of_late, "lateness", Verdict::fail)->place.device, "PCI 0000:05:00.0");
  EXPECT_THAT(acceptance_markdown(judge_acceptance(wanted(), measured({}), &trial)), Not(HasSubstr("to blame:")));
}

TEST(AcceptanceTest, WhoComesLateBesideASlowPartIsNotAccused) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({{{Element::Kind::gpu, 3, 0}, accept::Fault::Kind::slow, 0.7}});
  for (accept::Arrivals& sample : m.arrivals) sample.arrival_us[5] += 3000;
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_TRUE(judgement(report, "lateness", Verdict::fail)) << "it is late all the same";
  ASSERT_FALSE(report.findings.empty());
  for (const accept::Finding& finding : report.findings) {
    EXPECT_EQ(finding.element, (Element{Element::Kind::gpu, 3, 0}));
  }
}

TEST(AcceptanceTest, ALargerMessageThatCarriesLessFails) {
  const Trial trial = trial_with_exposed(0.05);
  config::Acceptance w = wanted();
  w.references.clear();
  AcceptanceMeasurements m = measured({});
  m.ladder.push_back(m.ladder.front());
  m.ladder.back().message.count *= 2;  // in twice the time and a half more
  for (double& us : m.ladder.back().in_place->iterations_us) us *= 2.5;
  const AcceptanceReport report = judge_acceptance(w, m, &trial);
  ASSERT_TRUE(judgement(report, "shape", Verdict::fail));
  EXPECT_EQ(judgement(report, "shape", Verdict::fail)->figure, "all_gather by size, in place");
  w.cliff_pct = 20.1;  // it falls by a fifth
  EXPECT_FALSE(judgement(judge_acceptance(w, m, &trial), "shape", Verdict::fail));
}

TEST(AcceptanceTest, APassOfFewRulesHasAnExitCodeOfItsOwn) {
  const Trial trial = trial_with_exposed(0.05);
  config::Acceptance w = wanted();
  w.rated_pct = 90;
  const AcceptanceReport few = judge_acceptance(w, measured({}), &trial);
  EXPECT_EQ(few.verdict, Verdict::inconclusive);
  EXPECT_EQ(few.exit_code(), static_cast<int>(ExitCode::few_rated));
  EXPECT_THAT(acceptance_table(few), HasSubstr("inconclusive: rated, rules that could be rated: "));
  EXPECT_TRUE(node_lists(few).pass.empty());
  w.references.front().value = 1e6;
  EXPECT_EQ(judge_acceptance(w, measured({}), &trial).exit_code(), static_cast<int>(ExitCode::below_floor));
  w = wanted();
  w.rated_pct = 90;
  EXPECT_EQ(judge_acceptance(w, measured({}), nullptr).exit_code(), static_cast<int>(ExitCode::inconclusive))
      << "the steps were not measured, which is amiss, too";
  w.rated_pct = 0;
  EXPECT_FALSE(judgement(judge_acceptance(w, measured({}), &trial), kRatedRule, Verdict::pass));
}

TEST(AcceptanceTest, WhatIsSlowAtTransfersIsToldItsCableAndWhatIsSlowAtWorkItsClocks) {
  accept::Cluster cluster{.nodes = 4, .gpus_per_node = 8};
  const Element gpu{Element::Kind::gpu, 3, 0};
  EXPECT_THAT(next_check(gpu, cluster, accept::SlowAt::work), HasSubstr("clocks"));
  EXPECT_THAT(next_check(gpu, cluster, accept::SlowAt::transfers),
              AllOf(HasSubstr("cable"), HasSubstr("switch port"), HasSubstr("firmware"), HasSubstr("PCIe"),
                    Not(HasSubstr("clocks"))));
  EXPECT_THAT(next_check({Element::Kind::node, 1, 0}, cluster, accept::SlowAt::transfers),
              AllOf(HasSubstr("cables"), HasSubstr("switch ports"), HasSubstr("firmware"), Not(HasSubstr("clocks"))));
  cluster.on_processors = true;
  EXPECT_THAT(next_check(gpu, cluster, accept::SlowAt::transfers),
              AllOf(HasSubstr("cable"), Not(HasSubstr("cooling"))));
  const Trial trial = trial_with_exposed(0.05);
  const AcceptanceReport report =
      judge_acceptance(wanted(), measured({{{Element::Kind::link, 3, 5}, accept::Fault::Kind::slow, 0.5}}), &trial);
  EXPECT_THAT(acceptance_table(report), Not(HasSubstr("clocks")));
}

}  // namespace
}  // namespace fsdpbench::app
