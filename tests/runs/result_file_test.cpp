#include "runs/result_file.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/digest.h"
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

TEST(ResultFile, Sha256IsWhatSha256sumPrints) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(std::string(1000, 'x')), "44f8354494a5ba03ba1792a8d3e9c534c47a9181980fde7a3f44b06ef2ae7c7f");
}

TEST(ResultFile, AnyChangeBreaksTheDigestAndNoLayoutDoes) {
  json j = json::parse(result_text({{"complete", true}, {"world", {{"cpu", "one"}}}}));
  EXPECT_NO_THROW(check_result(json::parse(j.dump(7))));
  json another = j;
  another["world"]["cpu"] = "another";
  EXPECT_THAT(config_error([&] { check_result(another); }), HasSubstr("it was changed after it was written"));
  j.erase("digest");
  EXPECT_THAT(config_error([&] { check_result(j); }), HasSubstr("digest is missing"));
}

TEST(ResultFile, AnotherVersionIsRefused) {
  for (const int version : {1, kResultSchemaVersion - 1, kResultSchemaVersion + 1}) {
    json j{{"schema_version", version}};
    j["digest"] = json_digest(j);
    EXPECT_THAT(config_error([&] { check_result(j); }),
                HasSubstr("schema_version is " + std::to_string(version) + "; this program reads 3"));
  }
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
