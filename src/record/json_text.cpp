#include "record/json_text.h"

#include <nlohmann/json.hpp>

#include "base/clean_text.h"

namespace fsdpbench::app {

using nlohmann::json;

std::string json_text(const json& value) {
  return clean_json(value.dump(2, ' ', false, json::error_handler_t::replace)) + '\n';
}
std::string json_line(const json& value) {
  return clean_json(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

json parse_json(std::string_view text) {
  int level = 0;
  bool in_text = false, escaped = false;
  for (const char c : text) {  // before anything is built of it
    if (in_text) {
      in_text = escaped || c != '"';
      escaped = !escaped && c == '\\';
    } else if (c == '"') {
      in_text = true;
      escaped = false;
    } else if (c == '[' || c == '{') {
      if (++level > kMostJsonLevels) return json(json::value_t::discarded);
    } else if (c == ']' || c == '}') {
      --level;
    }
  }
  return json::parse(text, nullptr, false);
}

}  // namespace fsdpbench::app
