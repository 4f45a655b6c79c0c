#include "runs/sweep_grid.h"

#include <algorithm>
#include <set>

#include "config/find_file.h"
#include "config/load.h"
#include "config/support.h"
#include "config/validate.h"

namespace fsdpbench::app {
namespace {

using ::testing::HasSubstr;

class SweepGridTest : public ::testing::Test {
 protected:
  SweepGridTest() { file_.base = folder_.write("base.toml", "[mesh]\nranks = 2\n"); }

  static config::Value number(std::int64_t v) { return v; }
  static config::Value text(std::string v) { return v; }

  config::TemporaryFolder folder_;
  config::SweepFile file_;
};

TEST_F(SweepGridTest, IsTheProductOfTheAxes) {
  file_.axes = {{"mesh.ranks", {number(2), number(4)}},
                {"fsdp.strategy", {text("no_shard"), text("full_shard"), text("shard_grad_op")}}};
  const SweepGrid grid = expand_sweep(file_, {"train.steps=3"});
  ASSERT_EQ(grid.cells.size(), 6U);
  EXPECT_THAT(grid.cells[1].overrides, ::testing::ElementsAre("mesh.ranks=2", "fsdp.strategy=\"full_shard\""));
  EXPECT_THAT(grid.base_overrides, ::testing::ElementsAre("train.steps=3"));
  EXPECT_EQ(describe(grid, grid.cells[5]), "mesh.ranks = 4, fsdp.strategy = \"shard_grad_op\"");
}

TEST(ShippedSweeps, EachCellForGpusCanRun) {
  int cells = 0;
  for (const char* name : {"gpu-ctas", "gpu-registration", "gpu-lanes"}) {
    const SweepGrid grid = expand_sweep(config::load_sweep(config::find_sweep(name)), {});
    for (const SweepCell& cell : grid.cells) {
      std::vector<std::string> overrides = grid.base_overrides;
      overrides.insert(overrides.end(), cell.overrides.begin(), cell.overrides.end());
      config::RunConfig config = config::load_profile(grid.file.base, overrides);
      EXPECT_TRUE(config::validate(config).empty()) << name << ": a key without effect in " << describe(grid, cell);
      EXPECT_EQ(config.device.backend, config::BackendKind::cuda);
      ++cells;
    }
  }
  EXPECT_EQ(cells, 14 + 7 + 2);
}

TEST_F(SweepGridTest, RulesSkipCellsAndSetKeys) {
  file_.axes = {{"mesh.ranks", {number(2), number(4)}}, {"fsdp.strategy", {text("full_shard"), text("hybrid_shard")}}};
  file_.skips = {{{{"mesh.ranks", {number(2)}}, {"fsdp.strategy", {text("hybrid_shard")}}}, "", {}}};
  file_.whens = {{{{"fsdp.strategy", {text("hybrid_shard")}}}, "", {{"mesh.replicate", number(2)}}}};
  const SweepGrid grid = expand_sweep(file_, {});
  ASSERT_EQ(grid.cells.size(), 3U);
  EXPECT_EQ(grid.skipped, 1U);
  EXPECT_EQ(grid.cells[1].overrides.size(), 2U);
  EXPECT_EQ(grid.cells[2].overrides.back(), "mesh.replicate=2");
  file_.skips = {{{{"mesh.ranks", {number(2), number(4)}}}, "", {}}};
  EXPECT_THAT(config::config_error([&] { expand_sweep(file_, {}); }), HasSubstr("every cell"));
}

TEST_F(SweepGridTest, IdsAreUniqueStableAndSafeAsFileNames) {
  file_.axes = {{"data.path",
                 {text("../../etc/passwd"), text("a/b"), text("a_b"), text("a-b"), text("<b>\"'\n\x01"), text("."),
                  text(""), text(std::string(500, 'x')), text(std::string(501, 'x')), text("ü\xff")}}};
  const SweepGrid grid = expand_sweep(file_, {});
  std::set<std::string> ids;
  for (const SweepCell& cell : grid.cells) {
    EXPECT_LT(cell.id.size(), 100U);
    EXPECT_TRUE(std::ranges::all_of(cell.id, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
             c == '_';
    })) << cell.id;
    EXPECT_TRUE(cell.id.starts_with("c-"));
    ids.insert(cell.id);
  }
  EXPECT_EQ(ids.size(), grid.cells.size());
  EXPECT_EQ(expand_sweep(file_, {}).cells[3].id, grid.cells[3].id);
}

TEST_F(SweepGridTest, TheHashIsOfAllThatIsMeasured) {
  file_.axes = {{"mesh.ranks", {number(2), number(4)}}};
  const std::string hash = expand_sweep(file_, {}).hash;
  EXPECT_EQ(expand_sweep(file_, {}).hash, hash);
  EXPECT_NE(expand_sweep(file_, {"train.steps=9"}).hash, hash);
  config::SweepFile other = file_;
  other.title = "only a name";
  EXPECT_EQ(expand_sweep(other, {}).hash, hash);
  other.trials = 4;  // of the same
  EXPECT_EQ(expand_sweep(other, {}).hash, hash);
  other = file_;
  other.axes[0].values.emplace_back(std::int64_t{8});
  EXPECT_NE(expand_sweep(other, {}).hash, hash);
  other = file_;
  other.whens = {{{{"mesh.ranks", {number(4)}}}, "", {{"train.seed", number(9)}}}};
  EXPECT_NE(expand_sweep(other, {}).hash, hash);
  folder_.write("base.toml", "[mesh]\nranks = 2\n[train]\nsteps = 77\n");
  EXPECT_NE(expand_sweep(file_, {}).hash, hash);
}

TEST_F(SweepGridTest, AnAxisCannotBeOverridden) {
  file_.axes = {{"mesh.ranks", {number(2)}}};
  EXPECT_THAT(config::config_error([&] { expand_sweep(file_, {"mesh.ranks=4"}); }), HasSubstr("is an axis"));
  EXPECT_THAT(config::config_error([&] { expand_sweep(file_, {"mesh.rank=4"}); }), HasSubstr("mesh.ranks"));
}

TEST_F(SweepGridTest, TooManyCells) {
  config::SweepAxis axis{"train.seed", {}};
  for (std::int64_t i = 0; i < 1000; ++i) axis.values.emplace_back(i);
  file_.axes = {axis, axis, axis};
  EXPECT_THAT(config::config_error([&] { expand_sweep(file_, {}); }), HasSubstr("more than 100000"));
}

TEST_F(SweepGridTest, EachRoundHasAllCellsInAnotherOrder) {
  file_.axes = {{"train.seed", {}}};
  for (std::int64_t i = 1; i <= 20; ++i) file_.axes[0].values.emplace_back(i);
  const SweepGrid grid = expand_sweep(file_, {});
  const std::vector<std::size_t> first = order_of_trial(grid, 0), second = order_of_trial(grid, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, order_of_trial(grid, 0));
  EXPECT_EQ(std::set<std::size_t>(first.begin(), first.end()).size(), 20U);
}

}  // namespace
}  // namespace fsdpbench::app
