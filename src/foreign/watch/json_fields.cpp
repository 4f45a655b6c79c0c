#include "foreign/watch/json_fields.h"

#include <nlohmann/json.hpp>

#include "base/clean_text.h"

namespace fsdpbench::watch {

using nlohmann::json;

std::optional<std::int64_t> count_in(const json& object, const char* key, std::int64_t most) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() && found->get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    return std::nullopt;
  const auto value = found->get<std::int64_t>();
  return value < 0 ? std::nullopt : std::optional(value);
}

std::string text_in(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? clean_text(found->get_ref<const std::string&>(), kMostOfACell)
                                                     : "";
}

bool is_true_in(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

bool has_object(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_object();
}

}  // namespace fsdpbench::watch
