// Files that an acceptance writes: Markdown, metrics, JUnit, lists of nodes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "accept/stages/acceptance.h"
#include "accept/stages/acceptance_files.h"
#include "accept/stages/acceptance_report.h"
#include "accept/stages/judgement_files.h"
#include "accept/stages/lost_ranks.h"
#include "acceptance_cases.h"
#include "base/error.h"
#include "config/support.h"
#include "runs/result_file.h"

namespace fsdpbench::app {
namespace {

using accept::Element;
using accept::Judgement;
using accept::Verdict;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  EXPECT_THAT(
      acceptance_markdown(few),
      HasSubstr("# PASS: 2 ranks on 2 nodes, EMULATED, compared with f; 1 of 2 rules rated; no rank was compared with "
                "others: 5 ranks are needed\n"));
  few.ranks = 5;
  EXPECT_THAT(acceptance_markdown(few), HasSubstr("1 of 2 rules rated\n")) << "they were compared";
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
  const AcceptanceReport first = judge_lost_ranks({}, 2, {}, {{.rank = 0, .host = "a", .sentence = "rank 0 is gone"}});
  EXPECT_EQ(first.findings.front().element, (Element{Element::Kind::gpu, 0, 0}));
  EXPECT_EQ(first.judgements.front().part, "rank 0");
  EXPECT_EQ(first.hosts, (std::vector<std::string>{"a", ""}));
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

TEST(LostRanks, NcclsRasIsAskedWhereNcclHasIt) {
  const auto asked = [](const std::string& given, bool on_processors, const char* enable, const char* address) {
    return ras_of(given, on_processors,
                  [=](const char* name) { return std::string_view(name) == "NCCL_RAS_ENABLE" ? enable : address; });
  };
  EXPECT_EQ(asked("", false, nullptr, nullptr), "localhost");
  EXPECT_EQ(asked("", false, "1", "here:5"), "here:5");
  EXPECT_EQ(asked("", false, "0", "here:5"), "");
  EXPECT_EQ(asked("", true, nullptr, "here:5"), "") << "CPU ranks have no NCCL";
  EXPECT_EQ(asked("there:7", true, "0", "here:5"), "there:7");
  EXPECT_EQ(asked("off", false, nullptr, "here:5"), "");
}

TEST(LostRanks, WhatNcclsRasSaysIsASentenceOfItsWatch) {
  std::vector<std::string> words;
  const auto told = [&](const std::string& printed) {
    return told_by_ras("here:5", [&](const std::vector<std::string>& asked) {
      words = asked;
      if (printed.empty()) throw BackendError("it does not answer");
      return printed;
    });
  };
  EXPECT_EQ(told("{\"sentence\": \"Rank 1 is silent.\"}"), "NCCL's RAS (here:5) says: Rank 1 is silent.");
  EXPECT_EQ(words, (std::vector<std::string>{"--once", "--stopped", "--json", "--ras=here:5"}));
  EXPECT_EQ(told("[1"), "NCCL's RAS (here:5) was not heard: there was no whole answer in time");
  EXPECT_EQ(told("[1]"), "NCCL's RAS (here:5) was not heard: there was no whole answer in time");
  EXPECT_EQ(told(""), "NCCL's RAS (here:5) was not heard: it does not answer");
}

TEST(LostRanks, AsManyProcessesStartAsAreAskedForButNoMoreThanDevices) {
  config::RunConfig config;
  config.mesh.ranks = 5;
  config::Acceptance any, eight;
  any.ranks = 0;
  eight.ranks = 8;
  EXPECT_EQ(own_ranks(any, {}, config, std::nullopt), 5);
  EXPECT_EQ(own_ranks(any, {}, config, 3), 3);
  EXPECT_EQ(own_ranks(any, {}, config, 6), 6) << "one per GPU";
  EXPECT_EQ(own_ranks(eight, {"train.steps=3"}, config, std::nullopt), 8);
  EXPECT_EQ(own_ranks(eight, {}, config, 6), 6);
  EXPECT_EQ(own_ranks(eight, {"mesh.ranks=5"}, config, 6), 5);
  EXPECT_EQ(own_ranks(any, {"mesh.ranks=5"}, config, 4), 4);
}

TEST(LostRanks, WhatRank0WroteOfTheJobIsReadAgain) {
  const config::TemporaryFolder folder;
  EXPECT_TRUE(told_by_rank_0(folder.path() / "none.json").empty());
  EXPECT_TRUE(told_by_rank_0(folder.write("cut.json", "{\"meanwhile\": [")).empty());
  EXPECT_TRUE(told_by_rank_0(folder.write("other.json", "{}")).empty());
  EXPECT_EQ(told_by_rank_0(folder.write("result.json", "{\"meanwhile\": [\"a\", \"b\"]}")),
            (std::vector<std::string>{"a", "b"}));
}

TEST(LostRanks, EveryReportSaysOfWhatAndWhereItIs) {
  config::Acceptance wanted;
  wanted.fabric = "a fabric";
  const AcceptanceReport lost =
      judge_lost_ranks(wanted, 2, {"a"}, {{.rank = 1, .host = "b", .sentence = "rank 1 is gone"}}, false, {"x", "y"});
  EXPECT_EQ(lost.fabric, "a fabric");
  EXPECT_EQ(lost.ranks, 2);
  EXPECT_EQ(lost.verdict, Verdict::fail);
  EXPECT_EQ(lost.hosts, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(lost.cluster.hosts, lost.hosts);
  EXPECT_EQ(lost.findings.front().evidence, "rank 1 is gone; x; y");
  EXPECT_EQ(lost.findings.front().check,
            "the kernel's log of that host (dmesg: Xid, out of memory, its driver), and what else runs there");
  EXPECT_EQ(lost.meanwhile, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(lost.judgements.front().place.host, "b");
  EXPECT_EQ(lost.judgements.back().sentence, "they were not measured, because a rank was lost");
  EXPECT_EQ(lost.judgements.back().verdict, Verdict::inconclusive);
  EXPECT_TRUE(judge_lost_ranks(wanted, 2, {}, {}, false, {"x"}).findings.empty());
  const AcceptanceReport none = judge_no_devices(wanted, "node7", 8);
  EXPECT_EQ(none.fabric, "a fabric");
  EXPECT_EQ(none.cluster.gpus_per_node, 8);
  EXPECT_EQ(none.findings.front().evidence, "no GPU of node7 answers, and 8 are expected");
  EXPECT_EQ(none.findings.front().check,
            "the driver (nvidia-smi -L), the kernel's log (dmesg: Xid 79, fallen off the bus), CUDA_VISIBLE_DEVICES");
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
  judgement.verdict = accept::Verdict::fail;
  judgement.ranks = {6};  // of which no host is known
  EXPECT_TRUE(node_lists(report).fail.empty());
  report.hosts.assign(6, "a");
  EXPECT_EQ(host_lines(node_lists(report).fail), "a\n") << "there is no other";
  report.verdict = accept::Verdict::inconclusive;
  EXPECT_TRUE(node_lists(report).fail.empty());
}

TEST(AcceptanceFilesTest, ResultJsonHasWhatWasMeasured) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({{{Element::Kind::link, 3, 5}, accept::Fault::Kind::slow, 0.5}});
  m.cluster.hosts.assign(8, "a");
  m.pairs = {{0, 1.5}, {2.5, 0}};
  m.launch_us = {{3, 4, 3, 4, 3, 4, 3, 4}};
  m.stages = {{"pairs", 1.5, 2.5, "some", true}, {"steps", std::nullopt, 0.5, "", false}};
  m.clocks = {{.offset_ns = -5, .residual_ns = 7, .at_ns = 0, .same_clock = true}};
  m.soak.assign(1, m.arms.front());
  m.others_share = 0.05;
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  const nlohmann::json j = acceptance_json(report, m, World{}, {{"matrix", 3}});
  EXPECT_EQ(j["kind"], "acceptance");
  EXPECT_EQ(acceptance_file_facts().name, "Acceptance");
  EXPECT_EQ(j["verdict"], "fail");
  EXPECT_EQ(j["fabric"], report.fabric);
  EXPECT_EQ(j["emulated"], false);
  EXPECT_EQ(j["rated"], rated_rules(report));
  EXPECT_EQ(j["ranks"], 8);
  EXPECT_EQ(j["nodes"], 1);
  EXPECT_EQ(j["settings"], nlohmann::json::parse(R"({"matrix": 3})"));
  EXPECT_EQ(j["judgements"].size(), report.judgements.size());
  EXPECT_EQ(j["judgements"][0], nlohmann::json::parse(R"({"rule": "inventory", "figure": "all ranks", "verdict": "pass",
    "why": "8 ranks have the same program, processor, kernel and libraries", "host": "a"})"));
  ASSERT_EQ(j["findings"].size(), 1U);
  const accept::Finding& finding = report.findings.front();
  EXPECT_EQ(j["findings"][0]["part"], "the link between rank 3 and rank 5");
  EXPECT_EQ(j["findings"][0]["kind"], "slow");
  EXPECT_EQ(j["findings"][0]["shortfall"], finding.shortfall);
  EXPECT_EQ(j["findings"][0]["relative"]["ci_high"], finding.relative.high);
  EXPECT_EQ(j["findings"][0]["evidence"], finding.evidence);
  EXPECT_EQ(j["findings"][0]["check"], finding.check);
  EXPECT_EQ(j["findings"][0]["host"], "a");
  EXPECT_FALSE(j.contains("meanwhile"));
  EXPECT_EQ(j["device_rates_flops_per_s"].size(), 15U);
  EXPECT_EQ(j["memory_rates_bytes_per_s"].size(), 15U);
  EXPECT_EQ(j["launch_us"], nlohmann::json::parse("[[3, 4, 3, 4, 3, 4, 3, 4]]"));
  EXPECT_EQ(j["pairs"]["one_way_gb_per_s"].size(), 28U);
  EXPECT_EQ(j["pairs"]["rounds"], m.links.rounds);
  EXPECT_EQ(j["pairs"]["measurements"], m.links.measurements);
  EXPECT_EQ(j["pairs"]["compared"], true);
  EXPECT_EQ(j["pairs"]["ends"], "ranks");
  EXPECT_EQ(j["pairs"]["gb_per_s"], nlohmann::json::parse("[[0, 1.5], [2.5, 0]]"));
  EXPECT_EQ(j["stages"], nlohmann::json::parse(R"([
    {"name": "pairs", "took_s": 2.5, "skipped": true, "estimate_s": 1.5, "note": "some"},
    {"name": "steps", "took_s": 0.5, "skipped": false}])"));
  EXPECT_EQ(j["rendezvous"]["ready_s"], std::vector<double>(8, 0.25));
  EXPECT_EQ(j["rendezvous"]["clocks"][0],
            nlohmann::json::parse(R"({"offset_ns": -5, "residual_ns": 7, "same_clock": true})"));
  EXPECT_EQ(j["others_share"], 0.05);
  EXPECT_EQ(j["transports"].size(), 8U);
  EXPECT_EQ(j["scales"].size(), 6U);
  EXPECT_EQ(j["scales"][0], nlohmann::json::parse(R"({"kind": "all_gather", "group_size": 2, "bytes": 8388608,
    "busbw_gb_per_s": 41.94304, "p50_us": 100})"));
  EXPECT_EQ(j["lateness"]["last_share"].size(), 8U);
  EXPECT_EQ(j["arms"]["rounds"].size(), 8U);
  EXPECT_EQ(j["arms"]["soak"][0], nlohmann::json::parse(R"({"compute_ms": 95, "comm_ms": 40, "step_ms": 100,
    "kernels_alone_ms": 90, "kernels_beside_ms": 92, "transfers_alone_ms": 38, "transfers_beside_ms": 39})"));
  EXPECT_EQ(j["collectives"][0]["figures"], (std::vector<std::string>{"all_gather of 32.00 MiB on 8 ranks",
                                                                      "all_gather of 32.00 MiB on 8 ranks, in place"}));
  m.cluster = {.nodes = 2, .gpus_per_node = 4};
  m.cluster.hosts.assign(8, "a");
  EXPECT_EQ(acceptance_json(judge_acceptance(wanted(), m, &trial), m, World{}, nullptr)["pairs"]["ends"], "nodes");
}

TEST(AcceptanceFilesTest, MetricsAreThisText) {
  AcceptanceReport report;
  report.cluster = {.nodes = 1, .gpus_per_node = 2};
  report.cluster.hosts = {"a", "b"};
  report.fabric = "f";
  report.verdict = Verdict::fail;
  report.judgements = {accept::judged("floor", "x", Verdict::fail, "s"),
                       accept::judged("scale", "y", Verdict::unrated, "s")};
  report.judgements[0].value = {2.5, 2, 3, 1};
  report.judgements[0].unit = "GB/s";
  report.judgements[0].part = "rank 1";
  report.judgements[0].place.host = "b";
  accept::Finding& slow = report.findings.emplace_back();
  slow.element = {Element::Kind::gpu, 1, 0};
  slow.direction = "sends";
  report.findings.emplace_back(slow).kind = accept::Finding::Kind::transient;
  const std::string all = "host=\"a, b\"";
  EXPECT_EQ(
      acceptance_metrics(report),
      "# HELP fsdpbench_accept_verdict 0 pass, 1 unrated, 2 inconclusive, 3 fail\n"
      "# TYPE fsdpbench_accept_verdict gauge\n"
      "fsdpbench_accept_verdict{fabric=\"f\"," +
          all +
          "} 3\n"
          "# HELP fsdpbench_accept_rules Rules that were applied, by whether there was something to rate them by\n"
          "# TYPE fsdpbench_accept_rules gauge\n"
          "fsdpbench_accept_rules{rated=\"true\"," +
          all +
          "} 1\n"
          "fsdpbench_accept_rules{rated=\"false\"," +
          all +
          "} 1\n"
          "# HELP fsdpbench_accept_emulated 1 if computation or links were emulated, so that times are modelled\n"
          "# TYPE fsdpbench_accept_emulated gauge\n"
          "fsdpbench_accept_emulated{fabric=\"f\"," +
          all +
          "} 0\n"
          "# HELP fsdpbench_accept_rule The same of each rule and figure\n"
          "# TYPE fsdpbench_accept_rule gauge\n"
          "fsdpbench_accept_rule{rule=\"floor\",figure=\"x\",part=\"rank 1\",host=\"b\"} 3\n"
          "fsdpbench_accept_rule{rule=\"scale\",figure=\"y\"} 1\n"
          "# HELP fsdpbench_accept_value Median of each figure, in its unit\n"
          "# TYPE fsdpbench_accept_value gauge\n"
          "fsdpbench_accept_value{rule=\"floor\",figure=\"x\",part=\"rank 1\",unit=\"GB/s\",host=\"b\"} 2.5\n"
          "# HELP fsdpbench_accept_accused 1 for each part that is to blame\n"
          "# TYPE fsdpbench_accept_accused gauge\n"
          "fsdpbench_accept_accused{part=\"rank 1 (device 1 of node 0, b)\",host=\"b\",direction=\"sends\"} 1\n");
  const std::string table = acceptance_table(report);
  EXPECT_THAT(
      table, ::testing::StartsWith("FAIL: 0 ranks on 1 node, compared with f; 1 of 2 rules rated; no rank was compared "
                                   "with others: 5 ranks are needed; to blame: rank 1 (device 1 of node 0, b)\n"));
  EXPECT_THAT(table, HasSubstr("fail     floor  x: rank 1  2.50 GB/s  2.00 to 3.00      –\n"
                               "1 rules were not rated: --verbose shows them\n"));
}

TEST(AcceptanceFilesTest, EachFileHasItsContentAndTheTableIsPrinted) {
  const Trial trial = trial_with_exposed(0.05);
  AcceptanceMeasurements m = measured({});
  m.fingerprints[5][1].second = "5.10";
  m.hosts[5] = "other";
  const AcceptanceReport report = judge_acceptance(wanted(), m, &trial);
  const config::TemporaryFolder folder;
  const auto content = [&](const char* name) {
    std::ifstream file(folder.path() / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  write_acceptance(folder.path(), report, m, World{}, {{"matrix", 3}});
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), acceptance_table(report));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("written to " + folder.path().string()));
  const std::string result = content("result.json");
  EXPECT_EQ(nlohmann::json::parse(result)["settings"], nlohmann::json::parse(R"({"matrix": 3})"));
  EXPECT_EQ(nlohmann::json::parse(result)["verdict"], "fail");
  EXPECT_EQ(content("junit.xml"), acceptance_junit(report));
  EXPECT_EQ(content("summary.md"), acceptance_markdown(report, sha256(result)));
  EXPECT_EQ(content("metrics.prom"), acceptance_metrics(report));
  EXPECT_EQ(content("pass_nodes.txt"), "");
  EXPECT_EQ(content("fail_nodes.txt"), "other\n");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  write_acceptance(folder.path(), judge_acceptance(wanted(), measured({}), &trial), m, World{}, {});
  EXPECT_EQ(content("pass_nodes.txt") + content("fail_nodes.txt"), "node\n");
  EXPECT_EQ(report_lost(folder.path(), judge_no_devices(wanted(), "node7", 8), config::RunConfig{}, {"accept"},
                        ExitCode::below_floor),
            10);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("no GPU of node7 answers"));
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(content("fail_nodes.txt"), "node7\n");
  EXPECT_EQ(settings_compared(wanted(), config::RunConfig{})["matrix"], wanted().matrix);
}

TEST(LostRanks, HowTheRanksEndedIsTheExitCode) {
  const config::TemporaryFolder folder;
  const auto ended = [&](const std::vector<int>& codes, config::BackendKind backend = config::BackendKind::cpu) {
    std::vector<launch::RankEnd> ends(codes.size());
    for (std::size_t rank = 0; rank < codes.size(); ++rank) {
      ends[rank].code = codes[rank];
      if (codes[rank] < 0) ends[rank].signal = SIGKILL;
    }
    config::RunConfig config;
    config.device.backend = backend;
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = report_ends(wanted(), config, folder.path(), {"accept"}, 60, ends);
    ::testing::internal::GetCapturedStderr();
    return fmt::format("{}: {}", code, ::testing::internal::GetCapturedStdout().substr(0, 17));
  };
  EXPECT_EQ(ended({10, 10}), "10: ") << "rank 0's";
  EXPECT_EQ(ended({5, 2, 5}), "2: ") << "a rank refuses the configuration";
  EXPECT_EQ(ended({5, -9, 5}), "5: FAIL: 3 ranks on ");
  std::ifstream cpu(folder.path() / "summary.md");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(cpu), {}), HasSubstr("dmesg: out of memory"));
  EXPECT_EQ(ended({5, -9}, config::BackendKind::cuda), "5: FAIL: 2 ranks on ");
  std::ifstream gpu(folder.path() / "summary.md");
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(gpu), {}), HasSubstr("dmesg: Xid, out of memory"));
}

TEST(JunitTest, ASuiteIsThisText) {
  std::vector<Judgement> all{accept::judged("floor", "f", Verdict::pass, "good"),
                             accept::judged("peers", "g", Verdict::inconclusive, "slow for a while"),
                             accept::judged("peers", "g", Verdict::fail, "slow"),
                             accept::judged("scale", "h", Verdict::unrated, "one\x7f"),
                             accept::judged("scale", "f", Verdict::inconclusive, "open")};
  for (std::size_t i = 0; i < all.size(); ++i) all[i].took_s = 0.5 * static_cast<double>(i + 1);
  all[0].place = {.host = "a", .device = "d", .uuid = "u", .nic = "NIC 0", .direction = "sends"};
  all[2].place.nic = "mlx5_0";
  EXPECT_EQ(
      junit_xml({.suite = "s", .host = "", .date = "2026-01-02T03:04:0", .seconds = 7.5, .headline = "FAIL"}, all),
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuites name=\"fsdpbench\" tests=\"4\" failures=\"1\" errors=\"1\" time=\"7.500\">\n"
      "  <testsuite name=\"s\" tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\" time=\"7.500\" "
      "hostname=\"localhost\">\n"
      "    <properties><property name=\"headline\" value=\"FAIL\"/></properties>\n"
      "    <testcase classname=\"s.floor\" name=\"f\" time=\"0.500\"><system-out>good</system-out>"
      "<system-out>host a, device d, UUID u, NIC 0, slow where it sends</system-out></testcase>\n"
      "    <testcase classname=\"s.peers\" name=\"g\" time=\"2.500\"><failure type=\"peers\" "
      "message=\"slow for a while; slow\"/><system-out>NIC mlx5_0</system-out></testcase>\n"
      "    <testcase classname=\"s.scale\" name=\"h\" time=\"2.000\"><skipped message=\"one\\x7f\"/></testcase>\n"
      "    <testcase classname=\"s.scale\" name=\"f\" time=\"2.500\"><error type=\"scale\" message=\"open\"/>"
      "</testcase>\n"
      "  </testsuite>\n</testsuites>\n");
  const std::string bare = junit_xml({.suite = "s", .date = "2026-01-02T03:04:05"}, {});
  EXPECT_THAT(bare, AllOf(HasSubstr(" timestamp=\"2026-01-02T03:04:05\">"), Not(HasSubstr("properties"))));
  EXPECT_EQ(place_text({}), "");
}

}  // namespace
}  // namespace fsdpbench::app
