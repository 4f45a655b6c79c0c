#include "tune/expectation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/find_file.h"
#include "config/published.h"
#include "runs/simulated_machine.h"
#include "support/temporary_folder.h"

namespace fsdpbench::app {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using What = PossibleReason::What;
using Unit = MeasuredRate::Unit;

Cell asked_cell(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"device.backend=virtual", "train.steps=3", "train.warmup=1", "mesh.ranks=4"});
  return open_cell(load_config(config::find_profile("quickstart"), overrides, nullptr));
}

/// A machine whose rates are given, so that nothing is in doubt.
Cell at_rates(std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(), {"emulate.compute_tflops=0.06", "emulate.link_gb_per_s=0.1"});
  return asked_cell(std::move(overrides));
}

Cell on_dgx(std::vector<std::string> overrides = {}) {
  overrides.insert(overrides.begin(),
                   {"simulate.cluster=dgx-h100", "model.preset=llama3.2-1b", "mesh.ranks=16", "fsdp.param_dtype=bf16"});
  return asked_cell(std::move(overrides));
}

Trial simulation_of(const Cell& cell) { return run_trial(cell, {}, current_world(cell.setup.config, nullptr, {})); }

Expectation expectation_of(const Cell& cell, std::optional<MeasuredRate> measured = {}) {
  return expect(cell, simulation_of(cell), measured);
}

const PossibleReason& reason(const Expectation& e, What what) {
  for (const PossibleReason& r : e.reasons) {
    if (r.what == what) return r;
  }
  throw std::logic_error("no such reason");
}

/// The step of a machine that differs from at_rates() in `overrides`, as if a user had measured it.
MeasuredRate step_with(std::vector<std::string> overrides) {
  return {Unit::step_ms, simulation_of(at_rates(std::move(overrides))).metrics->step_ms.median};
}

TEST(ReadMeasuredRate, KnowsRatesStepsAndUtilisation) {
  const auto read = [](const char* text) {
    const MeasuredRate rate = read_measured_rate(text);
    return std::pair(rate.unit, rate.value);
  };
  EXPECT_EQ(read("6150"), std::pair(Unit::tokens_per_s, 6150.0));
  EXPECT_EQ(read("6150.5 tok/s"), std::pair(Unit::tokens_per_s, 6150.5));
  EXPECT_EQ(read("2.5 s"), std::pair(Unit::step_ms, 2500.0));
  EXPECT_EQ(read("2310ms"), std::pair(Unit::step_ms, 2310.0));
  EXPECT_EQ(read("41 %"), std::pair(Unit::mfu_pct, 41.0));
  for (const char* wrong : {"", "fast", "0", "-3", "nan", "inf", "1e999", "6150 tok", "3 min", "5 % of peak"}) {
    EXPECT_THROW(read_measured_rate(wrong), ConfigError) << wrong;
  }
}

TEST(Expectation, OfComputationAtSixtyPercentSaysSo) {
  const Expectation e = expectation_of(at_rates(), step_with({"emulate.compute_tflops=0.036"}));
  EXPECT_FALSE(e.measured->as_expected);
  EXPECT_NEAR(reason(e, What::computation).amount.value, 0.6, 0.002);
  EXPECT_FALSE(reason(e, What::computation).amount.bounds);  // given rates are not in doubt
}

TEST(Expectation, OfLinksAtFortyPercentSaysSo) {
  const Expectation e = expectation_of(at_rates(), step_with({"emulate.link_gb_per_s=0.04"}));
  EXPECT_NEAR(reason(e, What::links).amount.value, 0.4, 0.002);
  EXPECT_THAT(reason(e, What::links).seen_as, HasSubstr("GB/s of bus bandwidth, not"));
}

TEST(Expectation, OfFasterComputationSaysSoAndNamesNoHost) {
  const Expectation e = expectation_of(at_rates({"emulate.link_gb_per_s=10"}),
                                       step_with({"emulate.compute_tflops=0.09", "emulate.link_gb_per_s=10"}));
  EXPECT_NEAR(reason(e, What::computation).amount.value, 1.5, 0.005);
  for (const PossibleReason& r : e.reasons) EXPECT_TRUE(r.what == What::computation || r.what == What::links);
}

TEST(Expectation, TimeOutsideTheStepIsTheDifference) {
  const Cell cell = at_rates();
  const double step_ms = simulation_of(cell).metrics->step_ms.median;
  const Expectation e = expectation_of(cell, MeasuredRate{Unit::step_ms, step_ms + 7});
  EXPECT_NEAR(reason(e, What::outside).amount.value, 7, 1e-9);
  const double host_ms =
      reason(e, What::host).amount.value;  // issuing makes the step as long, if it takes so much more
  const SimulatedMachine machine(cell.setup.config);
  clock::Changes changes;
  changes.issue_ns = std::nearbyint(host_ms * 1e6 / static_cast<double>(cell.setup.schedules.steady().ops.size()));
  const double longer = machine.forecast(cell.setup, changes).slowest_ns() / machine.forecast(cell.setup).slowest_ns();
  EXPECT_NEAR(longer, 1 + 7 / step_ms, 0.002);
}

TEST(Expectation, OfWhatIsMeasuredAsExpectedThereIsNoReason) {
  const Cell cell = at_rates();
  const Expectation plain = expectation_of(cell);
  EXPECT_FALSE(plain.measured);
  const Expectation e = expectation_of(cell, MeasuredRate{Unit::tokens_per_s, plain.tokens_per_s_rank->value});
  EXPECT_TRUE(e.measured->as_expected);
  EXPECT_TRUE(e.reasons.empty());
}

TEST(Expectation, OfOneRankHasNoLinksToBlame) {
  const Expectation e = expectation_of(at_rates({"mesh.ranks=1"}), MeasuredRate{Unit::step_ms, 1e4});
  for (const PossibleReason& r : e.reasons) EXPECT_NE(r.what, What::links);
}

TEST(Expectation, OfAClusterHasIntervalsThatTheReasonsShare) {
  const Cell cell = on_dgx();
  const Expectation plain = expectation_of(cell);
  ASSERT_TRUE(plain.tokens_per_s_rank->bounds && plain.mfu_pct && plain.mfu_pct->bounds && plain.device_bytes);
  EXPECT_LT(plain.tokens_per_s_rank->bounds->low, plain.tokens_per_s_rank->value);
  EXPECT_GT(plain.tokens_per_s_rank->bounds->high, plain.tokens_per_s_rank->value);
  EXPECT_LE(plain.peak_bytes, *plain.device_bytes);

  const Expectation within = expectation_of(
      cell,
      MeasuredRate{Unit::tokens_per_s, (plain.tokens_per_s_rank->bounds->low + plain.tokens_per_s_rank->value) / 2});
  EXPECT_TRUE(within.measured->as_expected);
  EXPECT_EQ(reason(within, What::outside).amount.bounds->low, 0);  // it may be nothing
  EXPECT_EQ(reason(within, What::computation).amount.bounds->high, 1);

  const Expectation below = expectation_of(cell, MeasuredRate{Unit::mfu_pct, plain.mfu_pct->bounds->low * 0.8});
  EXPECT_FALSE(below.measured->as_expected);
  EXPECT_GT(reason(below, What::outside).amount.bounds->low, 0);
  EXPECT_LT(reason(below, What::computation).amount.bounds->high, 1);
  EXPECT_THAT(expectation_text(below), HasSubstr("below the interval"));
  const nlohmann::json j = fields<Expectation>().write(below);
  EXPECT_FALSE(j.at("measured").at("as_expected"));
  EXPECT_EQ(j.at("reasons").size(), below.reasons.size());
}

/// If the step may be so long that it takes longer than measured even with nothing to compute, no speed is the highest.
TEST(Expectation, AnIntervalWithoutAnUpperEndSaysOrMore) {
  const Cell cell = on_dgx({"train.seq_len=4096"});
  const double expected_ms = expectation_of(cell).step_ms.value;
  for (double part = 0.9; part > 0.1; part *= 0.9) {
    const Expectation e = expectation_of(cell, MeasuredRate{Unit::step_ms, part * expected_ms});
    if (e.reasons.empty() || e.reasons[0].what != What::computation) continue;
    if (!std::isinf(e.reasons[0].amount.bounds->high)) continue;
    EXPECT_THAT(expectation_text(e), AllOf(HasSubstr(" or more)"), Not(HasSubstr("inf)"))));
    EXPECT_TRUE(fields<Expectation>().write(e).at("reasons")[0].at("high").is_null());
    return;
  }
  FAIL() << "no measured step has such an interval";
}

TEST(Expectation, AnUtilisationNeedsAPeak) {
  const Cell cell = at_rates({"model.preset=quickstart"});
  const Expectation e = expectation_of(cell, MeasuredRate{Unit::mfu_pct, 5});
  EXPECT_TRUE(e.measured);    // emulate.compute_tflops is one
  EXPECT_FALSE(e.published);  // no GPU is named
}

TEST(NearestPublished, OfAPublishedTrainingIsItself) {
  int asked = 0;
  for (const config::CsvRow& row : config::read_csv(config::find_published_trainings())) {
    if (row.text("id") != "T131" && row.text("id") != "T005") continue;
    ++asked;
    config::RunConfig config = config::published_config(row);
    config.train.warmup = config.train.steps = 2;  // of the steady state, as they are predicted
    const Cell cell = open_cell(std::move(config));
    const Expectation e = expectation_of(cell);
    ASSERT_TRUE(e.published);
    EXPECT_EQ(e.published->id, row.text("id"));
    EXPECT_THAT(e.published->differs, ElementsAre());
    EXPECT_NEAR(e.published->predicted, e.tokens_per_s_rank->value, e.tokens_per_s_rank->value * 1e-3);
  }
  EXPECT_EQ(asked, 2);
}

TEST(NearestPublished, IsOfTheSameModelAndFramework) {
  const Expectation e = expectation_of(
      on_dgx({"model.preset=llama3-8b", "mesh.ranks=64", "train.seq_len=4096", "simulate.efficiency=torchtitan"}));
  ASSERT_TRUE(e.published);
  EXPECT_THAT(e.published->title, HasSubstr("llama3-8b"));
  EXPECT_THAT(e.published->differs, ::testing::Not(::testing::Contains(HasSubstr("llm-foundry"))));
}

/// One keeps every second product, and the other recomputes everything.
TEST(NearestPublished, DiffersInWhatCheckpointingKeeps) {
  const std::vector<std::string> common{"model.preset=llama3-8b", "mesh.ranks=8", "train.seq_len=8192",
                                        "simulate.efficiency=torchtitan", "fsdp.activation_checkpointing=true"};
  const auto asked = [&](const char* keeps) {
    std::vector<std::string> all = common;
    all.push_back(fmt::format("fsdp.checkpoint_keeps={}", keeps));
    return *expectation_of(on_dgx(all)).published;
  };
  const std::string theirs = "checkpointing that keeps every_second_product";
  const NearestPublished same = asked("every_second_product"), other = asked("nothing");
  EXPECT_THAT(same.title, AllOf(HasSubstr("llama3-8b in bf16 on 8 ranks of dgx-h100, "), HasSubstr(theirs)));
  EXPECT_THAT(same.differs, Not(::testing::Contains(theirs)));
  EXPECT_EQ(other.id, same.id);
  EXPECT_THAT(other.differs, ::testing::Contains(theirs));
}

/// Said settings are not in question; a network that was measured is hardly.
TEST(Hinges, NameWhatMovesTheStepMost) {
  const std::vector<std::string> slow{"mesh.ranks=64", "model.preset=llama3-8b", "train.seq_len=512",
                                      "simulate.cluster=ethernet-h100"};
  const auto hinges = [&](const char* more, bool said) {
    std::vector<std::string> all = slow;
    all.emplace_back(more);
    const Cell cell = on_dgx(all);
    std::vector<Assumption> assumptions{{"simulate.compiled", "false", said}};
    return expect(cell, simulation_of(cell), {}, assumptions).hangs_on;
  };
  const auto width = [](const std::vector<Hinge>& all, const char* what) {
    double most = 1;
    for (const Hinge& hinge : all) {
      if (hinge.what.starts_with(what)) most = hinge.high_ms / hinge.low_ms;
    }
    return most;
  };
  const auto open = hinges("train.accumulate=1", false);
  ASSERT_FALSE(open.empty());
  EXPECT_LE(open.size(), 3U);
  EXPECT_TRUE(
      std::ranges::is_sorted(open, std::ranges::greater(), [](const Hinge& h) { return h.high_ms / h.low_ms; }));
  EXPECT_GT(width(open, "the network between nodes"), 1.3);
  const auto measured = hinges("simulate.cluster=ethernet-h100:10GB/s", true);
  EXPECT_LT(width(measured, "the network between nodes"), 0.8 * width(open, "the network between nodes"));
  EXPECT_EQ(width(measured, "simulate.compiled"), 1);
  // Some trainings on that partition ran with checks, and nobody says which.
  EXPECT_EQ(width(open, "simulate.collective_checks"), 1);
  EXPECT_GT(width(hinges("simulate.cluster=aws-p5:hopper-prod", false), "simulate.collective_checks"), 1.1);
}

TEST(FrameworkSettings, AreThoseOfItsPublishedTrainings) {
  using ::testing::Contains;
  const auto titan = framework_settings("torchtitan", "dgx-h100");
  EXPECT_THAT(titan, Contains("simulate.efficiency=torchtitan"));
  EXPECT_THAT(titan, Contains("simulate.compiled=true"));
  EXPECT_THAT(framework_settings("llm-foundry", "roce-a100"), Contains("simulate.attention=flash1"));
  EXPECT_THAT(framework_settings("llm-foundry", "dgx-h100"), Contains("simulate.attention=flash2"));
  EXPECT_THAT(framework_settings("nanotron", "dgx-h100"), Contains("fsdp.preset=nanotron"));
  EXPECT_THAT(framework_settings("own", "dgx-h100"), Contains("simulate.host=own"));
  EXPECT_THROW(framework_settings("caffe", "dgx-h100"), ConfigError);
}

TEST(BetweenNodes, IsARateOrWhatAFileSays) {
  EXPECT_EQ(between_nodes("12 GB/s"), "12GB/s");
  EXPECT_THROW(between_nodes("12"), ConfigError);
  const TemporaryFolder folder;
  const auto log = [&](const char* second) {
    return folder.write(
        "log", std::string("#  Rank  0 Group  0 Pid  1 on  node1 device  0 [0] H100\n#  Rank  1 Group  0 Pid  2 "
                           "on  ") +
                   second +
                   " device  0 [0] H100\n"
                   "   1048576   262144  float  none  -1  99.1  10.58  18.50  0  98.0  10.7  18.7  0\n"
                   "  1073741824  268435456  float  none  -1  9000  119.3  104.40  0  9000  119.3  104.4  0\n"
                   "# Avg bus bandwidth    : 61.5\n");
  };
  EXPECT_EQ(between_nodes(log("node2")), "104.4GB/s");
  EXPECT_THROW(between_nodes(log("node1")), ConfigError);
  EXPECT_EQ(
      between_nodes(folder.write("c.json", R"({"world": {"places": [{"host": "a"}, {"host": "b"}]}, "operations": [
      {"name": "all_gather", "results": [{"size": 10, "out_of_place": {"busbw_gb_per_s": 3}},
                                         {"size": 90, "out_of_place": {"busbw_gb_per_s": 47.5}}]}]})")),
      "47.5GB/s");
}

/// Trainings of different sizes that were all measured on a network with a sixth of the rate, or with checks of each
/// collective, have that in common.
TEST(SharedReasons, FindWhatExplainsAllRows) {
  struct Case {
    const char *slow, *what;
  };
  for (const Case& c : {Case{"simulate.cluster=dgx-h100:60GB/s", "between nodes"},
                        {"simulate.collective_checks=true", "0.28 ms of each rank of a collective before it"}}) {
    std::vector<Cell> cells;
    std::vector<MeasuredRate> measured;
    for (const char* ranks : {"mesh.ranks=16", "mesh.ranks=32", "mesh.ranks=64"}) {
      const std::vector<std::string> of{ranks, "train.seq_len=1024", "train.batch_per_rank=2"};
      std::vector<std::string> slow = of;
      slow.emplace_back(c.slow);
      measured.push_back({Unit::step_ms, simulation_of(on_dgx(slow)).metrics->step_ms.median});
      cells.push_back(on_dgx(of));
    }
    const std::vector<SharedReason> reasons = shared_reasons(cells, measured);
    ASSERT_EQ(reasons.size(), 5U);
    EXPECT_THAT(reasons.front().what, HasSubstr(c.what));
    EXPECT_LT(reasons.front().typical(), 0.05);
    EXPECT_GT(reasons[1].typical(), 2 * reasons.front().typical());
    EXPECT_THAT(shared_text(reasons, {"a", "b", "c"}), HasSubstr("One thing explains them all"));
  }
}

TEST(NearestPublished, SaysInWhatItDiffers) {
  const Expectation e = expectation_of(on_dgx({"model.preset=mpt-13b", "mesh.ranks=64"}));
  ASSERT_TRUE(e.published);
  EXPECT_THAT(e.published->title, HasSubstr("mpt-13b"));
  EXPECT_THAT(e.published->title, HasSubstr("dgx-h100"));
  EXPECT_FALSE(e.published->differs.empty());
}

}  // namespace
}  // namespace fsdpbench::app
