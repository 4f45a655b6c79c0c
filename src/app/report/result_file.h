#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fsdpbench::app {

/// A result of `fsdpbench run`, and where it was found.
struct ResultFile {
  std::string path;  ///< of the result.json
  nlohmann::json content;
};

/// Reads the result that a person means by `given`: a result.json, or a folder that holds one. Throws ConfigError in
/// one sentence that names the file, says what it is if that is known (a trace, a sweep, a comparison, a profile), and
/// what is expected. Only what every result of this schema version has at the top is looked at.
ResultFile read_result(const std::string& given);

/// What to throw when a part of a result is not there or not of the right type: no library's words reach the user.
[[noreturn]] void throw_damaged(const ResultFile& result);

/// Why the run of a result ended without a result, if a rank failed or died; empty: it has one.
std::string why_unfinished(const ResultFile& result);

}  // namespace fsdpbench::app
