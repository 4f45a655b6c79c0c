#include "app/report/result_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "app/console/json_text.h"
#include "app/report/result_json.h"
#include "base/error.h"
#include "base/paths.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kExpected = "expected a result.json that `fsdpbench run` wrote, or its folder";

/// Files of ours that are no result, by what only they have.
std::string kind_of_file(const json& content) {
  if (content.is_array()) return "a JSON array, as traces are";
  if (!content.is_object()) return "JSON, but no result";
  if (content.contains("traceEvents")) return "a trace";
  if (content.contains("judgements")) return "an acceptance";
  if (content.value("kind", json()) == "gate") return "what a gate came to";
  if (content.value("kind", json()) == "baseline") return "a baseline";
  if (content.contains("sweep_hash")) return "the summary of a sweep";
  if (content.contains("verdict")) return "a comparison";
  return "";
}

std::string path_of(const std::string& given) {
  const fs::path folder(given);
  for (const fs::path& path : {folder, folder / "result.json"}) {
    if (const std::string why = lookup_error(path); !why.empty()) {
      throw ConfigError(fmt::format("{}: {}; {}.", path.string(), why, kExpected));
    }
  }
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    if (fs::exists(folder, error)) return given;
    throw ConfigError(fmt::format("{}: there is no such file or folder; {}.", given, kExpected));
  }
  if (fs::exists(folder / "result.json", error)) return (folder / "result.json").string();
  const char* what = fs::exists(folder / "sweep.json", error)     ? "the folder of a sweep"
                     : fs::exists(folder / "compare.json", error) ? "the folder of a comparison"
                     : fs::exists(folder / "config.toml", error)  ? "the folder of a run that left no result"
                                                                  : "a folder without result.json";
  throw ConfigError(fmt::format("{}: is {}; {}.", given, what, kExpected));
}

}  // namespace

ResultFile read_result(const std::string& given) {
  ResultFile result{path_of(given), {}};
  if (std::error_code error; fs::exists(result.path, error) && !fs::is_regular_file(result.path, error)) {
    throw ConfigError(
        fmt::format("{}: is no regular file; {}.", result.path, kExpected));  // a pipe would wait for ever
  }
  std::ifstream file(result.path, std::ios::binary);
  if (!file) throw ConfigError(fmt::format("{}: cannot be opened for reading; {}.", result.path, kExpected));
  result.content = parse_json(std::string{std::istreambuf_iterator<char>(file), {}});
  if (result.content.is_discarded()) {
    throw ConfigError(fmt::format("{}: is not JSON, or was cut off; {}.", result.path, kExpected));
  }
  if (const std::string kind = kind_of_file(result.content); !kind.empty()) {
    throw ConfigError(fmt::format("{}: is {}; {}.", result.path, kind, kExpected));
  }
  const json version = result.content.value("schema_version", json());
  if (!version.is_number_integer()) throw ConfigError(fmt::format("{}: is no result; {}.", result.path, kExpected));
  if (version != kResultSchemaVersion) {
    throw ConfigError(fmt::format("{}: schema_version is {}; this program reads {}.", result.path, version.dump(),
                                  kResultSchemaVersion));
  }
  return result;
}

void throw_damaged(const ResultFile& result) {
  throw ConfigError(fmt::format("{}: is damaged: a part that every result has is missing, or is no such thing; {}.",
                                result.path, kExpected));
}

std::string why_unfinished(const ResultFile& result) {
  if (!result.content.contains("failure")) return "";
  const json& failure = result.content["failure"];
  if (!failure.is_object() || !failure.contains("message") || !failure["message"].is_string()) throw_damaged(result);
  return fmt::format("this run did not finish ({}) and its result holds the step times of one rank only",
                     failure["message"].get<std::string>());
}

}  // namespace fsdpbench::app
