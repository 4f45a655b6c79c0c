#include "runs/trial_log.h"

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/digest.h"
#include "config/support.h"
#include "runs/result_fields.h"
#include "support/trials.h"

namespace fsdpbench::app {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

LoggedTrial trial(int number) {
  return fsdpbench::testing::logged("c", static_cast<std::uint64_t>(number), {1.5, 2.5});
}

const LogOwner kOwner{"h", {"c"}};

/// As the log writes it.
json line(int number) {
  json j = to_json(*trial(number).trial);
  j.update({{"cell", "c"}, {"trial", number}, {"status", "ok"}});
  return j;
}

/// As a line of the log.
std::string digested_line(json line) {
  line["digest"] = json_digest(line);
  return line.dump() + "\n";
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
  { TrialLog(path_, kOwner).append(trial(0)); }
  append("{\"cell\":" + std::string(2'000'000, '[') + "\n" + line(1).dump() + "\n");
  EXPECT_THAT(config::config_error([&] { TrialLog(path_, kOwner); }), HasSubstr(":3: this line is damaged"));
}

/// A line written to a deleted file is lost, and the file does not say so.
TEST_F(TrialLogTest, ADeletedFolderIsNoticedAtTheNextTrial) {
  const std::filesystem::path folder = folder_.path() / "sweep";
  std::filesystem::create_directory(folder);
  TrialLog log(folder / "trials.jsonl", kOwner);
  log.append(trial(0));
  std::filesystem::remove_all(folder);
  try {
    log.append(trial(1));
    FAIL() << "nobody noticed";
  } catch (const OutputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("trials.jsonl was deleted or replaced while trials were written to it"));
  }
}

TEST_F(TrialLogTest, KeepsWhatWasAppended) {
  {
    TrialLog log(path_, kOwner);
    EXPECT_TRUE(log.trials().empty());
    log.append(trial(0));
    log.append(trial(1));
    EXPECT_EQ(log.trials().size(), 2U);
  }
  const TrialLog log(path_, kOwner);
  ASSERT_EQ(log.trials().size(), 2U);
  EXPECT_EQ(log.trials()[1].cell, "c");
  EXPECT_EQ(log.trials()[1].number, 1U);
  EXPECT_EQ(to_json(*log.trials()[1].trial), to_json(*trial(1).trial));
  EXPECT_EQ(log.torn_note(), "");
}

TEST_F(TrialLogTest, ATornLineIsCutOffWhereverItWasTorn) {
  { TrialLog(path_, kOwner).append(trial(0)); }
  const std::string whole = contents(path_);
  const std::string torn = line(1).dump();
  // At its ends everywhere, between them at each seventh byte.
  for (std::size_t length = 1; length <= torn.size(); length += length < 50 || length + 50 > torn.size() ? 1 : 7) {
    std::ofstream(path_, std::ios::binary) << whole << torn.substr(0, length);
    {
      TrialLog log(path_, kOwner);
      EXPECT_EQ(log.torn_note().find(" torn (" + std::to_string(length) + " bytes") != std::string::npos, length > 0);
      ASSERT_EQ(log.trials().size(), 1U);
    }
    EXPECT_EQ(contents(path_), whole);
  }
}

TEST_F(TrialLogTest, ATornHeaderBeginsAnew) {
  append("{\"sweep\":\"ol");
  { TrialLog(path_, kOwner).append(trial(0)); }
  EXPECT_EQ(TrialLog(path_, kOwner).trials().size(), 1U);
}

TEST_F(TrialLogTest, ALastLineOfZerosIsTornToo) {
  { TrialLog(path_, kOwner).append(trial(0)); }
  append(std::string(100, '\0') + "\n");
  EXPECT_EQ(TrialLog(path_, kOwner).trials().size(), 1U);
}

TEST_F(TrialLogTest, DamageInTheMiddleIsAnErrorWithItsLine) {
  { TrialLog(path_, kOwner).append(trial(0)); }
  append("{\"cell\n" + line(1).dump() + "\n");
  EXPECT_THAT(config::config_error([&] { TrialLog(path_, kOwner); }),
              HasSubstr("trials.jsonl:3: this line is damaged"));
}

TEST_F(TrialLogTest, WhatIsNoTrialIsAnError) {
  const std::string header = digested_line({{"sweep", "h"}, {"trials_version", kTrialsVersion}});
  const auto error = [&](const json& wrong) {
    const std::string text = wrong.is_object() ? digested_line(wrong) : wrong.dump() + "\n";
    return config::config_error([&] { parse_trials(header + text, "t"); });
  };
  EXPECT_EQ(error(json::array()), "t:2: this is no trial: expected an object, found an array.");
  const auto with = [](const char* pointer, const json& value) {
    json bad = line(0);
    bad[json::json_pointer(pointer)] = value;
    return bad;
  };
  EXPECT_EQ(error(with("/steps_ms", {1.0, "x"})),
            "t:2: this is no trial: steps_ms[1]: expected a number, found \"x\".");
  EXPECT_THAT(error(with("/steps_ms", {1.0, 0})), HasSubstr("steps_ms[1]: expected a number above 0"));
  EXPECT_THAT(error(with("/steps_ms", json::array())), HasSubstr("steps_ms: expected a time or more, found an array"));
  EXPECT_THAT(error(with("/metrics/step_ms/n", 1e300)), HasSubstr("metrics.step_ms.n: expected a whole number from 0"));
  EXPECT_THAT(error(with("/world/threads", "two")), HasSubstr("world.threads: expected a whole number"));
  EXPECT_THAT(error(with("/memory/reserved_bytes", -1)), HasSubstr("memory.reserved_bytes: expected a whole number"));
  for (const json& number : {json(-1), json("0"), json(0.5), json(1'000'000), json(18446744073709551615U), json()}) {
    EXPECT_THAT(error(with("/trial", number)), HasSubstr("trial: expected a whole number from 0 to 999999, found "));
  }
  EXPECT_THAT(error(with("/status", "good")), HasSubstr("status: expected \"ok\" or \"failed\", found \"good\""));
  EXPECT_THAT(error(with("/cell", 3)), HasSubstr("cell: expected a text, found 3"));
  EXPECT_LT(error(with("/cell", {{"x", std::string(20'000'000, 'x')}})).size(), 500U);
  json bad = line(0);
  bad.erase("metrics");
  EXPECT_THAT(error(bad), HasSubstr("metrics is missing"));
  EXPECT_THAT(error({{"cell", "c"}, {"trial", 0}, {"status", "failed"}}), HasSubstr("reason is missing"));
  EXPECT_THAT(error({{"cell", "c"}, {"trial", 0}, {"status", "failed"}, {"reason", "r"}, {"exit_code", 1e9}}),
              HasSubstr("exit_code: expected a whole number from 0 to 255"));
  EXPECT_THAT(config::config_error([&] { parse_trials("[]\n{}\n", "t"); }),
              HasSubstr("t:1: this is no file of trials"));
  for (const int version : {2, kTrialsVersion + 1}) {
    EXPECT_THAT(config::config_error([&] {
                  parse_trials(digested_line({{"sweep", "h"}, {"trials_version", version}}), "t");
                }),
                HasSubstr("this program reads 4"));
  }
}

TEST_F(TrialLogTest, AnotherOwnerIsRefused) {
  { TrialLog(path_, kOwner).append(trial(0)); }
  EXPECT_THAT(config::config_error([&] { TrialLog(path_, {"other", {"c"}}); }), HasSubstr("another sweep"));
}

TEST_F(TrialLogTest, ATrialThatStandsTwiceAndACellThatNobodyHasAreRefused) {
  { TrialLog(path_, kOwner).append(trial(0)); }
  const std::string whole = contents(path_);
  append(digested_line(line(1)) + digested_line(line(0)));
  EXPECT_THAT(config::config_error([&] { TrialLog(path_, kOwner); }),
              HasSubstr("trials.jsonl:4: this is no trial: trial 0 of this cell is in line 2 already."));
  json other = line(0);
  other["cell"] = "../../d";
  std::ofstream(path_, std::ios::binary) << whole << digested_line(other);
  EXPECT_THAT(config::config_error([&] { TrialLog(path_, kOwner); }),
              HasSubstr("trials.jsonl:3: this is no trial: cell: expected one of the cells"));
}

TEST_F(TrialLogTest, AnAlteredNumberIsNamedByItsLine) {
  {
    TrialLog log(path_, kOwner);
    for (int number = 0; number < 3; ++number) log.append(trial(number));
  }
  const std::string whole = contents(path_);
  std::vector<std::string> lines;
  for (std::istringstream text(whole); std::getline(text, lines.emplace_back());) continue;
  const auto said = [&](std::size_t which, const std::function<void(json&)>& change) {
    std::ofstream file(path_, std::ios::binary);
    for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
      json changed = json::parse(lines[i]);
      if (i == which) change(changed);
      file << changed.dump() << '\n';
    }
    file.close();
    return config::config_error([&] { TrialLog(path_, kOwner); });
  };
  EXPECT_THAT(
      said(2, [](json& j) { j["steps_ms"][0] = 1.25; }),
      HasSubstr("trials.jsonl:3: this line is not as it was written: its digest is another; restore it, or delete"));
  EXPECT_THAT(said(3, [](json& j) { j["cell"] = "d"; }), HasSubstr(":4: this line is not as it was written"));
  EXPECT_THAT(said(1, [](json& j) { j.erase("digest"); }),
              HasSubstr(":2: this line is not as it was written: its digest is "
                        "missing"));
  EXPECT_THAT(said(0, [](json& j) { j["digest"] = "0"; }), HasSubstr(":1: this line is not as it was written"));
  // Without the line its trial is measured again.
  std::ofstream(path_, std::ios::binary) << lines[0] << '\n' << lines[1] << '\n' << lines[3] << '\n';
  EXPECT_EQ(TrialLog(path_, kOwner).trials().size(), 2U);
}

TEST_F(TrialLogTest, LeavesNoFileWithoutTrials) {
  { const TrialLog log(path_, kOwner); }
  EXPECT_FALSE(std::filesystem::exists(path_));
  TrialLog(path_, kOwner).append(trial(0));
  { const TrialLog log(path_, kOwner); }
  EXPECT_EQ(TrialLog(path_, kOwner).trials().size(), 1U);
}

TEST_F(TrialLogTest, AFailedTrialMayBeTriedAgain) {
  TrialLog(path_, kOwner).append(fsdpbench::testing::failed("c", 0, "no memory"));
  TrialLog(path_, kOwner).append(fsdpbench::testing::failed("c", 0, "no memory"));
  TrialLog(path_, kOwner).append(trial(0));
  EXPECT_EQ(TrialLog(path_, kOwner).trials().size(), 3U);
}

TEST_F(TrialLogTest, OnlyOneWriterAtATime) {
  const TrialLog log(path_, kOwner);
  EXPECT_THROW(TrialLog(path_, kOwner), OutputError);
}

TEST_F(TrialLogTest, HostileReasonsStayOneLine) {
  const std::string reason = "<b>\n\"\\\xff\x01";
  { TrialLog(path_, kOwner).append(fsdpbench::testing::failed("c", 0, reason)); }
  EXPECT_EQ(TrialLog(path_, kOwner).trials().size(), 1U);
}

}  // namespace
}  // namespace fsdpbench::app
