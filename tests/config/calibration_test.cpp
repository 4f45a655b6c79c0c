#include "config/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/support.h"

namespace fsdpbench::config {
namespace {

using ::testing::HasSubstr;

Calibration made_up_calibration() {
  Calibration c;
  c.machine = "a \"machine\"";
  c.revision = "abc";
  c.cores = 2;
  c.ranks = 4;
  c.host = {1200, 0.25, 0, 30000};
  c.host_refits = {{1100, 0, 0, 31000}, {1250, 1, 0, 29000}};
  c.misses = {{0.011, -0.002}, {-0.5, 3}};
  c.lines = {{"all_gather", "wire_bytes", 4, 20000, 5.001, 1e5, 5.54e5, 9, 0.5, {{1, 2}, {3, 4}}, {0.99, 1}, {0.5, 2}},
             {"forward", "flops", 0, 0, 0.05, 3e7, 2e8, 5, 0, {{0, 0.05}}, {1}, {1}}};
  c.slowdowns = {{"matrix_product", "both", DType::bf16, {{8192, 2048, 512, 1 << 24, 0, 1.25}, {1, 2, 3, 4, 16, 0.98}}},
                 {"all_gather", "matrix_product", DType::f32, {{512, 512, 512, 1 << 20, 8, 3.5}}}};
  return c;
}

TEST(Calibration, SurvivesTheRoundTrip) {
  const TemporaryFolder folder;
  const std::string text = to_toml(made_up_calibration());
  const Calibration again = read_calibration(folder.write("c.toml", text));
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(again.machine, "a \"machine\"");
  EXPECT_EQ(again.cores, 2);
  EXPECT_EQ(again.ranks, 4);
  EXPECT_EQ(again.lines.at(0).ns_per_amount, 5.001);
  EXPECT_EQ(again.lines.at(0).refits.at(1).ns_per_amount, 4);
  EXPECT_EQ(again.lines.at(0).residuals, (std::vector<double>{0.5, 2}));
  EXPECT_EQ(again.misses.at(0).exposed, -0.002);
  EXPECT_EQ(again.misses.at(1).step, -0.5);
  EXPECT_EQ(again.host_refits.at(1).wake_ns, 29000);
  ASSERT_EQ(again.slowdowns.size(), 2U);
  EXPECT_EQ(again.slowdowns[0].dtype, DType::bf16);
  EXPECT_EQ(again.slowdowns[0].cells.at(1).max_ctas, 16);
  EXPECT_EQ(again.slowdowns[0].cells.at(1).times, 0.98);
  EXPECT_EQ(again.slowdowns[1].cells.at(0).bytes, 1 << 20);
  Calibration without = made_up_calibration();
  without.slowdowns.clear();
  EXPECT_TRUE(read_calibration(folder.write("old.toml", to_toml(without))).slowdowns.empty());
}

TEST(Calibration, BadFilesAreNamedByLineAndKey) {
  const TemporaryFolder folder;
  const std::string text = to_toml(made_up_calibration());
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return config_error([&] { read_calibration(folder.write("c.toml", changed)); });
  };
  EXPECT_THAT(refused("version = 3", "version = 2"),
              HasSubstr("has version 2, and this program reads version 3; calibrate anew"));
  EXPECT_THAT(refused("refits = [[1100, 0, 0, 31000], ", "refits = [[1100, 0, 0], "), HasSubstr("lists of 4 numbers"));
  EXPECT_THAT(refused("misses = [[0.011, -0.002], [-0.5, 3]]", "misses = []"), HasSubstr("'misses'"));
  EXPECT_THAT(refused("-0.5, 3", "-1.5, 3"), HasSubstr("'misses'"));
  EXPECT_THAT(refused("refits = [[1, 2], [3, 4]]", "refits = []"), HasSubstr("lists of 2 numbers"));
  EXPECT_THAT(refused("residuals = [0.5, 2]", "residuals = [0, 2]"), HasSubstr("'residuals'"));
  EXPECT_THAT(refused("off = [0.99, 1]", "off = \"none\""), HasSubstr("'off'"));
  EXPECT_THAT(refused("[host]", "[hosts]"), HasSubstr("'host' is missing"));
  EXPECT_THAT(refused("issue_ns = 1200", "issue_ns = -1"), HasSubstr("'issue_ns'"));
  EXPECT_THAT(refused("issue_ns = 1200", "issue = 1200"), HasSubstr("'issue_ns' is missing"));
  EXPECT_THAT(refused("samples = 9", "samples = 0"), HasSubstr("expected an integer from 1"));
  EXPECT_THAT(refused("kind = \"forward\"", "kind = 3"), HasSubstr("expected a string"));
  EXPECT_THAT(refused("beside = \"both\"", "beside = \"all_reduce\""),
              HasSubstr("of = \"matrix_product\" and beside = \"all_reduce\": expected \"matrix_product\" beside"));
  EXPECT_THAT(refused("of = \"all_gather\"", "of = \"reduce\""), HasSubstr("or one of these two beside"));
  EXPECT_THAT(refused("dtype = \"bf16\"", "dtype = \"fp16\""), HasSubstr("expected \"fp32\" or \"bf16\""));
  EXPECT_THAT(refused("[1, 2, 3, 4, 16, 0.98]", "[1, 2, 3, 4, 16, 0]"), HasSubstr("cell 2 of 'cells'"));
  EXPECT_THAT(refused("[1, 2, 3, 4, 16, 0.98]", "[1, 2, 3, 4, 16]"), HasSubstr("lists of 6 numbers"));
  EXPECT_THAT(refused("ranks = 4", "ranks = 4\nmore = 1"), HasSubstr("there is no key 'more'"));
  EXPECT_EQ(refused("ranks = 4", "ranks = 4\nmore = 1").find("the profile of a run"), std::string::npos);
  EXPECT_THAT(refused("ranks = 4", "ranks = 4\ntrain = {steps = 3}"), HasSubstr("; the profile of a run has train."));
  EXPECT_THAT(refused("ranks = 4", "ranks = 4\nall_gather_limit = 1"),
              HasSubstr("; the profile of a run has fsdp.all_gather_limit."));
}

}  // namespace
}  // namespace fsdpbench::config
