#pragma once

#include <cstdint>
#include <string>
#include <variant>

namespace fsdpbench::config {

/// A value as a profile spells it, whatever the file format.
using Value = std::variant<bool, std::int64_t, double, std::string>;

/// As TOML: true, 4, 0.5, "text".
std::string to_toml(const Value& value);

}  // namespace fsdpbench::config
