#include "tune/expectation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
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

namespace fsdpbench::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

TEST(NearestPublished, SaysInWhatItDiffers) {
  const Expectation e = expectation_of(on_dgx({"model.preset=mpt-13b", "mesh.ranks=64"}));
  ASSERT_TRUE(e.published);
  EXPECT_THAT(e.published->title, HasSubstr("mpt-13b"));
  EXPECT_THAT(e.published->title, HasSubstr("dgx-h100"));
  EXPECT_FALSE(e.published->differs.empty());
}

}  // namespace
}  // namespace fsdpbench::app
