#pragma once

#include <string>

namespace fsdpbench::app {

/// Why computation was not running, ranked, from a result: text for people. `given`: a result.json or its folder.
/// Throws ConfigError if there is none, it is damaged, not of this schema version, or has no causes.
std::string explain_result(const std::string& given);

}  // namespace fsdpbench::app
