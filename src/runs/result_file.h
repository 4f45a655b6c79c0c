#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace fsdpbench::app {

/// Kind of measurement in a result: whose figures are compared, kept and gated later.
enum class ResultKind : std::uint8_t {
  run,          ///< result.json of `run` and `simulate`
  acceptance,   ///< result.json of `accept`
  sweep,        ///< sweep.json
  collectives,  ///< the file of `collectives -J`
};
/// "run", "acceptance", "sweep", "collectives".
std::string_view to_string(ResultKind kind);

/// Version of results of every kind; raised on every change that a reader must know of. No other version is read.
inline constexpr int kResultSchemaVersion = 3;

/// The text of a result's file: its "schema_version" and its "digest", which is of all the rest, are added.
std::string result_text(nlohmann::json result);
/// SHA-256 of it in 64 hexadecimal digits, as `sha256sum` prints it.
std::string sha256(std::string_view text);

/// Which kind of result `content`, an object, says it is. One that says nothing is a run's.
ResultKind kind_of_result(const nlohmann::json& content);

/// Checks that a result is of this version and as it was written. Its fields are checked by whoever reads them. Throws
/// ConfigError, without a full stop, that names the key.
void check_result(const nlohmann::json& content);

/// A result, and where it was found.
struct ResultFile {
  std::string path;
  nlohmann::json content;
  ResultKind kind = ResultKind::run;
};

/// Reads the result of `fsdpbench run` that a person means by `given`: a result.json, or a folder that holds one.
/// Throws ConfigError in one sentence that names the file, says what it is if that is known (a trace, a sweep, a
/// comparison, a profile), and what is expected; also as check_result() does.
ResultFile read_result(const std::string& given);

/// Reads a result of any kind: a file, or a folder with result.json or sweep.json.
ResultFile read_any_result(const std::string& given);

/// Throws when a part of a result is not there or not of the right type: no library's words reach the user.
[[noreturn]] void throw_damaged(const ResultFile& result);

/// Why the run of a result ended without a result, if a rank failed or died; empty: it has one.
std::string why_unfinished(const ResultFile& result);

}  // namespace fsdpbench::app
