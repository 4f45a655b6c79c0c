#include "app/command_line.h"

#include <sstream>

#include "app/machine/build_info.h"
#include "config/fields.h"
#include "config/find_file.h"
#include "config/support.h"

namespace fsdpbench::app {
namespace {

using config::config_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CommandLine parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "fsdpbench");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

std::string text(std::vector<const char*> arguments) {
  return std::get<ShowText>(parse(std::move(arguments)).command).text;
}

TEST(CommandLineTest, Run) {
  const CommandLine line =
      parse({"run", "p.toml", "--set", "a.b=1", "-s", "c.d=x y", "--set=e.f=[1,2]", "--out", "somewhere", "-q"});
  const auto& run = std::get<RunArguments>(line.command);
  EXPECT_EQ(run.profile, "p.toml");
  EXPECT_THAT(run.overrides, ElementsAre("a.b=1", "c.d=x y", "e.f=[1,2]"));
  EXPECT_EQ(run.out, "somewhere");
  EXPECT_TRUE(line.quiet);
  EXPECT_EQ(run.command_line.size(), 11U);
}

TEST(CommandLineTest, Ranks) {
  EXPECT_FALSE(std::get<RunArguments>(parse({"run", "p.toml"}).command).ranks.has_value());
  EXPECT_EQ(std::get<RunArguments>(parse({"run", "p.toml", "--ranks", "8"}).command).ranks, 8);
  EXPECT_THAT(config_error([] { parse({"run", "p.toml", "--ranks", "0"}); }), HasSubstr("--ranks"));
}

TEST(CommandLineTest, SetMayComeBeforeTheProfile) {
  const auto run = std::get<RunArguments>(parse({"run", "--set", "a.b=1", "p.toml"}).command);
  EXPECT_EQ(run.profile, "p.toml");
  EXPECT_THAT(run.overrides, ElementsAre("a.b=1"));
}

TEST(CommandLineTest, Explain) {
  const auto explain = std::get<ExplainArguments>(parse({"explain", "p.toml", "--format", "collectives"}).command);
  EXPECT_EQ(explain.format, "collectives");
  EXPECT_EQ(std::get<ExplainArguments>(parse({"explain", "p.toml"}).command).format, "table");
  const auto schedule = [](std::vector<const char*> line) {
    const auto arguments = std::get<ExplainArguments>(parse(std::move(line)).command);
    return arguments.profile + " " + arguments.schedule;
  };
  EXPECT_EQ(schedule({"explain", "--schedule", "p.toml"}), "p.toml all");  // does not swallow the profile
  EXPECT_EQ(schedule({"explain", "p.toml", "--schedule=blocks.3"}), "p.toml blocks.3");
  EXPECT_EQ(schedule({"explain", "p.toml"}), "p.toml ");
}

TEST(CommandLineTest, Doctor) { EXPECT_TRUE(std::get<DoctorArguments>(parse({"doctor", "--json"}).command).json); }

TEST(CommandLineTest, TraceCheck) {
  EXPECT_THAT(std::get<TraceCheckArguments>(parse({"trace", "check", "a.json", "b.json.gz"}).command).files,
              ElementsAre("a.json", "b.json.gz"));
  EXPECT_THAT(text({"trace", "check", "--help"}),
              testing::AllOf(HasSubstr("Usage: fsdpbench trace check"), HasSubstr("Exit codes")));
  EXPECT_THAT(config_error([] { parse({"trace", "check"}); }), HasSubstr("fsdpbench trace check --help"));
}

TEST(CommandLineTest, TracesOfOthers) {
  const auto explain =
      std::get<TraceExplainArguments>(parse({"trace", "explain", "a.json", "b", "--out", "d"}).command);
  EXPECT_THAT(explain.traces, ElementsAre("a.json", "b"));
  EXPECT_EQ(explain.out, "d");
  EXPECT_FALSE(explain.json);
  const auto profile = std::get<TraceToProfileArguments>(parse({"trace", "to-profile", "b", "-c", "c.toml"}).command);
  EXPECT_THAT(profile.traces, ElementsAre("b"));
  EXPECT_EQ(profile.calibration, "c.toml");
  EXPECT_THAT(text({"trace", "explain", "--help"}), HasSubstr("Usage: fsdpbench trace explain"));
  EXPECT_THAT(config_error([] { parse({"trace", "to-profile"}); }), HasSubstr("fsdpbench trace to-profile --help"));
}

TEST(CommandLineTest, MistakesNameThemselvesAndTheHelp) {
  EXPECT_THAT(config_error([] {
                parse({"rum", "p.toml"});
              }),
              HasSubstr("no command 'rum'; the nearest is 'run'; see fsdpbench --help."));
  EXPECT_THAT(config_error([] { parse({"run"}); }),
              testing::AllOf(HasSubstr("PROFILE"), HasSubstr("fsdpbench run --help")));
  EXPECT_THAT(config_error([] { parse({"run", "p.toml", "--sett", "x"}); }), HasSubstr("--sett"));
  EXPECT_THAT(config_error([] { parse({"explain", "p.toml", "--format", "xml"}); }), HasSubstr("xml"));
}

TEST(CommandLineTest, UnknownOptionsGetTheNearest) {
  EXPECT_EQ(config_error([] {
              parse({"run", "p.toml", "--rank", "4"});
            }),
            "run has no option --rank; the nearest is --ranks; see fsdpbench run --help.");
  EXPECT_THAT(config_error([] {
                parse({"run", "--rank=4"});
              }),
              HasSubstr("run has no option --rank; the nearest is --ranks"))
      << "the more helpful complaint than that there is no PROFILE";
  EXPECT_THAT(config_error([] { parse({"compare", "a", "--trails", "20"}); }), HasSubstr("the nearest is --trials"));
  EXPECT_THAT(config_error([] {
                parse({"trace", "check", "--quite", "a.json"});
              }),
              HasSubstr("trace check has no option --quite"));
  EXPECT_THAT(config_error([] {
                parse({"run", "a.toml", "b.toml"});
              }),
              HasSubstr("run takes no further argument 'b.toml'; see fsdpbench run --help."));
}

TEST(CommandLineTest, UnknownCommandsGetTheNearest) {
  EXPECT_THAT(config_error([] {
                parse({"trace", "chek", "a.json"});
              }),
              HasSubstr("There is no command 'trace chek'; the nearest is 'trace check'; see fsdpbench trace --help."));
  EXPECT_THAT(config_error([] { parse({"quickstart"}); }), HasSubstr("the nearest is 'run quickstart'"));
}

TEST(CommandLineTest, WhatDoesNothingBesideFromIsRefused) {
  EXPECT_EQ(std::get<ExplainArguments>(parse({"explain", "--from", "out"}).command).from, "out");
  for (const std::vector<const char*>& more : {std::vector{"--format", "json"}, std::vector{"--set", "mesh.ranks=2"}}) {
    std::vector<const char*> arguments{"explain", "--from", "out"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_THAT(config_error([&] { parse(arguments); }),
                testing::AllOf(HasSubstr("--from shows a result as it was measured"), HasSubstr(more.front())));
  }
}

TEST(CommandLineTest, Compare) {
  const auto plain = std::get<CompareArguments>(parse({"compare", "a"}).command);
  EXPECT_FALSE(plain.trials || plain.rerun || plain.fail_if_slower);
  const auto full =
      std::get<CompareArguments>(parse({"compare", "a", "b", "-n", "5", "--rerun", "--fail-if-slower"}).command);
  EXPECT_EQ(full.trials, 5);
  EXPECT_TRUE(full.rerun && full.fail_if_slower);
}

TEST(CommandLineTest, ReportTakesOneFolderOrTwo) {
  EXPECT_THAT(std::get<ReportArguments>(parse({"report", "a"}).command).folders, ElementsAre("a"));
  EXPECT_THAT(std::get<ReportArguments>(parse({"report", "a", "b", "-o", "c"}).command).folders, ElementsAre("a", "b"));
  EXPECT_THAT(config_error([] { parse({"report", "a", "b", "c"}); }), HasSubstr("report"));
}

TEST(CommandLineTest, HelpNamesModelsThatThereAre) {
  const std::string help = text({"--help"});
  const auto begin = help.find("model.preset ") + std::string("model.preset ").size();
  std::istringstream line(help.substr(begin, help.find(" …", begin) - begin));
  int named = 0;
  for (std::string name; line >> name; ++named) {
    const std::string stem = name.substr(0, name.find(','));
    EXPECT_TRUE(std::filesystem::exists(config::home_folder() / "profiles/models" / (stem + ".toml"))) << stem;
  }
  EXPECT_GE(named, 3);
}

TEST(CommandLineTest, SimulateIsARunOnTheVirtualBackend) {
  const auto run = std::get<RunArguments>(
      parse({"simulate", "quickstart", "--cluster", "dgx-h100", "--ranks", "16", "--set", "train.steps=2"}).command);
  EXPECT_THAT(run.overrides, ElementsAre("device.backend=virtual", "train.steps=2", "simulate.cluster=dgx-h100"));
  EXPECT_EQ(run.ranks, 16);
}

TEST(CommandLineTest, HelpTeaches) {
  for (const auto& help : {text({}), text({"--help"})}) {
    EXPECT_THAT(help, HasSubstr("Examples"));
    EXPECT_THAT(help, HasSubstr("Exit codes"));
    EXPECT_THAT(help, HasSubstr("profiles/README.md"));
  }
  EXPECT_THAT(text({"run", "--help"}), testing::AllOf(HasSubstr("trace.json"), HasSubstr("Usage: fsdpbench run")));
  EXPECT_THAT(text({"explain", "--help"}), HasSubstr("collectives"));
}

/// Every key that the help speaks of exists.
TEST(CommandLineTest, HelpNamesTrueKeys) {
  const std::string help = text({"--help"});
  int keys = 0;
  for (const char* table : {"model.", "data.", "mesh.", "train.", "fsdp.", "emulate.", "inject."}) {
    for (auto at = help.find(table); at != std::string::npos; at = help.find(table, at + 1)) {
      const std::string name = help.substr(at, help.find_first_of(" ;=,\n", at) - at);
      EXPECT_NE(config::find_field(name), nullptr) << name;
      ++keys;
    }
  }
  EXPECT_GT(keys, 10);
}

TEST(CommandLineTest, Version) {
  EXPECT_EQ(text({"--version"}), version_line() + "\n");
  EXPECT_THAT(version_line(), HasSubstr(build_info().git_revision));
  EXPECT_FALSE(build_info().git_revision.empty());
}

}  // namespace
}  // namespace fsdpbench::app
