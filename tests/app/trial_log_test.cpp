#include "app/experiment/trial_log.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/experiment/trial_json.h"
#include "config/support.h"
#include "support/trials.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

LoggedTrial trial(int number) {
  return fsdpbench::testing::logged("c", static_cast<std::uint64_t>(number), {1.5, 2.5});
}

/// As the log writes it.
json line(int number) {
  json j = to_json(*trial(number).trial);
  j.update({{"cell", "c"}, {"trial", number}, {"status", "ok"}});
  return j;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class TrialLogTest : public ::testing::Test {
 protected:
  void append(const std::string& text) { std::ofstream(path_, std::ios::binary | std::ios::app) << text; }

  config::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "trials.jsonl";
};

TEST_F(TrialLogTest, ALineNestedWithoutEndIsDamagedLikeOthers) {
  { TrialLog(path_, "h").append(trial(0)); }
  append("{\"cell\":" + std::string(2'000'000, '[') + "\n" + line(1).dump() + "\n");
  EXPECT_THAT(config::config_error([&] { TrialLog(path_, "h"); }), HasSubstr(":3: this line is damaged"));
}

TEST_F(TrialLogTest, KeepsWhatWasAppended) {
  {
    TrialLog log(path_, "h");
    EXPECT_TRUE(log.trials().empty());
    log.append(trial(0));
    log.append(trial(1));
    EXPECT_EQ(log.trials().size(), 2U);
  }
  const TrialLog log(path_, "h");
  ASSERT_EQ(log.trials().size(), 2U);
  EXPECT_EQ(log.trials()[1].cell, "c");
  EXPECT_EQ(log.trials()[1].number, 1U);
  EXPECT_EQ(to_json(*log.trials()[1].trial), to_json(*trial(1).trial));
  EXPECT_EQ(log.torn_bytes(), 0U);
}

TEST_F(TrialLogTest, ATornLineIsCutOffWhereverItWasTorn) {
  { TrialLog(path_, "h").append(trial(0)); }
  const std::string whole = contents(path_);
  const std::string torn = line(1).dump();
  for (std::size_t length = 1; length <= torn.size(); ++length) {
    std::ofstream(path_, std::ios::binary) << whole << torn.substr(0, length);
    {
      TrialLog log(path_, "h");
      EXPECT_EQ(log.torn_bytes(), length);
      ASSERT_EQ(log.trials().size(), 1U);
    }
    EXPECT_EQ(contents(path_), whole);
  }
}

TEST_F(TrialLogTest, ATornHeaderBeginsAnew) {
  append("{\"sweep\":\"ol");
  { TrialLog(path_, "h").append(trial(0)); }
  EXPECT_EQ(TrialLog(path_, "h").trials().size(), 1U);
}

TEST_F(TrialLogTest, ALastLineOfZerosIsTornToo) {
  { TrialLog(path_, "h").append(trial(0)); }
  append(std::string(100, '\0') + "\n");
  EXPECT_EQ(TrialLog(path_, "h").trials().size(), 1U);
}

TEST_F(TrialLogTest, DamageInTheMiddleIsAnErrorWithItsLine) {
  { TrialLog(path_, "h").append(trial(0)); }
  append("{\"cell\n" + line(1).dump() + "\n");
  EXPECT_THAT(config::config_error([&] { TrialLog(path_, "h"); }), HasSubstr("trials.jsonl:3: this line is damaged"));
}

TEST_F(TrialLogTest, WhatIsNoTrialIsAnError) {
  const std::string header = "{\"sweep\":\"h\",\"trials_version\":2}\n";
  const auto error = [&](const json& wrong) {
    return config::config_error([&] { parse_trials(header + wrong.dump() + "\n", "t"); });
  };
  EXPECT_THAT(error(json::array()), HasSubstr("t:2: this is no trial: it is no object"));
  json bad = line(0);
  bad["steps_ms"] = {1.0, "x"};
  EXPECT_THAT(error(bad), HasSubstr("no positive number"));
  bad["steps_ms"] = json::array();
  EXPECT_THAT(error(bad), HasSubstr("no steps"));
  bad = line(0);
  bad["trial"] = -1;
  EXPECT_THAT(error(bad), HasSubstr("no trial number"));
  bad = line(0);
  bad.erase("metrics");
  EXPECT_THAT(error(bad), HasSubstr("no metrics"));
  EXPECT_THAT(error({{"cell", "c"}, {"trial", 0}, {"status", "failed"}}), HasSubstr("no reason"));
  EXPECT_THAT(config::config_error([&] { parse_trials("[]\n{}\n", "t"); }),
              HasSubstr("t:1: this is no file of trials"));
  EXPECT_THAT(config::config_error([&] { parse_trials("{\"sweep\":\"h\",\"trials_version\":9}\n", "t"); }),
              HasSubstr("reads 2"));
}

TEST_F(TrialLogTest, AnotherSweepIsRefused) {
  { TrialLog(path_, "h").append(trial(0)); }
  EXPECT_THAT(config::config_error([&] { TrialLog(path_, "other"); }), HasSubstr("another sweep"));
}

TEST_F(TrialLogTest, OnlyOneWriterAtATime) {
  const TrialLog log(path_, "h");
  EXPECT_THROW(TrialLog(path_, "h"), OutputError);
}

TEST_F(TrialLogTest, HostileReasonsStayOneLine) {
  const std::string reason = "<b>\n\"\\\xff\x01";
  { TrialLog(path_, "h").append(fsdpbench::testing::failed("c", 0, reason)); }
  EXPECT_EQ(TrialLog(path_, "h").trials().size(), 1U);
}

}  // namespace
}  // namespace fsdpbench::app
