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
  c.issue_ns = 1200;
  c.launch_ns = 0.25;
  c.wake_ns = 30000;
  c.lines = {{"all_gather", "wire_bytes", 4, 20000, 5.001, 1e5, 5.54e5, 9, 0.5},
             {"forward", "flops", 0, 0, 0.05, 3e7, 2e8, 5, 0}};
  return c;
}

TEST(Calibration, SurvivesTheRoundTrip) {
  const TemporaryFolder folder;
  const std::string text = to_toml(made_up_calibration());
  const Calibration again = read_calibration(folder.write("c.toml", text));
  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(again.machine, "a \"machine\"");
  EXPECT_EQ(again.lines.at(0).ns_per_amount, 5.001);
}

TEST(Calibration, BadFilesAreNamedByLineAndKey) {
  const TemporaryFolder folder;
  const std::string text = to_toml(made_up_calibration());
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return config_error([&] { read_calibration(folder.write("c.toml", changed)); });
  };
  EXPECT_THAT(refused("version = 1", "version = 2"), HasSubstr("has version 2, and this program reads version 1"));
  EXPECT_THAT(refused("issue_ns = 1200", "issue_ns = -1"), HasSubstr("'issue_ns'"));
  EXPECT_THAT(refused("issue_ns = 1200", "issue = 1200"), HasSubstr("'issue_ns' is missing"));
  EXPECT_THAT(refused("samples = 9", "samples = 0"), HasSubstr("expected an integer from 1"));
  EXPECT_THAT(refused("kind = \"forward\"", "kind = 3"), HasSubstr("expected a string"));
  EXPECT_THAT(refused("ranks = 4", "ranks = 4\nmore = 1"), HasSubstr("there is no key 'more'"));
}

}  // namespace
}  // namespace fsdpbench::config
