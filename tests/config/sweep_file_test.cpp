#include "config/sweep_file.h"

#include "config/support.h"

namespace fsdpbench::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SweepFileTest : public testing::Test {
 protected:
  SweepFileTest() { folder_.write("base.toml", "[mesh]\nranks = 2\n"); }

  SweepFile load(const std::string& text) { return load_sweep(folder_.write("sweeps/s.toml", text)); }
  SweepFile load_with_base(const std::string& text) { return load("base = \"../base.toml\"\n" + text); }
  std::string error(const std::string& text) {
    return config_error([&] { load_with_base(text); });
  }

  TemporaryFolder folder_;
};

TEST_F(SweepFileTest, ReadsEverything) {
  const SweepFile sweep = load_with_base(R"(
title = "T"
trials = 5
seed = 7
x = "train.steps"
series = ["mesh.ranks"]
[set]
"train.warmup" = 0
[axes]
"mesh.ranks" = [2, 4]
"train.steps" = 3
fsdp.strategy = ["no_shard", "full_shard"]
[[when]]
"mesh.ranks" = 4
set = { "train.seed" = 3 }
[[skip]]
"mesh.ranks" = [2]
"fsdp.strategy" = "no_shard"
reason = "r"
)");
  EXPECT_EQ(sweep.title, "T");
  EXPECT_EQ(sweep.base, (folder_.path() / "base.toml").string());
  EXPECT_EQ(sweep.trials, 5);
  EXPECT_EQ(sweep.seed, 7U);
  EXPECT_EQ(sweep.x, "train.steps");
  EXPECT_THAT(sweep.series, ElementsAre("mesh.ranks"));
  ASSERT_EQ(sweep.set.size(), 1U);
  EXPECT_EQ(sweep.set[0].first, "train.warmup");
  ASSERT_EQ(sweep.axes.size(), 3U) << "in the order of the file";
  EXPECT_EQ(sweep.axes[0].key, "mesh.ranks");
  EXPECT_THAT(sweep.axes[0].values, ElementsAre(Value(std::int64_t{2}), Value(std::int64_t{4})));
  EXPECT_EQ(sweep.axes[1].key, "train.steps");
  EXPECT_THAT(sweep.axes[1].values, ElementsAre(Value(std::int64_t{3})));
  EXPECT_EQ(sweep.axes[2].key, "fsdp.strategy");
  ASSERT_EQ(sweep.whens.size(), 1U);
  EXPECT_EQ(sweep.whens[0].set[0].first, "train.seed");
  ASSERT_EQ(sweep.skips.size(), 1U);
  EXPECT_EQ(sweep.skips[0].when.size(), 2U);
  EXPECT_EQ(sweep.skips[0].reason, "r");
}

TEST_F(SweepFileTest, NoBase) {
  EXPECT_THAT(config_error([&] { load("[axes]\n\"mesh.ranks\" = [1]\n"); }), HasSubstr("there is no base"));
  EXPECT_THAT(config_error([&] { load("base = \"nowhere.toml\"\n"); }),
              testing::AllOf(HasSubstr("s.toml:1:"), HasSubstr("no such file")));
}

TEST_F(SweepFileTest, NoAxes) {
  EXPECT_THAT(error(""), HasSubstr("there are no axes"));
  EXPECT_THAT(error("[axes]\n"), HasSubstr("there are no axes"));
}

TEST_F(SweepFileTest, UnknownKeysNameTheNearest) {
  EXPECT_THAT(error("[axes]\n\"mesh.rank\" = [2]\n"),
              testing::AllOf(HasSubstr("s.toml:3:"), HasSubstr("unknown key 'mesh.rank'"), HasSubstr("'mesh.ranks'")));
  EXPECT_THAT(error("[set]\n\"train.step\" = 2\n"), HasSubstr("'train.steps'"));
  EXPECT_THAT(error("trails = 2\n"), HasSubstr("'trials'"));
}

TEST_F(SweepFileTest, BadValues) {
  EXPECT_THAT(error("[axes]\n\"mesh.ranks\" = []\n"), HasSubstr("has no values"));
  EXPECT_THAT(error("[axes]\n\"mesh.ranks\" = [2, 0]\n"), HasSubstr("mesh.ranks = 0 is not valid"));
  EXPECT_THAT(error("[axes]\n\"mesh.ranks\" = [2, 2]\n"), HasSubstr("twice"));
  EXPECT_THAT(error("[axes]\n\"mesh.ranks\" = [[2]]\n"), HasSubstr("is not valid"));
  EXPECT_THAT(error("trials = 0\n"), HasSubstr("trials is not valid"));
  EXPECT_THAT(error("title = 3\n"), HasSubstr("title is not valid"));
  EXPECT_THAT(error("axes = 3\n"), HasSubstr("axes is not valid"));
  EXPECT_THAT(error("[axes]\n\"mesh.ranks\" = [1]\n[set]\n\"mesh.ranks\" = 2\n"), HasSubstr("fixed in [set]"));
}

TEST_F(SweepFileTest, DeepKeysAreRefusedAndManyValuesAreNot) {
  std::string key = "a", seeds;
  for (int i = 0; i < 50'000; ++i) key += ".a";
  EXPECT_THAT(error("[axes]\n" + key + " = [1]\n"), HasSubstr("s.toml:3: a key has more than 16 parts; no sweep file"));
  for (int i = 0; i < 80'000; ++i) seeds += std::to_string(i) + ",";
  EXPECT_EQ(load_with_base("[axes]\n\"train.seed\" = [" + seeds + "]\n").axes.at(0).values.size(), 80'000U);
  EXPECT_THAT(error("[axes]\n\"train.seed\" = [" + seeds + "7]\n"), HasSubstr("train.seed has the value 7 twice"));
}

TEST_F(SweepFileTest, RulesNameAxes) {
  const std::string axes = "[axes]\n\"mesh.ranks\" = [1, 2]\n";
  EXPECT_THAT(error(axes + "[[skip]]\n\"train.steps\" = 2\n"), HasSubstr("no axis of this sweep"));
  EXPECT_THAT(error(axes + "[[skip]]\nreason = \"all\"\n"), HasSubstr("for every cell"));
  EXPECT_THAT(error(axes + "[[when]]\n\"mesh.ranks\" = 2\nset = { \"mesh.ranks\" = 1 }\n"), HasSubstr("is an axis"));
  EXPECT_THAT(error("x = \"mesh.rank\"\n" + axes), HasSubstr("the nearest is 'mesh.ranks'"));
  EXPECT_THAT(error("skip = 1\n" + axes), HasSubstr("[[skip]]"));
}

TEST_F(SweepFileTest, ShippedSweepsLoad) {
  int found = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(std::filesystem::path(FSDPBENCH_SOURCE_DIR) / "profiles/sweeps")) {
    EXPECT_NO_THROW(load_sweep(file.path().string())) << file.path();
    ++found;
  }
  EXPECT_GE(found, 8);
}

}  // namespace
}  // namespace fsdpbench::config
