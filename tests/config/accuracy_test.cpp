#include "config/accuracy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "config/cluster.h"
#include "config/find_file.h"
#include "config/support.h"

namespace fsdpbench::config {
namespace {

using ::testing::HasSubstr;

/// Predicted over published rate, so published over predicted time, of rows that count; ascending.
std::vector<double> recorded_ratios(const char* file) {
  std::ifstream in(home_folder() / "profiles/recorded/published" / file);
  std::vector<double> ratios;
  std::string line;
  for (std::getline(in, line); std::getline(in, line);) {
    std::vector<std::string> columns;
    std::istringstream row(line);
    for (std::string column; std::getline(row, column, ',');) columns.push_back(column);
    if (columns.at(6).starts_with("symmetric")) continue;                                 // of no kind of errors
    const std::string& predicted = columns.size() > 13 ? columns.at(13) : columns.at(4);  // without a site
    // A row that set a site's rate counts, too: it is predicted for the hardware without that rate.
    const bool counts = columns.at(9) == "true" || columns.at(7) == "rate of the site";
    if (counts) ratios.push_back(std::stod(predicted) / std::stod(columns.at(3)));
  }
  std::ranges::sort(ratios);
  return ratios;
}

void expect_same(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-3);
}

TEST(Accuracy, IsThatOfTheRecordedRows) {
  const Accuracy accuracy = read_accuracy(find_accuracy());
  expect_same(accuracy.rows[ErrorKind::framework].time_ratios, recorded_ratios("training.csv"));
  std::vector<double> large = accuracy.rows[ErrorKind::in_node].time_ratios;
  const std::vector<double>& between = accuracy.rows[ErrorKind::between_nodes].time_ratios;
  large.insert(large.end(), between.begin(), between.end());
  std::ranges::sort(large);
  expect_same(large, recorded_ratios("collectives.csv"));
  EXPECT_GT(accuracy.rows[ErrorKind::typical].time_ratios.size(),
            accuracy.rows[ErrorKind::framework].time_ratios.size());
  EXPECT_GE(accuracy.rows[ErrorKind::in_node].least_bytes, Accuracy::kLargeBytes);
  EXPECT_LT(accuracy.rows[ErrorKind::small].most_bytes, Accuracy::kLargeBytes);
}

TEST(Accuracy, SurvivesTheRoundTripAndBadFilesAreNamed) {
  const TemporaryFolder folder;
  const std::string text = to_toml(read_accuracy(find_accuracy()));
  EXPECT_EQ(to_toml(read_accuracy(folder.write("a.toml", text))), text);
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return config_error([&] { read_accuracy(folder.write("a.toml", changed)); });
  };
  EXPECT_THAT(refused("version = 2", "version = 7"), HasSubstr("has version 7, and this program reads version 2"));
  EXPECT_THAT(refused("[small]", "[little]"), HasSubstr("'small' is missing"));
  EXPECT_THAT(refused("time_ratios = [", "time_ratios = [-1, "), HasSubstr("a.toml:7: the value of 'time_ratios'"));
  EXPECT_THAT(refused("sources = [", "sources = [\"S0\", "), HasSubstr("expected as many"));
}

/// A framework's name, and its number, have its errors; "auto" those of another framework's; any other number the
/// widest.
TEST(Accuracy, AnEfficiencyIsThatOfAFrameworkOnAGpu) {
  Accuracy accuracy;
  accuracy.efficiencies = {{"H100 SXM 80 GB", "bf16", "one", 0.7, {"T1"}},
                           {"H100 SXM 80 GB", "bf16", "two", 0.8 * 0.8 / 0.7, {"T2"}},
                           {"H100 SXM 80 GB", "fp8", "one", 0.5, {"T3"}}};
  RunConfig config;
  config.fsdp.param_dtype = DType::bf16;
  const auto used = [&](const Efficiency& efficiency, const char* cluster = "dgx-h100") {
    config.simulate.efficiency = efficiency;
    return efficiency_used(config, load_cluster(cluster), accuracy);
  };
  EXPECT_EQ(used({0.8, "one"}).value, 0.7);
  EXPECT_EQ(used({0.8, "one"}).kind, ErrorKind::framework);
  EXPECT_EQ(used({0.8, "one"}).from, "one with bf16 on H100 SXM 80 GB (T1)");
  EXPECT_NEAR(used({0.8, "auto"}).value, 0.8, 1e-12) << "of two the geometric mean";
  EXPECT_EQ(used({0.8, "auto"}).kind, ErrorKind::gpu);
  EXPECT_EQ(used({0.8, "auto"}, "dgx-a100").kind, ErrorKind::typical);
  EXPECT_EQ(used({0.8, {}}).kind, ErrorKind::typical);
  EXPECT_EQ(used({0.702, {}}).kind, ErrorKind::framework) << "as people write it down";
  EXPECT_EQ(used({0.72, {}}).kind, ErrorKind::typical) << "nothing says that it is right";
  EXPECT_EQ(used({0.8, "nanotron"}).kind, ErrorKind::framework) << "of no row of the table";
  EXPECT_EQ(used({0.8, "nanotron"}, "dgx-a100").kind, ErrorKind::typical);
  EXPECT_THAT(config_error([&] {
                used({0.8, "three"});
              }),
              HasSubstr("simulate.efficiency = \"three\": no training of it with bf16 on H100 SXM 80 GB is published; "
                        "expected a number, \"auto\", \"measured\", \"one\", \"two\"."));
  config.fsdp.fp8_products = true;
  EXPECT_EQ(used({0.8, "one"}).value, 0.5);
  EXPECT_EQ(used({0.8, "one"}).kind, ErrorKind::framework);
  config.model.experts = 8;
  EXPECT_EQ(used({0.8, "one"}).value, 0.5);
  EXPECT_EQ(used({0.8, "one"}).kind, ErrorKind::typical) << "no group has a mixture of experts";
}

}  // namespace
}  // namespace fsdpbench::config
