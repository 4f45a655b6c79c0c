#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fsdpbench::app {

/// `value` as JSON for files and people: indented, ending in a newline. Bytes that are no UTF-8 (paths and reasons hold
/// what users wrote) become U+FFFD: no result is lost over them.
std::string json_text(const nlohmann::json& value);

/// The same on one line, without a newline.
std::string json_line(const nlohmann::json& value);

}  // namespace fsdpbench::app
