#include "config/accuracy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

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
    if (columns.at(9) == "true") ratios.push_back(std::stod(columns.at(4)) / std::stod(columns.at(3)));
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
  expect_same(accuracy.training.time_ratios, recorded_ratios("training.csv"));
  expect_same(accuracy.collectives.time_ratios, recorded_ratios("collectives.csv"));
  EXPECT_GT(accuracy.typical_training.time_ratios.size(), accuracy.training.time_ratios.size());
  EXPECT_GT(accuracy.collectives.least_bytes, accuracy.small_collectives.most_bytes);
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
  EXPECT_THAT(refused("version = 1", "version = 7"), HasSubstr("has version 7, and this program reads version 1"));
  EXPECT_THAT(refused("[small_collectives]", "[small]"), HasSubstr("'small_collectives' is missing"));
  EXPECT_THAT(refused("time_ratios = [", "time_ratios = [-1, "), HasSubstr("a.toml:6: the value of 'time_ratios'"));
}

}  // namespace
}  // namespace fsdpbench::config
