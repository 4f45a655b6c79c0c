#include "runs/result_file.h"

#include <fmt/format.h>

#include <sodium.h>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "base/enum_table.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/read_input.h"
#include "record/console.h"
#include "record/json_part.h"

namespace fsdpbench::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kExpected = "expected a result.json that `fsdpbench run` wrote, or its folder";
constexpr const char* kExpectedAny = "expected the folder or file of a result of `fsdpbench accept`, run or simulate";

/// Files of ours that are no result, by what only they have.
std::string kind_of_file(const json& content) {
  if (content.is_array()) return "a JSON array, as traces are";
  if (!content.is_object()) return "JSON, but no result";
  if (content.contains("traceEvents")) return "a trace";
  const json kind = content.value("kind", json());
  if (kind == "gate") return "what a gate came to";
  if (kind == "expect") return "what expect says of a machine";
  if (kind == "trace_explanation") return "an explained trace";
  if (content.contains("optimality_gap")) return "what tune found";
  if (content.contains("what_if")) return "a prediction of what-if";
  if (content.contains("verdict") && !content.contains("judgements")) return "a comparison";
  return "";
}

/// Results that are none of a run.
std::string other_kind(const json& content) {
  if (content.contains("judgements")) return "an acceptance";
  switch (kind_of_result(content)) {
    case ResultKind::run: return "";
    case ResultKind::acceptance: return "an acceptance";
    case ResultKind::sweep: return "the summary of a sweep";
    case ResultKind::collectives: return "a measurement of collectives";
  }
  return "";
}

/// `any`: a sweep's, too.
std::string path_of(const std::string& given, bool any, const char* expected) {
  const fs::path folder(given);
  for (const fs::path& path : {folder, folder / "result.json"}) {
    if (const std::string why = lookup_error(path); !why.empty()) {
      throw ConfigError(fmt::format("{}: {}; {}.", path.string(), why, expected));
    }
  }
  if (!path_exists(folder)) throw ConfigError(fmt::format("{}: there is no such file or folder; {}.", given, expected));
  std::error_code error;
  if (!fs::is_directory(folder, error)) return given;
  const auto holds = [&](const char* name) { return path_exists(folder / name); };
  for (const char* name : {"result.json", any ? "sweep.json" : "result.json"}) {
    if (holds(name)) return (folder / name).string();
  }
  const char* what = holds("sweep.json")     ? "the folder of a sweep"
                     : holds("compare.json") ? "the folder of a comparison"
                     : holds("config.toml")  ? "the folder of a run that left no result"
                                             : "a folder without result.json";
  throw ConfigError(fmt::format("{}: is {}; {}.", given, what, expected));
}

ResultFile read_any(const std::string& given, bool any) {
  const char* const expected = any ? kExpectedAny : kExpected;
  const std::string path = path_of(given, any, expected);
  ResultFile result{path, {}};
  result.content = parse_json(read_input(path, kMostOfAResult, expected));
  if (result.content.is_discarded()) {
    throw ConfigError(fmt::format("{}: is not JSON, or was cut off; {}.", path, expected));
  }
  std::string kind = kind_of_file(result.content);
  if (kind.empty() && !any) kind = other_kind(result.content);
  if (!kind.empty()) throw ConfigError(fmt::format("{}: is {}; {}.", path, kind, expected));
  if (!result.content.value("schema_version", json()).is_number_integer()) {
    throw ConfigError(fmt::format("{}: is no result, or has lost its schema_version; {}.", path, expected));
  }
  result.kind = kind_of_result(result.content);
  try {
    check_result(result.content);
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: is damaged, or no result of this program: {}.", path, error.what()));
  }
  return result;
}

}  // namespace

ResultFile read_result(const std::string& given) { return read_any(given, false); }
ResultFile read_any_result(const std::string& given) { return read_any(given, true); }

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

std::string_view to_string(ResultKind kind) {
  constexpr EnumNames<ResultKind> kNames{"run", "acceptance", "sweep", "collectives"};
  return kNames[kind];
}

std::string result_text(json result) {
  result["schema_version"] = kResultSchemaVersion;
  // Bytes that are no UTF-8 become others when they are written: the digest is of what a reader will find.
  json written = parse_json(json_line(result));
  written["digest"] = json_digest(written);
  return json_text(written);
}

std::string sha256(std::string_view text) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> digest{};
  (void)crypto_hash_sha256(digest.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size());
  std::array<char, 2 * digest.size() + 1> hex{};
  return sodium_bin2hex(hex.data(), hex.size(), digest.data(), digest.size());
}

ResultKind kind_of_result(const json& content) {
  const json kind = content.value("kind", json());
  if (kind == "acceptance") return ResultKind::acceptance;
  if (kind == "collectives") return ResultKind::collectives;
  return content.contains("sweep_hash") ? ResultKind::sweep : ResultKind::run;
}

void check_result(const json& content) {
  const JsonPart j(content);
  const std::int64_t version = j.at("schema_version").whole(0, INT32_MAX);
  if (version != kResultSchemaVersion) {
    throw ConfigError(fmt::format("schema_version is {}; this program reads {}", version, kResultSchemaVersion));
  }
  const std::string said = j.at("digest").text(), is = json_digest(content);
  if (said != is) {
    throw ConfigError(
        fmt::format("it was changed after it was written, or is damaged: its digest is {}, and its content's is {}",
                    clean_text(said, kMostOfACell), is));
  }
}

}  // namespace fsdpbench::app
