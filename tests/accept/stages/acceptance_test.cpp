// What an acceptance makes of measurements, and what it writes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "accept/stages/acceptance_files.h"
#include "accept/stages/acceptance_report.h"
#include "accept/stages/lost_ranks.h"
#include "acceptance_cases.h"
#include "base/error.h"
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
  const AcceptanceReport told = judge_acceptance(w, measured({}), &trial);
  ASSERT_TRUE(judgement(told, "explained", Verdict::unrated));
  EXPECT_THAT(judgement(told, "explained", Verdict::unrated)->sentence, HasSubstr("explain 96.0 %"));
  w.explained_pct = 97;
  w.slowdown = 1.01;
  const AcceptanceReport report = judge_acceptance(w, measured({}), &trial);
  EXPECT_TRUE(judgement(report, "explained", Verdict::fail));
  EXPECT_TRUE(judgement(report, "slow-down", Verdict::fail));
  AcceptanceMeasurements exposed = measured({});
  for (accept::ArmRound& round : exposed.arms) round.computation_ms = 80;  // 20 of 100 ms only communicate
  EXPECT_TRUE(judgement(judge_acceptance(wanted(), exposed, &trial), "exposed communication", Verdict::fail));
}

TEST(AcceptanceTest, TheScaleAtWhichACollectiveFallsFails) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  EXPECT_TRUE(judgement(judge_acceptance(wanted(), m, &trial), "scale", Verdict::pass));
  for (CollectiveRow& row : m.scales.rows) {
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

TEST(AcceptanceTest, ShardAndReplicateGroupsAtOnceAreTold) {
  const Trial trial = trial_with_exposed(0.05);
  const AcceptanceReport report = judge_acceptance(wanted(), measured({}), &trial);
  const auto j = std::ranges::find_if(report.judgements, [](const Judgement& one) {
    return one.figure == "reduce-scatter in groups of 4 beside all-reduce across 2 replicas";
  });
  ASSERT_NE(j, report.judgements.end());
  EXPECT_DOUBLE_EQ(j->value.median, 1.5);
}

TEST(AcceptanceTest, ASilentFallbackFails) {
  const Trial trial = trial_with_exposed(0.05);
  config::Acceptance w = wanted();
  AcceptanceMeasurements m = measured({});
  EXPECT_TRUE(judgement(judge_acceptance(w, m, &trial), "transport", Verdict::unrated));
  w.transport = {"p2p", "net/ib"};
  EXPECT_TRUE(judgement(judge_acceptance(w, m, &trial), "transport", Verdict::pass));
  m.transports[6] = "P2P/CUMEM (8 connections), NET/Socket/0 (2 connections)";
  const AcceptanceReport report = judge_acceptance(w, m, &trial);
  ASSERT_TRUE(judgement(report, "transport", Verdict::fail));
  EXPECT_EQ(judgement(report, "transport", Verdict::fail)->sentence,
            "rank 6 on node: NET/Socket/0 (2 connections); the profile allows p2p, net/ib");
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

TEST(AcceptanceTest, WhoIsReadyLastAndHowSureClocksAreIsTold) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  m.ready_s[3] = 7.5;
  m.clocks.assign(8, {.offset_ns = 5000, .residual_ns = 12'000, .at_ns = 0, .same_clock = false});
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_THAT(judgement(report, "rendezvous", Verdict::pass)->sentence,
              HasSubstr("the last to be ready was rank 3, after 7.5 s; clocks of hosts are known within 12 us"));
}

TEST(AcceptanceTest, WhoTheOthersWaitForIsAFinding) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  for (accept::Arrivals& sample : m.arrivals) sample.arrival_us[5] += 3000;
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  ASSERT_TRUE(judgement(report, "lateness", Verdict::fail));
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
  w.cliff_pct = 30;
  EXPECT_FALSE(judgement(judge_acceptance(w, m, &trial), "shape", Verdict::fail));
}

/// The judgement of this rule and figure.
const Judgement& about(const AcceptanceReport& report, const std::string& rule, const std::string& figure) {
  const auto found =
      std::ranges::find_if(report.judgements, [&](const Judgement& j) { return j.rule == rule && j.figure == figure; });
  if (found == report.judgements.end()) throw std::out_of_range(rule + ", " + figure);
  return *found;
}

TEST(AcceptanceTest, FiguresAreRatesInTheirUnits) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  m.device_rates.assign(9, std::vector<double>(8, 2e12));
  m.device_rates[0][0] = 0;  // not measured
  m.memory_rates.assign(9, std::vector<double>(8, 5e9));
  m.links.one_way.assign(56, 7.0);
  config::Acceptance w = wanted();
  w.references = {{.figure = "gemm", .value = 2, .hop_us = 0, .ceiling = 3, .source = "a table"},
                  {.figure = "pair", .value = 7, .hop_us = 0, .ceiling = 0, .source = "a table"},
                  {.figure = "memory", .value = 10, .hop_us = 0, .ceiling = 0, .source = "a table"}};
  w.tolerance_pct = 80;
  const AcceptanceReport report = judge_acceptance(w, m, &trial);
  const Judgement& products = about(report, "floor", "matrix products of a rank");
  EXPECT_DOUBLE_EQ(products.value.median, 2);
  EXPECT_DOUBLE_EQ(products.value.low, 2) << "what was not measured is no rate of 0";
  EXPECT_EQ(products.value.n, 71);
  EXPECT_DOUBLE_EQ(*products.bound, 1.6);
  EXPECT_EQ(products.unit, "TFLOP/s");
  EXPECT_DOUBLE_EQ(*about(report, "ceiling", "matrix products of a rank").bound, 3);
  const Judgement& memory = about(report, "floor", "memory of a rank, read and written");
  EXPECT_DOUBLE_EQ(memory.value.median, 5);
  EXPECT_EQ(memory.verdict, Verdict::fail);
  EXPECT_THROW(about(report, "ceiling", "memory of a rank, read and written"), std::out_of_range);
  EXPECT_EQ(about(report, "floor", "pairs, one way").verdict, Verdict::pass);
  m.ladder.front().out_of_place->iterations_us = {0, 0.5, 1, 1000};
  EXPECT_EQ(about(judge_acceptance(w, m, &trial), "floor", "all_gather of 32.00 MiB on 8 ranks").value.n, 3)
      << "of no time there is no rate";
  const Judgement& gathered = about(report, "floor", "all_gather of 32.00 MiB on 8 ranks, in place");
  EXPECT_NEAR(gathered.value.median, 8 * 4.194304 * 7 / 8, 1e-9);  // 8 x 4 MiB in 1 ms, of which 7/8 move
  EXPECT_EQ(about(report, "floor", "all_gather of 32.00 MiB on 8 ranks").value.n, 20);
  EXPECT_DOUBLE_EQ(about(report, "exposed communication", "training steps, by rank").value.median, 0.05);
  EXPECT_DOUBLE_EQ(*about(report, "exposed communication", "training steps, by rank").bound, 0.1);
  EXPECT_EQ(about(report, "exposed communication", "training steps, by rank").value.n, 8);
  EXPECT_FALSE(report.emulated);
  EXPECT_EQ(report.ranks, 8);
}

TEST(AcceptanceTest, ARingPaysForEachOfItsSteps) {
  const Trial trial = trial_with_exposed(0.05);
  config::Acceptance w = wanted();
  w.references = {{.figure = "all_gather", .value = 58.720256, .hop_us = 0, .ceiling = 0, .source = "a table"}};
  w.tolerance_pct = 100;
  // 7/8 of 32 MiB, 29.36 MB, take 500 us; seven steps of 50 us as long again, and 150 us less.
  const auto bound = [&](double hop_us) {
    w.references[0].hop_us = hop_us;
    return *about(judge_acceptance(w, measured({}), &trial), "floor", "all_gather of 32.00 MiB on 8 ranks").bound;
  };
  EXPECT_NEAR(bound(0), 58.720256, 1e-9);
  EXPECT_NEAR(bound(50), 29.360128 / 850 * 1e3, 1e-9);
}

TEST(AcceptanceTest, WrongElementsAreOfTheRanksThatHaveThem) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  Timing& timing = *m.ladder.front().out_of_place;
  const std::string figure = "all_gather of 32.00 MiB on 8 ranks";
  const auto data = [&] { return about(judge_acceptance(wanted(), m, &trial), "data", figure); };
  timing.wrong = 15;
  timing.rank_wrong = {0, 5, 0, 10, 0, 0, 0, 0};
  EXPECT_EQ(data().sentence, "rank 1 (node) has 5 wrong elements, rank 3 (node) has 10 wrong elements");
  EXPECT_EQ(data().ranks, (std::vector{1, 3}));
  EXPECT_EQ(data().verdict, Verdict::fail);
  timing.rank_wrong = {1, 1, 1, 1, 0, 0, 0, 0};
  EXPECT_EQ(data().ranks.size(), 4U) << "half of them";
  EXPECT_THAT(data().sentence, Not(HasSubstr("more ranks")));
  timing.rank_wrong = {1, 1, 1, 1, 1, 1, 0, 0};
  EXPECT_THAT(data().sentence, ::testing::EndsWith("rank 3 (node) has 1 wrong elements and 2 more ranks"));
  EXPECT_TRUE(data().ranks.empty()) << "whoever sent them is to blame";
  timing.rank_wrong.clear();
  EXPECT_EQ(data().sentence, "15 elements of the result are wrong");
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_THROW(about(report, "floor", figure), std::out_of_range) << "of wrong data no rate is told";
  EXPECT_NO_THROW(about(report, "floor", figure + ", in place"));
  EXPECT_THROW(about(report, "shape", "all_gather by size"), std::out_of_range);
  EXPECT_NO_THROW(about(report, "shape", "all_gather by size, in place"));
  timing.wrong = 0;
  EXPECT_FALSE(judge_acceptance(wanted(), m, &trial).wrong_data);
}

TEST(AcceptanceTest, TailsAreOfMessagesFromAMebibyte) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  m.rates_tails = true;
  for (const auto& timing : {&m.ladder.front().out_of_place, &m.ladder.front().in_place}) {
    (*timing)->iterations_us.assign(100, 1000);
  }
  const auto tails = [&](std::int64_t count) {
    m.ladder.front().message.count = count;
    const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
    return std::ranges::count(report.judgements, "tail", &Judgement::rule);
  };
  EXPECT_EQ(tails((1 << 20) / 32), 2);
  EXPECT_EQ(tails((1 << 20) / 32 - 1), 0);
}

TEST(AcceptanceTest, AProcessMayStandStillForASecond) {
  AcceptanceMeasurements m = measured({});
  m.standstill_s = {1, 1, 1, 1, 1.5, 1.5, 1.5, 1.5};
  const AcceptanceReport half = judge_acceptance(wanted(), m, nullptr);
  EXPECT_EQ(half.findings.size(), 4U);
  EXPECT_EQ(half.findings.front().element.index, 4);
  EXPECT_EQ(half.findings.front().shortfall, 1);
  EXPECT_THAT(half.findings.front().check, HasSubstr("who stops processes there"));
  m.standstill_s[3] = 1.5;
  const AcceptanceReport most = judge_acceptance(wanted(), m, nullptr);
  EXPECT_TRUE(most.findings.empty());
  EXPECT_THAT(about(most, "standstill", "all ranks").sentence, HasSubstr("5 of 8 processes did not run"));
}

TEST(AcceptanceTest, OtherWorkMakesRanksFasterByWhatItTook) {
  AcceptanceMeasurements m;
  m.on_processors = true;
  m.others_share = 0.2;
  EXPECT_DOUBLE_EQ(may_be_faster(m), 1.25);
  EXPECT_DOUBLE_EQ(host_may_be_faster(m), 1.25);
  m.others_share = 1;
  EXPECT_NEAR(host_may_be_faster(m), 100, 1e-9) << "not forever";
  m.on_processors = false;
  EXPECT_EQ(may_be_faster(m), 1);
  m.others_share = 0.01;
  EXPECT_EQ(host_may_be_faster(m), 1);
}

/// Of the whole interval the better end counts, divided or multiplied by how much faster ranks may have been.
TEST(AcceptanceTest, WhatFailsByMoreThanOtherWorkExplainsStillFails) {
  AcceptanceMeasurements m;
  m.on_processors = true;
  m.others_share = 0.2;  // 1.25 times as fast
  const auto verdict = [&](const char* rule, accept::Interval value, double bound) {
    std::vector<Judgement> all{accept::judged(rule, "f", Verdict::fail, "why")};
    all.front().value = value;
    all.front().bound = bound;
    std::vector<accept::Finding> none;
    soften(m, all, none);
    return all.front().verdict;
  };
  for (const char* rule : {"floor", "scale", "explained"}) {
    EXPECT_EQ(verdict(rule, {7, 6, 7.9, 9}, 10), Verdict::fail) << rule;
    EXPECT_EQ(verdict(rule, {7, 6, 8, 9}, 10), Verdict::inconclusive) << rule;
  }
  for (const char* rule : {"exposed communication", "slow-down", "drift", "latency"}) {
    EXPECT_EQ(verdict(rule, {14, 12.6, 15, 9}, 10), Verdict::fail) << rule;
    EXPECT_EQ(verdict(rule, {14, 12.5, 15, 9}, 10), Verdict::inconclusive) << rule;
  }
  EXPECT_EQ(verdict("tail", {100, 100, 100, 9}, 1), Verdict::inconclusive);
  EXPECT_EQ(verdict("shape", {100, 100, 100, 9}, 1), Verdict::inconclusive);
  EXPECT_EQ(verdict("data", {1, 1, 1, 9}, 10), Verdict::fail);
}

TEST(AcceptanceTest, OfFewRanksNoneIsComparedWithTheOthers) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  m.cluster = {.nodes = 1, .gpus_per_node = 2};
  m.hosts.resize(2);
  m.fingerprints.resize(2);
  for (std::vector<double>& round : m.device_rates) round.resize(2);
  for (std::vector<double>& round : m.memory_rates) round.resize(2);
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_THAT(about(report, "peers", "ranks among each other, in matrix products").sentence,
              HasSubstr("2 ranks are too few to compare"));
  EXPECT_THAT(about(report, "lateness", "ranks at the reductions of the training steps").sentence,
              HasSubstr("of 2 ranks one is always last: 3 are needed"));
  EXPECT_FALSE(report.lateness);
  EXPECT_EQ(
      about(judge_acceptance(wanted(), measured({}), &trial), "peers", "ranks among each other, in matrix products")
          .verdict,
      Verdict::pass);
}

TEST(AcceptanceTest, EmulatedPartsAreToldAndNotHeldAgainstProcessors) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({{{Element::Kind::link, 3, 5}, accept::Fault::Kind::slow, 0.5}});
  m.on_processors = true;
  EXPECT_FALSE(judge_acceptance(wanted(), m, &trial).emulated);
  EXPECT_TRUE(judge_acceptance(wanted(), m, &trial).findings.front().on_cores);
  m.cores_move_bytes = false;
  const AcceptanceReport links = judge_acceptance(wanted(), m, &trial);
  EXPECT_TRUE(links.emulated);
  EXPECT_FALSE(links.findings.front().on_cores) << "a link that is emulated needs no core";
  m.on_processors = false;
  EXPECT_FALSE(judge_acceptance(wanted(), m, &trial).emulated);
  m.computes = false;
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_TRUE(report.emulated);
  EXPECT_THAT(about(report, "floor", "memory of a rank, read and written").sentence,
              HasSubstr("nothing moves in memory"));
  m.shares_cores = true;
  EXPECT_FALSE(judge_acceptance(wanted(), m, &trial).findings.empty()) << "cores do not move these bytes";
}

TEST(AcceptanceTest, TheReductionBesideAnotherIsHeldAgainstItsTimeAlone) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  const std::string figure = "reduce-scatter in groups of 4 beside all-reduce across 2 replicas";
  m.scales.reduce_alone_us.assign(20, 200);
  EXPECT_DOUBLE_EQ(about(judge_acceptance(wanted(), m, &trial), "slow-down", figure).value.median, 0.75);
  m.scales.reduce_alone_us.assign(20, 0);
  EXPECT_EQ(about(judge_acceptance(wanted(), m, &trial), "slow-down", figure).value.n, 0);
  m.scales.shard = 0;
  EXPECT_THROW(about(judge_acceptance(wanted(), m, &trial), "slow-down", figure), std::out_of_range);
}

TEST(AcceptanceTest, EachStepOfARankIsAShare) {
  Trial trial = trial_with_exposed(0.05);
  trial.metrics->ranks[3].step_ms.median = 0;
  const AcceptanceReport report = judge_acceptance(wanted(), measured({}), &trial);
  EXPECT_EQ(about(report, "exposed communication", "training steps, by rank").value.n, 7);
}

TEST(AcceptanceTest, WhoCameAndFromWhereIsHeldAgainstTheProfile) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  for (std::size_t rank = 0; rank < 8; ++rank) m.hosts[rank] = rank < 3 ? "a" : "b";
  m.cluster.hosts = m.hosts;
  m.ready_s = {1, 2, 1.5, 1, 1, 1, 1, 1};
  config::Acceptance w = wanted();
  w.ranks = 0;
  const auto rendezvous = [&] { return about(judge_acceptance(w, m, &trial), "rendezvous", "ranks"); };
  EXPECT_EQ(rendezvous().verdict, Verdict::unrated);
  EXPECT_EQ(
      rendezvous().sentence,
      "8 ranks came; the profile does not say how many there should be; the last to be ready was rank 1, after 2 s");
  w.nodes = 2;
  EXPECT_EQ(rendezvous().verdict, Verdict::pass);
  w.nodes = 3;
  EXPECT_EQ(rendezvous().verdict, Verdict::fail);
  EXPECT_THAT(rendezvous().sentence, HasSubstr("8 ranks came; they are of 2 nodes, and 3 are expected"));
  w.nodes = 0;
  w.ranks_per_node = 3;
  EXPECT_EQ(rendezvous().verdict, Verdict::fail);
  EXPECT_THAT(rendezvous().sentence, HasSubstr("; b has 5, and 3 are expected of each node"));
  EXPECT_EQ(rendezvous().ranks, std::vector{3}) << "the first of that node";
  m.hosts.assign(8, "a");
  w.ranks_per_node = 8;
  EXPECT_EQ(rendezvous().verdict, Verdict::pass);
  w.nodes = 2;
  EXPECT_THAT(rendezvous().sentence, HasSubstr("they are of 1 node, and 2 are expected"));
  m.clocks.assign(8, {.offset_ns = 5, .residual_ns = 3000, .at_ns = 0, .same_clock = true});
  EXPECT_THAT(rendezvous().sentence, Not(HasSubstr("clocks")));
  m.clocks[2] = {.offset_ns = 5, .residual_ns = 9000, .at_ns = 0, .same_clock = false};
  EXPECT_THAT(rendezvous().sentence, HasSubstr("known within 9 us"));
}

TEST(AcceptanceTest, SeveralThatDifferAreOneSentence) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  for (const std::size_t rank : {2U, 4U, 6U}) m.fingerprints[rank][1].second = "5.10";
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  const Judgement& differs = about(report, "inventory", "kernel");
  EXPECT_EQ(differs.sentence, "rank 2 on node and 2 more has kernel = '5.10', and 5 of 8 ranks have '6.1'");
  EXPECT_EQ(differs.ranks, (std::vector{2, 4, 6}));
  EXPECT_THROW(about(report, "inventory", "all ranks"), std::out_of_range);
  EXPECT_EQ(about(judge_acceptance(wanted(), measured({}), &trial), "inventory", "all ranks").sentence,
            "8 ranks have the same program, processor, kernel and libraries");
  m.fingerprints.clear();
  EXPECT_EQ(about(judge_acceptance(wanted(), m, &trial), "inventory", "all ranks").verdict, Verdict::inconclusive);
  m = measured({});
  m.topology = "the profile: 4 nodes on each";
  const AcceptanceReport told = judge_acceptance(wanted(), m, &trial);
  EXPECT_EQ(about(told, "topology", "switches that connect nodes").sentence, m.topology);
  EXPECT_EQ(
      about(told, "transport", "what carries the bytes of collectives").sentence,
      "rank 0: P2P/CUMEM (8 connections), NET/IB/0/GDRDMA (2 connections); the profile does not say what it should "
      "be");
}

TEST(AcceptanceFilesTest, TheHeadlineCountsWhoIsToBlameAndTheFabricsNodes) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({{{Element::Kind::gpu, 3, 0}, accept::Fault::Kind::slow, 0.7},
                                       {{Element::Kind::gpu, 6, 0}, accept::Fault::Kind::slow, 0.7}});
  m.others_share = 0.5;
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  const std::string text = acceptance_table(report);
  EXPECT_THAT(text, HasSubstr("; other programs took 50 % of the processors; to blame: rank "));
  EXPECT_THAT(text, HasSubstr(" and 3 more")) << "of two ranks, by products and by memory";
  EXPECT_THAT(text, Not(HasSubstr("EMULATED")));
  AcceptanceReport few;
  few.cluster = {.nodes = 2, .gpus_per_node = 1};
  few.ranks = 2;
  few.fabric = "f";
  few.emulated = true;
  few.judgements = {accept::judged("a", "b", Verdict::pass, "s"), accept::judged("a", "c", Verdict::unrated, "s")};
  few.verdict = Verdict::pass;
  EXPECT_THAT(acceptance_markdown(few),
              HasSubstr("# PASS: 2 ranks on 2 nodes, EMULATED, compared with f; 1 of 2 rules rated\n"));
  const std::string metrics = acceptance_metrics(few);
  EXPECT_THAT(metrics, AllOf(HasSubstr("rules{rated=\"true\"} 1\n"), HasSubstr("rules{rated=\"false\"} 1\n"),
                             HasSubstr("emulated{fabric=\"f\"} 1\n"), Not(HasSubstr("fsdpbench_accept_value{"))));
  few.emulated = false;
  few.judgements[0].value = {2.5, 2, 3, 4};
  few.judgements[0].unit = "us";
  EXPECT_THAT(acceptance_metrics(few), AllOf(HasSubstr("emulated{fabric=\"f\"} 0\n"),
                                             HasSubstr("value{rule=\"a\",figure=\"b\",unit=\"us\"} 2.5\n")));
}

TEST(AcceptanceFilesTest, MarkdownNamesWrongDataFirstAndThePlaceOfWhatFailed) {
  AcceptanceReport report;
  report.cluster = {.nodes = 1, .gpus_per_node = 2};
  report.cluster.hosts = {"a", "a"};
  report.cluster.devices = {"PCI 1", "PCI 2"};
  report.judgements = {accept::judged("floor", "pairs", Verdict::fail, "too slow"),
                       accept::judged("inventory", "kernel", Verdict::fail, "differs"),
                       accept::judged("peers", "x", Verdict::fail, "by its finding"),
                       accept::judged("ranks", "x", Verdict::fail, "lost"),
                       accept::judged("data", "ring", Verdict::fail, "3 elements")};
  report.judgements[1].ranks = {1};
  report.judgements[2].part = "rank 1";
  accept::Finding& brief = report.findings.emplace_back();
  brief.element = {Element::Kind::gpu, 0, 0};
  brief.kind = accept::Finding::Kind::transient;
  brief.evidence = "it was slow";
  brief.check = "clocks";
  report.lateness.emplace().in_turn = true;
  report.lateness->sentence = "all are late";
  tell_places(report);
  const std::string text = acceptance_markdown(report, "abc123");
  EXPECT_THAT(text,
              HasSubstr("\n\n- fail: data, ring: 3 elements\n- for a while: it was slow; check clocks\n"
                        "- fail: floor, pairs: too slow\n- fail: inventory, kernel: differs (host a, device PCI 2)\n"
                        "- all are late\n\n|"));
  EXPECT_THAT(text,
              HasSubstr("\nMeasured on host a, device PCI 1, PCI 2.\n\nEvidence: result.json, SHA-256 abc123.\n"));
  EXPECT_THAT(acceptance_markdown(report), Not(HasSubstr("Evidence")));
  const std::string table = acceptance_table(report);
  EXPECT_THAT(table, AllOf(HasSubstr("fail: floor, pairs: too slow\n"), HasSubstr("all are late\n"),
                           Not(HasSubstr("fail: peers"))));
}

TEST(AcceptanceFilesTest, EveryVerdictHasItsPlaceInJunit) {
  AcceptanceReport report;
  report.fabric = "f";
  for (const Verdict v : {Verdict::pass, Verdict::unrated, Verdict::inconclusive, Verdict::fail}) {
    Judgement& j = report.judgements.emplace_back();
    j.rule = "floor";
    j.figure = "<a & \"b\">" + std::string(to_string(v));
    j.verdict = v;
    j.sentence = "because\x01 1 < 2";
  }
  const std::string text = acceptance_junit(report);
  EXPECT_THAT(text, HasSubstr(R"(tests="4" failures="1" errors="1" skipped="1")"));
  EXPECT_THAT(text, HasSubstr(R"(name="&lt;a &amp; &quot;b&quot;&gt;pass")"));
  EXPECT_THAT(text, HasSubstr("<failure type=\"floor\" message="));
  EXPECT_THAT(text, HasSubstr("<error type=\"floor\" message="));
  EXPECT_THAT(text, HasSubstr("<skipped message="));
  EXPECT_THAT(text, Not(HasSubstr("\x01")));
}

TEST(AcceptanceFilesTest, CasesAreTheSameWhoeverIsToBlameAndHaveTheTimeOfTheirStages) {
  const Trial trial = trial_with_exposed(0.05);
  const auto names = [&](std::vector<accept::Fault> faults) {
    AcceptanceMeasurements m = measured(std::move(faults));
    m.stages = {{"matrix products of all 8 ranks", {}, 3, "", false},
                {"pairs of ranks: 28 measurements", {}, 5, "", false}};
    const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
    const std::string text = acceptance_junit(report);
    EXPECT_THAT(text, AllOf(HasSubstr("time=\"8.000\""), HasSubstr("name=\"pairs among each other\"")));
    std::vector<std::string> all;
    double sum = 0;
    for (std::size_t at = 0; (at = text.find("<testcase ", at)) != std::string::npos; ++at) {
      all.push_back(text.substr(at, text.find(" time=", at) - at));
      sum += std::stod(text.substr(text.find(" time=\"", at) + 7));
    }
    EXPECT_NEAR(sum, 8, 0.02);
    std::ranges::sort(all);
    return all;
  };
  const std::vector<std::string> healthy = names({});
  EXPECT_EQ(names({{{Element::Kind::gpu, 3, 0}, accept::Fault::Kind::slow, 0.7}}), healthy);
  EXPECT_EQ(names({{{Element::Kind::link, 3, 5}, accept::Fault::Kind::slow, 0.5}}), healthy);
  for (const std::string& name : healthy) EXPECT_THAT(name, Not(HasSubstr("rank 3")));
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

TEST(AcceptanceFilesTest, MarkupFromOutsideHasNoEffectInMarkdown) {
  AcceptanceReport report;
  report.fabric = "f";
  Judgement& j = report.judgements.emplace_back();
  j.rule = "floor";
  j.figure = "busbw_gb_per_s";
  j.verdict = Verdict::fail;
  j.sentence = "a|b\n# c `d` <img src=x> [e](f) *g* @h &lt; \\i";
  EXPECT_THAT(acceptance_markdown(report),
              HasSubstr("| floor | busbw_gb_per_s | fail | "
                        R"(a\|b\\x0a\# c \`d\` \<img src=x\> \[e\](f) \*g\* \@h \&lt; \\i |)"
                        "\n"));
}

TEST(AcceptanceFilesTest, PrometheusGetsVerdictAndAccused) {
  const Trial trial = trial_with_exposed(0.05);
  const AcceptanceMeasurements m = measured({{{Element::Kind::gpu, 3, 0}, accept::Fault::Kind::slow, 0.7}});
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  const std::string text = acceptance_metrics(report);
  EXPECT_THAT(text, HasSubstr("fsdpbench_accept_verdict{fabric=\"a <fabric> & \\\"more\\\"\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("fsdpbench_accept_accused{part=\"rank 3 (device 3 of node 0)\"} 1\n"));
  const nlohmann::json j = acceptance_json(report, m, World{}, nlohmann::json());
  EXPECT_EQ(j["verdict"], "fail");
  EXPECT_EQ(j["findings"][0]["kind"], "slow");
  EXPECT_THAT(acceptance_markdown(report), HasSubstr("# FAIL: 8 ranks on 1 node"));
}

TEST(LostRanks, FailByNameInAllFiles) {
  config::Acceptance wanted;
  wanted.fabric = "a fabric";
  const AcceptanceReport report =
      judge_lost_ranks(wanted, 3, {}, {{.rank = 1, .host = "node7", .sentence = "rank 1 on node7 was killed"}});
  EXPECT_EQ(report.exit_code(), 10);
  EXPECT_THAT(acceptance_markdown(report), HasSubstr("\n- rank 1 on node7 was killed; check the kernel's log"));
  EXPECT_THAT(acceptance_junit(report), HasSubstr("failures=\"1\" errors=\"1\""));
  EXPECT_EQ(node_lists(report).fail, std::vector<std::string>{"node7"});
  EXPECT_TRUE(node_lists(report).pass.empty());
}

TEST(LostRanks, OneThatNobodyKnowsAndOneBeyondTheRanksAreNamedToo) {
  const AcceptanceReport report = judge_lost_ranks({}, 2, {"a", "b"},
                                                   {{.rank = -1, .host = "c", .sentence = "all hang"},
                                                    {.rank = 2, .host = "d", .sentence = "rank 2 is gone"},
                                                    {.rank = 1, .host = "", .sentence = "rank 1 is gone"}},
                                                   true);
  ASSERT_EQ(report.findings.size(), 3U);
  EXPECT_EQ(report.findings[0].kind, accept::Finding::Kind::lost);
  EXPECT_EQ(report.findings[0].shortfall, 1);
  EXPECT_EQ(report.findings[0].element.kind, Element::Kind::fleet);
  EXPECT_THAT(report.findings[0].check, HasSubstr("(dmesg: out of memory)"));
  EXPECT_EQ(report.findings[2].element, (Element{Element::Kind::gpu, 1, 0}));
  ASSERT_EQ(report.judgements.size(), 4U);
  EXPECT_EQ(report.judgements[0].figure, "all ranks");
  EXPECT_EQ(report.judgements[1].part, "rank 2");
  EXPECT_TRUE(report.judgements[1].ranks.empty());
  EXPECT_EQ(report.judgements[2].ranks, std::vector{1});
  EXPECT_EQ(report.judgements[2].place.host, "b");
  EXPECT_EQ(report.judgements[3].rule, "stages");
  EXPECT_EQ(report.hosts, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(report.cluster.ranks(), 2);
}

TEST(LostRanks, OfThoseThatAllHangOneThatIsStoppedIsWhy) {
  const auto ended = [](bool killed, char state) {
    launch::RankEnd end;
    end.killed = killed;
    end.signal = killed ? SIGKILL : 0;
    end.state = state;
    return end;
  };
  const std::vector<LostRank> stopped = lost_of({ended(true, 'S'), ended(true, 'T'), ended(true, 'D')}, 60);
  ASSERT_EQ(stopped.size(), 2U);
  EXPECT_EQ(stopped[0].rank, 1);
  EXPECT_EQ(stopped[1].rank, 2);
  EXPECT_THAT(stopped[0].sentence, ::testing::StartsWith("rank 1 on " + stopped[0].host + " "));
  const std::vector<LostRank> all = lost_of({ended(true, 'S'), ended(true, 'R')}, 60);
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].rank, -1);
  EXPECT_THAT(all[0].sentence, HasSubstr("the 2 ranks on"));
  const std::vector<LostRank> some = lost_of({ended(true, 'S'), ended(false, 'S')}, 60);
  ASSERT_EQ(some.size(), 1U);
  EXPECT_EQ(some[0].rank, 0);
}

TEST(LostRanks, WhatOthersSaidMeanwhileIsEvidence) {
  const AcceptanceReport report =
      judge_lost_ranks({}, 3, {}, {{.rank = 1, .host = "node7", .sentence = "rank 1 was killed"}}, false,
                       {"NCCL's RAS says: Rank 1 is silent."});
  EXPECT_EQ(report.findings.front().evidence, "rank 1 was killed; NCCL's RAS says: Rank 1 is silent.");
  const nlohmann::json j = acceptance_json(report, AcceptanceMeasurements{}, World{}, nlohmann::json());
  EXPECT_EQ(j["meanwhile"], nlohmann::json({"NCCL's RAS says: Rank 1 is silent."}));
}

TEST(LostRanks, AHostWithoutDevicesFails) {
  const AcceptanceReport report = judge_no_devices({}, "node7", 8);
  EXPECT_EQ(report.ranks, 8);
  EXPECT_EQ(report.hosts, std::vector<std::string>(8, "node7"));
  ASSERT_EQ(report.judgements.size(), 1U);
  EXPECT_EQ(report.judgements[0].place.host, "node7");
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].element, (Element{Element::Kind::node, 0, 0}));
  EXPECT_EQ(report.findings[0].kind, accept::Finding::Kind::lost);
  EXPECT_EQ(report.findings[0].shortfall, 1);
  EXPECT_EQ(report.verdict, accept::Verdict::fail);
  EXPECT_THAT(acceptance_markdown(report), HasSubstr("- no GPU of node7 answers, and 8 are expected"));
  EXPECT_EQ(node_lists(report).fail, std::vector<std::string>{"node7"});
}

TEST(NodeLists, NameWhoFailedAndPassNobodyBesideThem) {
  AcceptanceReport report;
  report.cluster = {.nodes = 3, .gpus_per_node = 2};
  report.hosts = {"a", "a", "b", "b", "c", "c"};
  report.verdict = accept::Verdict::pass;
  EXPECT_EQ(host_lines(node_lists(report).pass), "a\nb\nc\n");
  report.verdict = accept::Verdict::fail;
  accept::Finding& finding = report.findings.emplace_back();
  finding.element = {accept::Element::Kind::nic, 1, 0};
  accept::Judgement& judgement =
      report.judgements.emplace_back(accept::judged("inventory", "kernel", accept::Verdict::fail, "other"));
  judgement.ranks = {5};
  EXPECT_EQ(host_lines(node_lists(report).fail), "b\nc\n");
  EXPECT_TRUE(node_lists(report).pass.empty());
  finding.element = {accept::Element::Kind::link, 0, 2};
  EXPECT_EQ(host_lines(node_lists(report).fail), "a\nc\n") << "rank 5 is of c, too";
  finding.element = {accept::Element::Kind::gpu, 2, 0};
  judgement.verdict = accept::Verdict::inconclusive;
  EXPECT_EQ(host_lines(node_lists(report).fail), "b\n");
  finding.kind = accept::Finding::Kind::transient;
  EXPECT_TRUE(node_lists(report).fail.empty());
  report.hosts.assign(6, "a");
  EXPECT_EQ(host_lines(node_lists(report).fail), "a\n") << "there is no other";
  report.verdict = accept::Verdict::inconclusive;
  EXPECT_TRUE(node_lists(report).fail.empty());
}

TEST(Findings, NameHostDeviceAndAdapterAndNoSwitchThatNobodyToldOf) {
  accept::Cluster cluster{.nodes = 100, .gpus_per_node = 1};
  cluster.hosts.assign(100, "node");
  cluster.hosts[3] = "node7";
  cluster.devices.assign(100, "PCI 0000:0f:00.0");
  cluster.adapters.assign(100, "mlx5_2");
  EXPECT_EQ(accept::name_of({accept::Element::Kind::gpu, 3, 0}, cluster),
            "rank 3 (device 0 of node 3, node7, PCI 0000:0f:00.0)");
  EXPECT_EQ(accept::name_of({accept::Element::Kind::nic, 3, 0}, cluster), "NIC 0 (mlx5_2) of node 3 (node7)");
  EXPECT_EQ(accept::name_of({accept::Element::Kind::switch_, 1, 0}, cluster),
            "what nodes 10 to 19 (node to node) have in common above their NICs");
  cluster.nodes_per_switch = 25;
  EXPECT_EQ(accept::name_of({accept::Element::Kind::switch_, 1, 0}, cluster), "switch 1");
}

TEST(Findings, EachPartHasItsNameItsPlaceAndWhatToCheck) {
  using Kind = Element::Kind;
  accept::Cluster c{.nodes = 4, .gpus_per_node = 2, .rails = 2, .nodes_per_switch = 2};
  for (int rank = 0; rank < 8; ++rank) {
    c.hosts.push_back("h" + std::to_string(rank / 2));
    c.devices.push_back("PCI " + std::to_string(rank % 2));
    c.adapters.push_back("mlx" + std::to_string(rank % 2));
    c.uuids.push_back("GPU-" + std::to_string(rank));
  }
  struct Part {
    Element element;
    const char *name, *host, *device, *nic, *check;
  };
  for (const Part& part : std::initializer_list<Part>{
           {{Kind::gpu, 3, 0}, "rank 3 (device 1 of node 1, h1, PCI 1)", "h1", "PCI 1", "mlx1", "nvidia-smi -q"},
           {{Kind::node, 2, 0}, "node 2 (h2)", "h2", "PCI 0, PCI 1", "mlx0, mlx1", "CPU load"},
           {{Kind::nic, 1, 1}, "NIC 1 (mlx1) of node 1 (h1)", "h1", "", "mlx1", "cable and port"},
           {{Kind::link, 0, 3},
            "the link between node 0 (h0) and node 3 (h3)",
            "h0, h3",
            "PCI 0, PCI 1",
            "mlx0, mlx1",
            "both ports"},
           {{Kind::uplink, 0, 1},
            "the path between switch 0 and switch 1",
            "h0, h1, h2, h3",
            "PCI 0, PCI 1",
            "mlx0, mlx1",
            "between the two switches"},
           {{Kind::switch_, 1, 0}, "switch 1", "h2, h3", "PCI 0, PCI 1", "mlx0, mlx1", "its temperature"},
           {{Kind::leaf_rail, 1, 1},
            "rail 1 of switch 1",
            "h2, h3",
            "PCI 0, PCI 1",
            "mlx0, mlx1",
            "this rail of these"},
           {{Kind::rail, 1, 0},
            "rail 1 of all nodes",
            "h0, h1, h2, h3",
            "PCI 0, PCI 1",
            "mlx0, mlx1",
            "switches of this rail"},
           {{Kind::spine, 0, 0},
            "one of the paths that the switches choose among",
            "h0, h1, h2, h3",
            "PCI 0, PCI 1",
            "mlx0, mlx1",
            "spine"},
           {{Kind::fleet, 0, 0}, "the whole fleet", "h0, h1, h2, h3", "PCI 0, PCI 1", "mlx0, mlx1", "in common"}}) {
    EXPECT_EQ(accept::name_of(part.element, c), part.name);
    const accept::Place place = accept::place_of(part.element, c);
    EXPECT_EQ(place.host, part.host) << part.name;
    EXPECT_EQ(place.device, part.device) << part.name;
    EXPECT_EQ(place.nic, part.nic) << part.name;
    EXPECT_THAT(accept::next_check(part.element, c, accept::SlowAt::work), HasSubstr(part.check)) << part.name;
  }
  EXPECT_EQ(accept::place_of({Kind::gpu, 3, 0}, c).uuid, "GPU-3");
  c.nodes_per_switch = 0;
  c.switch_of = {0, 1, 0, 1};
  EXPECT_EQ(accept::name_of({Kind::switch_, 1, 0}, c), "what nodes 1 (h1), 3 (h3) have in common above their NICs");
  EXPECT_THAT(accept::next_check({Kind::switch_, 1, 0}, c, accept::SlowAt::work), HasSubstr("leaf switch"));
  c.switches = {"left", ""};
  EXPECT_EQ(accept::name_of({Kind::switch_, 0, 0}, c), "switch left");
  EXPECT_EQ(accept::name_of({Kind::switch_, 1, 0}, c), "switch 1");
  accept::Cluster one{.nodes = 1, .gpus_per_node = 4, .on_processors = true};
  one.switch_of = {0, 0, 1, 1};
  EXPECT_EQ(accept::name_of({Kind::switch_, 1, 0}, one), "what ranks 2 to 3 have in common");
  EXPECT_EQ(accept::name_of({Kind::link, 1, 2}, one), "the link between rank 1 and rank 2");
  EXPECT_THAT(accept::next_check({Kind::switch_, 1, 0}, one, accept::SlowAt::work),
              HasSubstr("a socket, a PCIe switch"));
  EXPECT_THAT(accept::next_check({Kind::link, 1, 2}, one, accept::SlowAt::transfers), HasSubstr("NVLink"));
  EXPECT_THAT(accept::next_check({Kind::gpu, 1, 0}, one, accept::SlowAt::work), HasSubstr("control group"));
  EXPECT_EQ(accept::place_of({Kind::nic, 0, 1}, one).nic, "NIC 1");
}

TEST(Findings, OfManySomeAreNamed) {
  accept::Cluster c{.nodes = 40, .gpus_per_node = 1};
  for (int node = 0; node < 40; ++node) {
    c.switch_of.push_back(node % 2);
    c.hosts.push_back("h" + std::to_string(node));
  }
  EXPECT_THAT(accept::name_of({Element::Kind::switch_, 1, 0}, c),
              AllOf(HasSubstr("what nodes 1 (h1), 3 (h3), "), HasSubstr("31 (h31) and 4 more have in common")));
  EXPECT_EQ(accept::place_of_all(c).host, "h0, h1, h2, h3, h4, h5, h6, h7 and 32 more");
  c.hosts.resize(8);
  EXPECT_EQ(accept::place_of_all(c).host, "h0, h1, h2, h3, h4, h5, h6, h7");
  EXPECT_EQ(accept::place_of(std::vector{2, 2, 5}, c).host, "h2, h5") << "each once";
}

TEST(Groups, AreSwitchesAsToldOrNeighboursWhereThereAreMany) {
  const auto members = [](const accept::Cluster& cluster) { return accept::groups_of(cluster).members; };
  using Members = std::vector<std::vector<int>>;
  EXPECT_EQ(members({.nodes = 4, .gpus_per_node = 8}), (Members{{0, 1, 2, 3}}));
  EXPECT_EQ(members({.nodes = 5, .gpus_per_node = 8, .nodes_per_switch = 2}), (Members{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(members({.nodes = 4, .gpus_per_node = 8, .nodes_per_switch = 4}), (Members{{0, 1, 2, 3}}));
  EXPECT_EQ(members({.nodes = 4, .nodes_per_switch = 2, .switch_of = {1, 0, 1, 0}}), (Members{{1, 3}, {0, 2}}));
  EXPECT_EQ(members({.nodes = 1, .gpus_per_node = 4, .nodes_per_switch = 2}), (Members{{0, 1, 2, 3}}));
  EXPECT_EQ(members({.nodes = 64}).size(), 1U);
  EXPECT_EQ(members({.nodes = 65}).size(), 8U) << "of nine";
  EXPECT_EQ(members({.nodes = 65}).front().size(), 9U);
  EXPECT_TRUE(accept::groups_of({.nodes = 65}).same(0, 8));
  EXPECT_FALSE(accept::groups_of({.nodes = 65}).same(8, 9));
}

}  // namespace
}  // namespace fsdpbench::app
