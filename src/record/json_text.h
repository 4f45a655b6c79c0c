#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace fsdpbench::app {

/// `value` as JSON for files and people: indented, ending in a newline. Bytes that are no UTF-8 (paths and reasons hold
/// what users wrote) become U+FFFD: no result is lost over them. Characters that act are escaped (clean_json()).
std::string json_text(const nlohmann::json& value);

/// The same on one line, without a newline.
std::string json_line(const nlohmann::json& value);

/// Reads JSON that came from outside. Null (is_discarded()) if `text` is none, or is nested more deeply than anything
/// of ours: such values take as much stack as they have levels.
nlohmann::json parse_json(std::string_view text);
inline constexpr int kMostJsonLevels = 64;

}  // namespace fsdpbench::app
