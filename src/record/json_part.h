#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdpbench::app {

/// `value` as JSON for files and people: indented, ending in a newline. Bytes that are no UTF-8 (paths and reasons hold
/// what users wrote) become U+FFFD: no result is lost over them. Characters that act are escaped (clean_json()).
std::string json_text(const nlohmann::json& value);

/// JSON on one line, without a newline.
std::string json_line(const nlohmann::json& value);

/// Reads JSON that came from outside. Null (is_discarded()) if `text` is none, or is nested more deeply than anything
/// of ours: such values take as much stack as they have levels.
nlohmann::json parse_json(std::string_view text);
inline constexpr int kMostJsonLevels = 64;

/// A label's value in Prometheus' text format, without its quotes.
std::string prometheus_label(std::string_view text);

/// A value of JSON that came from outside, and the keys that led to it. What is asked of it and is not so throws
/// ConfigError, without a full stop, so that the caller can say which file and line:
/// "metrics.step_ms.n: expected a whole number from 0 to 1000000, found "x"". Refers to the value: it must live on.
class JsonPart {
 public:
  explicit JsonPart(const nlohmann::json& value, std::string where = {}) : value_(value), where_(std::move(where)) {}

  /// Whether there is such a key; no object has none.
  bool has(std::string_view key) const { return value_.is_object() && value_.contains(key); }
  /// Value of the key. Throws if it is missing, or this is no object.
  JsonPart at(std::string_view key) const;
  /// The values of an array.
  std::vector<JsonPart> list() const;
  /// Keys and values of an object.
  std::vector<std::pair<std::string, JsonPart>> members() const;

  bool flag() const;
  std::string text() const;
  double number() const;
  std::int64_t whole(std::int64_t least, std::int64_t most) const;
  /// Bytes, counts of bytes, ids: any that is not negative.
  std::int64_t size() const { return whole(0, INT64_MAX); }

  /// Value of the flag, or `otherwise` where the key is missing.
  bool flag(std::string_view key, bool otherwise) const { return has(key) ? at(key).flag() : otherwise; }
  std::string text(std::string_view key, std::string_view otherwise) const;
  double number(std::string_view key, double otherwise) const { return has(key) ? at(key).number() : otherwise; }

  /// The value itself, which may be anything.
  const nlohmann::json& value() const { return value_; }

  /// Throws that something else than `expected` is here.
  [[noreturn]] void refuse(std::string_view expected) const;

 private:
  const nlohmann::json& value_;
  std::string where_;  // "metrics.step_ms"; empty: the whole
};

}  // namespace fsdpbench::app
