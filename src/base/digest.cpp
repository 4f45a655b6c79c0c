#include "base/digest.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

namespace fsdpbench {
namespace {

using nlohmann::json;

class StableHash {
 public:
  void add(std::string_view text) {
    for (const char c : text) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

/// Each value with its type and, of texts, its length: no two different documents give the same bytes. Doubles by their
/// bits, as programs differ in how they write them.
void add(const json& value, StableHash& hash) {
  switch (value.type()) {
    case json::value_t::object:
      hash.add("{");
      for (const auto& [key, member] : value.items()) {
        hash.add(fmt::format("k{}:{}", key.size(), key));
        add(member, hash);
      }
      hash.add("}");
      return;
    case json::value_t::array:
      hash.add("[");
      for (const json& member : value) add(member, hash);
      hash.add("]");
      return;
    case json::value_t::string: {
      const auto& text = value.get_ref<const std::string&>();
      hash.add(fmt::format("s{}:{}", text.size(), text));
      return;
    }
    case json::value_t::boolean: hash.add(value.get<bool>() ? "t" : "f"); return;
    case json::value_t::number_integer: hash.add(fmt::format("i{};", value.get<std::int64_t>())); return;
    case json::value_t::number_unsigned: hash.add(fmt::format("i{};", value.get<std::uint64_t>())); return;
    case json::value_t::number_float:
      if (const auto number = value.get<double>(); std::isfinite(number)) {
        hash.add(fmt::format("d{:016x}", std::bit_cast<std::uint64_t>(number)));
        return;
      }
      [[fallthrough]];  // JSON has no such number: it is written as null
    case json::value_t::null:
    case json::value_t::binary:
    case json::value_t::discarded: break;
  }
  hash.add("n");
}

}  // namespace

std::uint64_t stable_hash(std::string_view text) {
  StableHash hash;
  hash.add(text);
  return hash.value();
}

std::string json_digest(const json& document) {
  StableHash hash;
  if (document.is_object() && document.contains("digest")) {
    json rest = document;
    rest.erase("digest");
    add(rest, hash);
  } else {
    add(document, hash);
  }
  return fmt::format("{:016x}", hash.value());
}

}  // namespace fsdpbench
