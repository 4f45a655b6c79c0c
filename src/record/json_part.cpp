#include "record/json_part.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/read_input.h"

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

std::string prometheus_label(std::string_view text) {
  std::string out;
  for (const char c : clean_text(text, kMostOfAMessage)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

using nlohmann::json;

JsonPart JsonPart::at(std::string_view key) const {
  if (!value_.is_object()) refuse("an object");
  const auto found = value_.find(key);
  std::string where = where_.empty() ? std::string(key) : fmt::format("{}.{}", where_, key);
  if (found == value_.end()) throw ConfigError(fmt::format("{} is missing", where));
  return JsonPart(*found, std::move(where));
}

std::vector<JsonPart> JsonPart::list() const {
  if (!value_.is_array()) refuse("an array");
  std::vector<JsonPart> parts;
  for (const json& value : value_) parts.emplace_back(value, fmt::format("{}[{}]", where_, parts.size()));
  return parts;
}

std::vector<std::pair<std::string, JsonPart>> JsonPart::members() const {
  if (!value_.is_object()) refuse("an object");
  std::vector<std::pair<std::string, JsonPart>> parts;
  for (const auto& [key, value] : value_.items()) {
    parts.emplace_back(key, JsonPart(value, where_.empty() ? key : fmt::format("{}.{}", where_, key)));
  }
  return parts;
}

bool JsonPart::flag() const {
  if (!value_.is_boolean()) refuse("true or false");
  return value_.get<bool>();
}

std::string JsonPart::text() const {
  if (!value_.is_string()) refuse("a text");
  return value_.get<std::string>();
}

std::string JsonPart::text(std::string_view key, std::string_view otherwise) const {
  return has(key) ? at(key).text() : std::string(otherwise);
}

double JsonPart::number() const {
  if (!value_.is_number()) refuse("a number");
  return value_.get<double>();
}

std::int64_t JsonPart::whole(std::int64_t least, std::int64_t most) const {
  const bool fits = value_.is_number_unsigned() ? value_.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX)
                                                : value_.is_number_integer();
  const std::int64_t number = fits ? value_.get<std::int64_t>() : 0;
  if (!fits || number < least || number > most) {
    refuse(most == INT64_MAX ? fmt::format("a whole number from {} on", least)
                             : fmt::format("a whole number from {} to {}", least, most));
  }
  return number;
}

void JsonPart::refuse(std::string_view expected) const {
  const std::string found = value_.is_structured() ? (value_.is_array() ? "an array" : "an object")
                                                   : clean_text(json_line(value_), kMostOfACell);
  throw ConfigError(fmt::format("{}expected {}, found {}", where_.empty() ? "" : where_ + ": ", expected, found));
}

}  // namespace fsdpbench::app
