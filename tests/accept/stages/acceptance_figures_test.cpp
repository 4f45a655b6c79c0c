// Figures of an acceptance, from what its stages measured.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <stdexcept>

#include "accept/stages/acceptance.h"
#include "accept/stages/acceptance_report.h"
#include "acceptance_cases.h"
#include "hardware/other_work.h"

namespace fsdpbench::app {
namespace {

using accept::Element;
using accept::Judgement;
using accept::Verdict;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  EXPECT_EQ(half.findings.front().element, (Element{Element::Kind::gpu, 4, 0}));
  EXPECT_EQ(half.findings.front().shortfall, 1);
  EXPECT_FALSE(half.findings.front().on_cores);
  EXPECT_THAT(half.findings.front().check, HasSubstr("who stops processes there"));
  m.standstill_s = {1.5, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(judge_acceptance(wanted(), m, nullptr).findings.at(0).element, (Element{Element::Kind::gpu, 0, 0}));
  m.standstill_s = {1, 1, 1, 1.5, 1.5, 1.5, 1.5, 1.5};
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
  m.on_processors = true;
  EXPECT_EQ(may_be_faster(m), 1);
  m.others_share = kQuietShare;
  EXPECT_GT(may_be_faster(m), 1);
  EXPECT_GT(host_may_be_faster(m), 1);
}

/// Parts on cores that are no slower than other work explains were slow for a while; 0.475 is twice as fast 0.95.
TEST(AcceptanceTest, FindingsOnCoresAreSoftenedByWhatOtherWorkTook) {
  AcceptanceMeasurements m;
  m.on_processors = true;
  const auto softened = [&](double share, double relative, accept::Finding::Kind kind) {
    m.others_share = share;
    std::vector<Judgement> none;
    std::vector<accept::Finding> findings(1);
    findings[0].kind = kind;
    findings[0].on_cores = true;
    findings[0].relative = {relative, relative, relative, 9};
    findings[0].evidence = "slow";
    soften(m, none, findings);
    return findings[0].evidence != "slow" && findings[0].kind == accept::Finding::Kind::transient;
  };
  using enum accept::Finding::Kind;
  EXPECT_TRUE(softened(0.5, 0.475, slow));
  EXPECT_TRUE(softened(0.5, 0.475, half_duplex));
  EXPECT_FALSE(softened(0.5, 0.474, slow));
  EXPECT_FALSE(softened(0.5, 0.475, lost));
  EXPECT_FALSE(softened(0.05, 0.97, slow)) << "on a quiet machine";
}

TEST(AcceptanceTest, WithoutAnyRuleTheVerdictIsTheExitCode) {
  AcceptanceReport report;
  report.verdict = Verdict::inconclusive;
  EXPECT_EQ(report.exit_code(), static_cast<int>(ExitCode::inconclusive));
}

/// Where a finding is, and which way it is slow, are told with its judgement; so is what no part explains.
TEST(AcceptanceTest, AFindingOfPairsTellsItsDirectionAndWhatIsLeft) {
  AcceptanceMeasurements m = measured({});
  m.cluster.hosts.assign(8, "a");
  accept::Finding& finding = m.links.findings.emplace_back();
  finding.element = {Element::Kind::gpu, 2, 0};
  finding.direction = "sends";
  finding.relative = {0.5, 0.4, 0.6, 9};
  m.links.remainder.emplace(accept::Interval{0.7, 0.69, 0.72, 8}, "something else is slow");
  const AcceptanceReport report = judge_acceptance(wanted(), m, nullptr);
  const Judgement& slow = about(report, "peers", "pairs among each other");
  EXPECT_EQ(slow.place.direction, "sends");
  EXPECT_EQ(slow.place.host, "a");
  EXPECT_EQ(slow.value.median, 0.5);
  EXPECT_EQ(slow.unit, "of its peers' median");
  EXPECT_EQ(slow.part, "rank 2 (device 2 of node 0, a)");
  const Judgement& left = about(report, "peers", kRemainderFigure);
  EXPECT_EQ(left.value.median, 0.7);
  EXPECT_EQ(left.unit, "of what the parts to blame leave");
}

/// The better end of the whole interval counts, divided or multiplied by how much faster ranks may have been.
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
  for (const char* rule : {"floor", "scale"}) {
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

/// Rules that are asked of one rank, of two, and of more.
TEST(AcceptanceTest, OfFewRanksNoneIsComparedWithTheOthers) {
  const Trial trial = trial_with_exposed(0.05);
  const auto of_ranks = [&](int ranks) {
    AcceptanceMeasurements m = measured({});
    m.cluster = {.nodes = 1, .gpus_per_node = ranks};
    const auto count = static_cast<std::size_t>(ranks);
    m.hosts.resize(count);
    m.fingerprints.resize(count);
    for (accept::DeviceRounds* rounds : {&m.device_rates, &m.memory_rates}) {
      for (std::vector<double>& round : *rounds) round.resize(count);
    }
    for (accept::Arrivals& sample : m.arrivals) sample.arrival_us.resize(count);
    m.soak.assign(18, m.arms.front());
    return judge_acceptance(wanted(), m, &trial);
  };
  const auto rules = [&](int ranks) {
    const AcceptanceReport report = of_ranks(ranks);
    const auto count = [&](const char* rule) { return std::ranges::count(report.judgements, rule, &Judgement::rule); };
    return fmt::format("shape {}, scale {}, overlap {}, drift {}, transport {}, pairs {}, none {}, lateness {}",
                       count("shape"), count("scale"), count("overlap"), count("drift"), count("transport"),
                       std::ranges::count(report.judgements, "pairs, one way", &Judgement::figure),
                       std::ranges::count(report.judgements, "collectives", &Judgement::figure),
                       report.lateness ? "told" : "not told");
  };
  EXPECT_EQ(rules(1), "shape 0, scale 0, overlap 0, drift 0, transport 0, pairs 0, none 1, lateness not told");
  EXPECT_EQ(rules(2), "shape 2, scale 2, overlap 1, drift 3, transport 1, pairs 1, none 0, lateness not told");
  EXPECT_EQ(rules(3), "shape 2, scale 2, overlap 1, drift 3, transport 1, pairs 1, none 0, lateness told");
  const char* const figure = "ranks among each other, in matrix products";
  EXPECT_EQ(about(of_ranks(4), "peers", figure).sentence, "4 ranks are too few to compare: 5 are needed");
  EXPECT_EQ(about(of_ranks(5), "peers", figure).verdict, Verdict::pass);
  EXPECT_EQ(about(of_ranks(2), "lateness", "ranks at the reductions of the training steps").sentence,
            "of 2 ranks one is always last: 3 are needed");
  EXPECT_THAT(about(of_ranks(1), "rendezvous", "ranks").sentence, HasSubstr("1 rank came, and 8 are expected"));
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

/// Each rule that holds a figure against something, with what it holds it against.
TEST(AcceptanceTest, EachRuleHasItsBoundItsUnitAndItsFigure) {
  const Trial trial = trial_with_exposed(0.05);
  config::Acceptance w = wanted();
  w.slowdown = 1.3;
  w.scale_pct = 70;
  w.exposed_pct = 12;
  w.cliff_pct = 25;
  w.references[0].ceiling = 5;
  AcceptanceMeasurements m = measured({});
  m.soak.assign(18, m.arms.front());
  m.ladder.push_back(m.ladder.front());
  m.ladder.back().message.count *= 2;
  std::vector<std::string> told;
  for (const Judgement& j : judge_acceptance(w, m, &trial).judgements) {
    told.push_back(fmt::format("{} | {} | {} | {} | {}", j.rule, j.figure, to_string(j.verdict), j.unit,
                               j.bound ? fmt::format("{:.4g}", *j.bound) : "-"));
  }
  const std::vector<std::string> expected{
      "inventory | all ranks | pass |  | -",
      "rendezvous | ranks | pass |  | -",
      "transport | what carries the bytes of collectives | unrated |  | -",
      "floor | matrix products of a rank | pass | TFLOP/s | 0.9",
      "ceiling | matrix products of a rank | pass | TFLOP/s | 5",
      "peers | ranks among each other, in matrix products | pass |  | -",
      "floor | memory of a rank, read and written | unrated | GB/s | -",
      "peers | ranks among each other, in copies in its memory | pass |  | -",
      "floor | pairs, one way | unrated | GB/s | -",
      "peers | pairs among each other | pass |  | -",
      "floor | all_gather of 32.00 MiB on 8 ranks | pass | GB/s | 27",
      "ceiling | all_gather of 32.00 MiB on 8 ranks | pass | GB/s | 100",
      "floor | all_gather of 32.00 MiB on 8 ranks, in place | pass | GB/s | 27",
      "ceiling | all_gather of 32.00 MiB on 8 ranks, in place | pass | GB/s | 100",
      "floor | all_gather of 64.00 MiB on 8 ranks | pass | GB/s | 27",
      "ceiling | all_gather of 64.00 MiB on 8 ranks | pass | GB/s | 100",
      "floor | all_gather of 64.00 MiB on 8 ranks, in place | pass | GB/s | 27",
      "ceiling | all_gather of 64.00 MiB on 8 ranks, in place | pass | GB/s | 100",
      "shape | all_gather by size | pass | GB/s | -",
      "shape | all_gather by size, in place | pass | GB/s | -",
      "scale | all_gather of 4.00 MiB per rank, by ranks of a group | pass | of the smallest scale | 0.7",
      "scale | reduce_scatter of 4.00 MiB per rank, by ranks of a group | pass | of the smallest scale | 0.7",
      "exposed communication | training steps, by rank | pass | of a step | 0.12",
      "exposed communication | a step against its computation alone | pass | of a step | 0.12",
      "overlap | the shorter of computation and communication | unrated | of it is hidden | -",
      "slow-down | computation beside communication | pass | times its time alone | 1.3",
      "slow-down | communication beside computation | unrated | times its time alone | -",
      "drift | computation | pass | of the first third's time | 1.03",
      "drift | communication | pass | of the first third's time | 1.03",
      "drift | the whole step | pass | of the first third's time | 1.03",
      "lateness | ranks at the reductions of the training steps | pass | us of waiting for the last rank | -",
      "rated | rules that could be rated | pass | of all | 0.4"};
  EXPECT_EQ(told, expected);
  const AcceptanceReport report = judge_acceptance(w, m, &trial);
  EXPECT_EQ(about(report, "shape", "all_gather by size").sentence,
            "bandwidth does not fall by more than 25 % from a size to a larger one");
  EXPECT_EQ(about(report, "rated", "rules that could be rated").sentence,
            "26 of 31 rules could be rated, and 40 % are asked for (rated_pct, --least-rated)");
  EXPECT_DOUBLE_EQ(about(report, "rated", "rules that could be rated").value.median, 26.0 / 31);
  EXPECT_NEAR(about(report, "exposed communication", "a step against its computation alone").value.median, 0.05, 1e-12);
  EXPECT_NEAR(about(report, "overlap", "the shorter of computation and communication").value.median, 35.0 / 40, 1e-12);
  EXPECT_EQ(report.took_s, 0);
  EXPECT_EQ(report.fabric, w.fabric);
  EXPECT_EQ(report.hosts, m.hosts);
}

/// A stage's time is shared by the judgements of its judge.
TEST(AcceptanceTest, EachJudgementTakesItsShareOfItsStages) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  const std::vector<std::pair<const char*, double>> stages{{"inventory", 100},
                                                           {"matrix products of all 8 ranks", 3},
                                                           {"copies in memory of all 8 ranks", 5},
                                                           {"pairs of ranks: 28", 10},
                                                           {"all_gather of 1 MiB", 8},
                                                           {"collectives in groups of 2", 6},
                                                           {"training steps of x", 7},
                                                           {"computation alone, communication alone and both", 12}};
  for (const auto& [name, took_s] : stages) m.stages.push_back({name, {}, took_s, "", false});
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  EXPECT_DOUBLE_EQ(report.took_s, 151);
  const auto took = [&](const char* rule, const char* figure) { return about(report, rule, figure).took_s; };
  EXPECT_DOUBLE_EQ(took("floor", "matrix products of a rank"), 8.0 / 4);
  EXPECT_DOUBLE_EQ(took("peers", "pairs among each other"), 10.0 / 2);
  EXPECT_DOUBLE_EQ(took("floor", "all_gather of 32.00 MiB on 8 ranks"), 8.0 / 4);
  EXPECT_DOUBLE_EQ(took("scale", "all_gather of 4.00 MiB per rank, by ranks of a group"), 6.0 / 2);
  EXPECT_DOUBLE_EQ(took("exposed communication", "training steps, by rank"), 7);
  EXPECT_DOUBLE_EQ(took("overlap", "the shorter of computation and communication"), 12.0 / 4);
  EXPECT_EQ(took("shape", "all_gather by size"), 0);
  EXPECT_EQ(took("inventory", "all ranks"), 0);
}

/// One sentence each for what there was no way to measure.
TEST(AcceptanceTest, WhatWasNotMeasuredSaysWhy) {
  AcceptanceMeasurements m = measured({});
  m.ladder.clear();
  m.arms.clear();
  m.scales.clear();
  m.links.one_way.clear();
  m.device_rates.clear();
  const AcceptanceReport report = judge_acceptance(wanted(), m, nullptr);
  EXPECT_EQ(about(report, "floor", "collectives").sentence, "no collective was measured");
  EXPECT_EQ(about(report, "floor", "collectives").verdict, Verdict::inconclusive);
  EXPECT_EQ(about(report, "scale", "all_gather, by ranks of a group").sentence, "2 ranks were not measured");
  EXPECT_EQ(about(report, "overlap", "the shorter of computation and communication").sentence,
            "the arms of a step were not measured");
  EXPECT_EQ(about(report, "exposed communication", "training steps, by rank").sentence, "it was not measured");
  EXPECT_EQ(about(report, "floor", "matrix products of a rank").sentence, "it was not measured");
  EXPECT_THROW(about(report, "peers", "ranks among each other, in matrix products"), std::out_of_range)
      << "its stage says why";
  EXPECT_THROW(about(report, "drift", "computation"), std::out_of_range);
  m = measured({});
  m.others_share = 0.5;
  const AcceptanceReport busy = judge_acceptance(wanted(), m, nullptr);
  EXPECT_EQ(about(busy, "other work", "processors of the busiest host").sentence,
            "other programs used 50 % of the CPU during the test, so CPU-bound times are not representative of this "
            "machine");
  EXPECT_EQ(about(busy, "other work", "processors of the busiest host").value.median, 0.5);
  EXPECT_EQ(about(busy, "other work", "processors of the busiest host").unit, "of them");
}

TEST(AcceptanceTest, EachStepOfARankIsAShare) {
  Trial trial = trial_with_exposed(0.05);
  Trial unmeasured;
  EXPECT_EQ(
      about(judge_acceptance(wanted(), measured({}), &unmeasured), "exposed communication", "training steps, by rank")
          .sentence,
      "it was not measured");
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
  w.ranks = 1;
  EXPECT_THAT(about(judge_acceptance(w, m, &trial), "rendezvous", "ranks").sentence,
              HasSubstr("8 ranks came, and 1 are expected"));
  EXPECT_EQ(about(judge_acceptance(w, m, &trial), "rendezvous", "ranks").verdict, Verdict::fail);
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
  m.clocks.assign(8, {.offset_ns = 5, .residual_ns = 0, .at_ns = 0, .same_clock = false});
  EXPECT_THAT(rendezvous().sentence, HasSubstr("known within 0 us"));
}

TEST(AcceptanceTest, SeveralThatDifferAreOneSentence) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  for (const std::size_t rank : {2U, 4U, 6U}) m.fingerprints[rank][1].second = "5.10";
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  const Judgement& differs = about(report, "inventory", "kernel");
  EXPECT_EQ(differs.sentence, "rank 2 on node and 2 more has kernel = '5.10', and 5 of 8 ranks have '6.1'");
  EXPECT_EQ(differs.ranks, (std::vector{2, 4, 6}));
  EXPECT_EQ(differs.part, "rank 2");
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

TEST(AcceptanceTest, WhatStepsShowedOfHostsAndGpusIsAdded) {
  AcceptanceMeasurements m;
  m.others_share = 0.25;
  Trial trial;
  trial.others_share = 0.5;
  trial.measurement.gpus.resize(2);
  trial.measurement.gpus[1].emplace().unknown_because = "There is no library.";
  add_meanwhile(m, trial);
  EXPECT_EQ(m.others_share, 0.5);
  ASSERT_EQ(m.gpus.size(), 2U);
  EXPECT_EQ(m.gpus[1]->unknown_because, "There is no library.");
  trial.others_share = 0.125;
  add_meanwhile(m, trial);
  EXPECT_EQ(m.others_share, 0.5);
}

TEST(AcceptancePlan, AStepGathersTwiceReducesOnceAndComputes) {
  config::RunConfig config;
  config.mesh = {8, 8, 1};
  config.fsdp.activation_checkpointing = true;
  const engine::Setup setup = engine::set_up(config);
  double bytes = 0, flops = 0;
  for (const plan::Unit& unit : setup.plan.units) bytes += 4.0 * static_cast<double>(unit.layout.gathered_numel());
  for (const plan::ModuleSizes& m : setup.sizes) flops += m.forward_flops + m.recompute_flops + m.backward_flops;
  EXPECT_DOUBLE_EQ(about_step_s(setup, 2e9, 0), 3 * bytes / 2e9);
  EXPECT_DOUBLE_EQ(about_step_s(setup, 0, 1e9), flops / 1e9);
  EXPECT_DOUBLE_EQ(about_step_s(setup, 2e9, 1e9), 3 * bytes / 2e9 + flops / 1e9);
  EXPECT_EQ(about_step_s(setup, 0, 0), 0);
}

TEST(AcceptancePlan, HasEachStageWithItsTimeByTheProfilesRates) {
  config::RunConfig config;
  config.mesh = {8, 8, 1};
  config.device.backend = config::BackendKind::cpu;
  config::Acceptance w = wanted();
  w.matrix = 1000;
  w.memory_mib = 100;
  w.tolerance_pct = 80;
  w.references.clear();
  for (const auto& [figure, value] :
       {std::pair{"gemm", 1e-3}, {"memory", 1.0}, {"launch", 8.0}, {"pair", 1e-3}, {"all_gather", 1e-4}}) {
    w.references.push_back({.figure = figure, .value = value, .hop_us = 0, .ceiling = 0, .source = "a table"});
  }
  // 46 ops of 2 GFLOP at 1 GFLOP/s; 46 copies of 105 MB, twice, at 1 and an assumed 5 GB/s; 7 rounds of 18 x 4 MiB at
  // 1 MB/s; 2 x 203 gathers of together 1.37 MB, of which 7/8 move, at 0.1 MB/s, and the same for three groups, half as
  // often.
  const std::string one = acceptance_plan(w, "profile", config, 1, {true, 600, 1200});
  EXPECT_THAT(one, ::testing::StartsWith("Plan of an acceptance of 8 ranks on 1 node, compared with a <fabric> "));
  for (const char* line : {
           "inventory        program, kernel, libraries and device of each rank        –",
           "matrix products  15 rounds of 1000 rows on all ranks                       1 min 32 s",
           "memory           15 rounds of copies of 100.00 MiB                         10 s",
           "pairs of ranks   28 measurements in 7 rounds, and again where one is slow  8 min 48 s",
           "collectives      6 messages, 200 times, in and out of place                1 h 21 min *",
           "scales           3 sizes of groups, up to 8 ranks                          40 min 34 s",
           "steps            12 training steps of                                      20 s",
           "parts            30 rounds of computation, communication and both          4 min 54 s",
           "soak             the parts again and again                                 what is left",
           "* by assumed rates of slow hardware: the profile has no reference",
           "Together at most about 10 min 00 s (--budget): stages repeat less if time is short. Ranks that hang are "
           "ended after 20 min 00 s (--limit).",
           "gemm                                 0.0008 TFLOP/s  a table",
           "memory                               0.8 GB/s        a table",
           "launch                               at most 10 us   a table",
           "pair                                 0.0008 GB/s     a table",
           "all_gather of 256.50 KiB on 8 ranks  8e-05 GB/s      a table",
           "all_gather of 360.53 KiB on 8 ranks  8e-05 GB/s      a table",
           "all_gather of 721.00 KiB on 8 ranks  8e-05 GB/s      a table",
           "fsdpbench accept profile --full --out acceptance",
           "srun --ntasks=8 fsdpbench accept profile --full --out acceptance",
           "fsdpbench gate acceptance --against runs/baselines    # exit code 13: fewer than 40 % of the rules were "
           "rated",
       }) {
    EXPECT_THAT(one, HasSubstr(std::string("\n") + line + "\n"));
  }
  config.mesh = {32, 32, 1};
  config.device.backend = config::BackendKind::cuda;
  w.rated_pct = 0;
  const std::string four = acceptance_plan(w, "profile", config, 4, {false, 600, 1200});
  EXPECT_THAT(four, ::testing::StartsWith("Plan of an acceptance of 32 ranks on 4 nodes, "));
  for (const char* line : {
           "matrix products  15 rounds of 1000 rows on all ranks                                1 min 32 s",
           "memory           15 rounds of copies of 100.00 MiB                                        10 s",
           "launches         kernels with next to no work, until their host knows their end              –",
           "pairs of nodes   6 measurements in 3 rounds, and again where one is slow            3 min 46 s",
           "collectives      6 messages, 20 times, in and out of place                       10 min 11 s *",
           "scales           5 sizes of groups, up to 32 ranks                                  8 min 29 s",
           "steps            12 training steps of                                                      2 s",
           "parts            8 rounds of computation, communication and both                           8 s",
           "* by assumed rates of slow hardware: the profile has no reference",
           "Together at most about 10 min 00 s (--budget): stages repeat less if time is short. Ranks that hang are "
           "ended after 20 min 00 s (--limit).",
           "all_gather of 721.00 KiB on 32 ranks  8e-05 GB/s      a table",
           "srun --nodes=4 --ntasks-per-node=8 fsdpbench accept profile --out acceptance",
           "mpirun -n 32 --map-by ppr:8:node fsdpbench accept profile --out acceptance",
           "fsdpbench gate acceptance --against runs/baselines",
       }) {
    EXPECT_THAT(four, HasSubstr(std::string("\n") + line + "\n"));
  }
  // 2 x 23 messages of together 2.74 MB, of which 31/32 move, at 25 MB/s; half as many bytes in each of five groups.
  w.references = {{.figure = "all_gather", .value = 0.025, .hop_us = 0, .ceiling = 0, .source = "a"},
                  {.figure = "reduce_scatter", .value = 0.025, .hop_us = 0, .ceiling = 0, .source = "b"}};
  w.ranks = w.ranks_per_node = 8;
  const std::string quick = acceptance_plan(w, "profile --set a=1", config, 4, {false, 600, 1200});
  EXPECT_THAT(
      quick, AllOf(HasSubstr("\ncollectives      6 messages, 20 times, in and out of place                           "),
                   HasSubstr("  5 s\nscales "), HasSubstr("  4 s\nsteps "),
                   HasSubstr("reduce_scatter of 721.00 KiB on 32 ranks  0.02 GB/s  b\n"),
                   HasSubstr("--ntasks-per-node=8 fsdpbench accept profile --set a=1 --out acceptance\n")));
  EXPECT_THROW(acceptance_plan(
                   [&] {
                     w.nodes = 5;
                     return w;
                   }(),
                   "p", config, 4, {false, 600, 1200}),
               ConfigError);
  w.nodes = 1;
  config.mesh = {8, 8, 1};
  EXPECT_THAT(acceptance_plan(w, "p", config, std::nullopt, {false, 600, 1200}),
              ::testing::StartsWith("Plan of an acceptance of 8 ranks on 1 node, "));
  config.mesh = {};
  w.ranks = 1;
  w.ranks_per_node = 0;
  w.rated_pct = 1;
  EXPECT_THAT(
      acceptance_plan(w, "p", config, 1, {false, 600, 1200}),
      AllOf(::testing::StartsWith("Plan of an acceptance of 1 ranks on 1 node, "),
            HasSubstr("0 sizes of groups, up to 1 ranks"), HasSubstr("fewer than 1 % of the rules were rated\n")));
  w.ranks_per_node = 1;
  w.ranks = 8;
  EXPECT_THAT(acceptance_plan(w, "p", config, 2, {false, 600, 1200}),
              ::testing::StartsWith("Plan of an acceptance of 2 ranks on 2 nodes, "));
  w.ranks_per_node = 8;
  config.mesh = {32, 32, 1};
  w.references.clear();
  EXPECT_THAT(acceptance_plan(w, "profile", config, 4, {false, 600, 1200}),
              HasSubstr("No figure has a floor: the profile has no [[reference]]."));
}

}  // namespace
}  // namespace fsdpbench::app
