#include "config/write.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "config/fields.h"

namespace fsdpbench::config {

std::string to_toml(const RunConfig& config) {
  std::string out;
  std::string table;
  for (const Field& field : fields()) {
    if (field.table != table) {
      out += fmt::format("{}[{}]\n", table.empty() ? "" : "\n", field.table);
      table = field.table;
    }
    out +=
        fmt::format("{:<44}  # {}\n", fmt::format("{} = {}", field.key, to_toml(field.write(config))), field.meaning);
  }
  return out;
}

nlohmann::json to_json(const RunConfig& config) {
  nlohmann::json out;
  for (const Field& field : fields()) {
    const Value value = field.write(config);
    nlohmann::json& slot = out[field.table][field.key];
    const bool absent = field.table == "emulate" && value == Value(std::string("none"));
    if (!absent) std::visit([&](const auto& v) { slot = v; }, value);
  }
  return out;
}

nlohmann::json changed_to_json(const RunConfig& config, const RunConfig& otherwise) {
  const auto plain = [](const Value& value) {
    return std::visit([](const auto& v) { return nlohmann::json(v); }, value);
  };
  nlohmann::json out = nlohmann::json::array();
  for (const Field& field : fields()) {
    const Value value = field.write(config), other = field.write(otherwise);
    if (value != other) out.push_back({{"key", field.name()}, {"value", plain(value)}, {"default", plain(other)}});
  }
  return out;
}

}  // namespace fsdpbench::config
