#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fsdpbench::app {

/// Why computation was not running, ranked, from a result file: text for people. Throws ConfigError if the file is
/// missing, is not a result of this schema version, or has no causes.
std::string explain_result(const std::string& path);

/// The same from a parsed result.json.
std::string causes_text(const nlohmann::json& result);

/// Why the run of a parsed result.json ended without a result, if a rank failed or died; empty: it has one.
std::string why_unfinished(const nlohmann::json& result);

}  // namespace fsdpbench::app
