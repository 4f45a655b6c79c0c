// Choosing the earlier results in a folder with which a new result is compared.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "accept/gate/gate_cases.h"
#include "accept/gate/gate_report.h"
#include "config/support.h"
#include "runs/result_file.h"

namespace fsdpbench::app {
namespace {

using config::config_error;
using config::TemporaryFolder;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

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
  kept.folder().write("old.json/README.md", "a folder");
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
  EXPECT_THAT(found.left_out, ElementsAre(::testing::EndsWith(
                                  "tuesday/result.json: no measured step was completed, so there is nothing "
                                  "to compare.")));
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

}  // namespace
}  // namespace fsdpbench::app
