#include "runs/result_file.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "config/support.h"
#include "runs/result_json.h"

namespace fsdpbench::app {
namespace {

using config::config_error;
using config::TemporaryFolder;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Complaint about a file of this name and text.
std::string error(const std::string& name, const std::string& text) {
  const TemporaryFolder folder;
  const std::string path = folder.write(name, text);
  return config_error([&] { read_result(path); });
}

TEST(ResultFile, AFolderMeansItsResult) {
  const TemporaryFolder folder;
  const std::string path = folder.write(
      "out/result.json", result_text({{"complete", false}, {"config", json::object()}, {"world", json::object()}}));
  EXPECT_EQ(read_result(path).path, path);
  EXPECT_EQ(read_result((folder.path() / "out").string()).path, path);
}

TEST(ResultFile, WhatIsNoResultIsSaidToBeWhatItIs) {
  EXPECT_THAT(error("trace.json", "{\"traceEvents\": []}"),
              HasSubstr("trace.json: is a trace; expected a result.json"));
  EXPECT_THAT(error("trace.json", "[]"), HasSubstr("is a JSON array, as traces are"));
  EXPECT_THAT(error("sweep.json", "{\"sweep_hash\": \"\"}"), HasSubstr("is the summary of a sweep"));
  EXPECT_THAT(error("compare.json", "{\"verdict\": \"slower\"}"), HasSubstr("is a comparison"));
  EXPECT_THAT(error("config.toml", "[mesh]\nranks = 2\n"), HasSubstr("is not JSON"));
  EXPECT_THAT(error("result.json", "{\"schema_version\": "), HasSubstr("or was cut off"));
  EXPECT_THAT(error("result.json", "{}"), HasSubstr("is no result"));
  EXPECT_THAT(error("result.json", "{\"schema_version\": 99}"), HasSubstr("schema_version is 99; this program reads"));
  EXPECT_THAT(config_error([] { read_result("nowhere"); }), HasSubstr("nowhere: there is no such file or folder"));
}

TEST(ResultFile, FoldersWithoutAResultSayWhatTheyAre) {
  const TemporaryFolder folder;
  const auto of = [&](const char* name) { return config_error([&] { read_result((folder.path() / name).string()); }); };
  folder.write("sweep/sweep.json", "{}");
  folder.write("compare/compare.json", "{}");
  folder.write("failed/config.toml", "");
  folder.write("other/file", "");
  EXPECT_THAT(of("sweep"), HasSubstr("is the folder of a sweep"));
  EXPECT_THAT(of("compare"), HasSubstr("is the folder of a comparison"));
  EXPECT_THAT(of("failed"), HasSubstr("is the folder of a run that left no result"));
  EXPECT_THAT(of("other"), HasSubstr("is a folder without result.json"));
}

TEST(ResultFile, WhatCannotBeLookedUpIsNotCalledMissing) {
  const TemporaryFolder folder;
  const std::filesystem::path circle = folder.path() / "result.json";
  std::filesystem::create_symlink(circle, circle);
  for (const std::filesystem::path& given : {folder.path(), circle}) {
    EXPECT_THAT(config_error([&] { read_result(given.string()); }),
                HasSubstr(circle.string() + ": cannot be read: Too many levels of symbolic links; expected"));
  }
}

TEST(ExplainResult, DamageIsSaidInOurWords) {
  const TemporaryFolder folder;
  for (const char* text :
       {R"({"causes": 3})", R"({"causes": [{}]})", R"({"causes": [], "metrics": {"step_ms": []}})"}) {
    json result = json::parse(text);
    result.update({{"complete", true}, {"config", json::object()}, {"world", json::object()}});
    const std::string path = folder.write("result.json", result_text(result));
    EXPECT_THAT(config_error([&] { explain_result(path); }),
                AllOf(HasSubstr("is damaged"), Not(HasSubstr("json.exception"))))
        << text;
  }
}

}  // namespace
}  // namespace fsdpbench::app
