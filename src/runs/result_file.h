#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runs/result_schema.h"

namespace fsdpbench::app {

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
ResultFile read_any_result(const std::string& given, AcceptanceCheck check_acceptance);

/// Throws when a part of a result is not there or not of the right type: no library's words reach the user.
[[noreturn]] void throw_damaged(const ResultFile& result);

/// Why the run of a result ended without a result, if a rank failed or died; empty: it has one.
std::string why_unfinished(const ResultFile& result);

}  // namespace fsdpbench::app
