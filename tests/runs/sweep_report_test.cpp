#include "runs/sweep_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/support.h"
#include "support/trials.h"

namespace fsdpbench::app {
namespace {

using fsdpbench::testing::failed;
using fsdpbench::testing::logged;
using nlohmann::json;
using ::testing::HasSubstr;

class SweepReport : public ::testing::Test {
 protected:
  SweepReport() { file_.base = folder_.write("base.toml", "[mesh]\nranks = 2\n"); }

  static config::Value number(std::int64_t v) { return v; }

  config::TemporaryFolder folder_;
  config::SweepFile file_;
};

TEST_F(SweepReport, TheSummarySaysWhatEachCellGave) {
  file_.trials = 2;
  file_.title = "T";
  file_.axes = {{"mesh.ranks", {number(2), number(4), number(6)}}};
  const SweepGrid grid = expand_sweep(file_, {});
  const std::string a = grid.cells[0].id, b = grid.cells[1].id;
  const json sweep = sweep_json(grid, {logged(a, 0, {1, 2, 30}), logged(a, 1, {4, 4, 4}), logged(b, 0, {5, 5}),
                                       failed(grid.cells[2].id, 0, "why <b>"), logged("c-unknown", 0, {1})});
  ASSERT_EQ(sweep["cells"].size(), 3U);
  EXPECT_EQ(sweep["cells"][0]["status"], "ok");
  EXPECT_EQ(sweep["cells"][0]["axes"]["mesh.ranks"], 2);
  const json& step = sweep["cells"][0]["metrics"]["step_ms"];
  EXPECT_EQ(step["median"], 3.0);
  EXPECT_EQ(step["min"], 1.0);
  EXPECT_EQ(step["max"], 30.0);
  EXPECT_EQ(step["n"], 2);
  EXPECT_EQ(step["steps"], 6);
  EXPECT_EQ(sweep["cells"][1]["status"], "incomplete");
  EXPECT_EQ(sweep["cells"][2]["status"], "failed");
  EXPECT_EQ(sweep["cells"][2]["reason"], "why <b>");
  EXPECT_FALSE(sweep["cells"][2].contains("metrics"));
  EXPECT_EQ(sweep["complete"], false);
  EXPECT_EQ(sweep["mixed_worlds"], false);
  EXPECT_EQ(sweep["cells"][0]["metrics"]["compute_ms"], 1.25);
  EXPECT_EQ(sweep["cells"][1]["memory"]["peak_bytes"]["total"], 8);
  EXPECT_THAT(sweep_table(sweep), HasSubstr("incomplete"));
}

TEST_F(SweepReport, ThePartsOfACellAreThoseOfTheTrialWhoseStepTimeIsShown) {
  file_.trials = 3;
  file_.axes = {{"mesh.ranks", {number(2)}}};
  const SweepGrid grid = expand_sweep(file_, {});
  const std::string a = grid.cells[0].id;
  // A trial's compute time is half its first step here: the medians of the parts belong to another trial.
  const json sweep = sweep_json(grid, {logged(a, 0, {1, 6, 7}), logged(a, 1, {5}), logged(a, 2, {9})});
  const json& m = sweep["cells"][0]["metrics"];
  EXPECT_EQ(m["step_ms"]["median"], 6.0);
  EXPECT_EQ(m["compute_ms"], 0.5);
  EXPECT_EQ(m["step_ms"]["interval"], "range");
  EXPECT_THAT(sweep_table(sweep), HasSubstr("range"));
}

TEST_F(SweepReport, WhatDoesNotFitItsGpuIsMarked) {
  file_.trials = 1;
  file_.axes = {{"mesh.ranks", {number(2), number(4)}}};
  const SweepGrid grid = expand_sweep(file_, {});
  LoggedTrial fits = logged(grid.cells[0].id, 0, {1}), large = logged(grid.cells[1].id, 0, {1});
  fits.trial->memory.reserved = 3 << 10;
  large.trial->memory.reserved = 5 << 10;
  fits.trial->device_bytes = large.trial->device_bytes = 4 << 10;
  fits.trial->fits = true;
  large.trial->fits = false;
  const json sweep = sweep_json(grid, {fits, large});
  EXPECT_EQ(sweep["cells"][1]["memory"]["device_bytes"], 4 << 10);
  const std::string table = sweep_table(sweep);
  EXPECT_THAT(table, HasSubstr("does not fit: 5.00 KiB reserved of 4.00 KiB"));
  EXPECT_EQ(table.find("does not fit"), table.rfind("does not fit"));
  EXPECT_EQ(table.find("one value"), std::string::npos) << "an interval of one value is none";
}

TEST_F(SweepReport, WhatFitsIsSaidByPyTorchsAllocatorWhereItWasAsked) {
  file_.trials = 1;
  file_.axes = {{"mesh.ranks", {number(2), number(4)}}};
  const SweepGrid grid = expand_sweep(file_, {});
  LoggedTrial fits = logged(grid.cells[0].id, 0, {1}), large = logged(grid.cells[1].id, 0, {1});
  fits.trial->memory.reserved = 5 << 10;
  large.trial->memory.reserved = 3 << 10;
  fits.trial->device_bytes = large.trial->device_bytes = 4 << 10;
  fits.trial->fits = true;
  large.trial->fits = false;
  fits.trial->caching_allocator = {.peak_reserved = 4 << 10, .retries = 1};
  large.trial->caching_allocator = {.peak_reserved = 6 << 10, .retries = 2, .failures = 1};
  const std::string table = sweep_table(sweep_json(grid, {fits, large}));
  EXPECT_THAT(table, HasSubstr("does not fit: 6.00 KiB reserved of 4.00 KiB"));
  EXPECT_EQ(table.find("does not fit"), table.rfind("does not fit"));
}

TEST_F(SweepReport, RanksAsAnAxisAreOneWorld) {
  file_.trials = 1;
  file_.axes = {{"mesh.ranks", {number(2), number(4)}}};
  const SweepGrid grid = expand_sweep(file_, {});
  LoggedTrial two = logged(grid.cells[0].id, 0, {1}), four = logged(grid.cells[1].id, 0, {1});
  four.trial->world.ranks = 4;
  four.trial->world.places.resize(4, four.trial->world.places.front());
  EXPECT_EQ(sweep_json(grid, {two, four})["mixed_worlds"], false);
  four.trial->world.program.git_revision = "another";
  EXPECT_EQ(sweep_json(grid, {two, four})["mixed_worlds"], true);
}

TEST_F(SweepReport, ATrialThatWasRepeatedCountsOnceAndTheLastCounts) {
  file_.trials = 1;
  file_.axes = {{"mesh.ranks", {number(2)}}};
  const SweepGrid grid = expand_sweep(file_, {});
  const std::string a = grid.cells[0].id;
  const json sweep = sweep_json(grid, {failed(a, 0, "then"), logged(a, 0, {7, 7})});
  EXPECT_EQ(sweep["cells"][0]["status"], "ok");
  EXPECT_EQ(sweep["cells"][0]["trials"], 1);
}

}  // namespace
}  // namespace fsdpbench::app
