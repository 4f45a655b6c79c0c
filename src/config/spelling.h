#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "base/dtype.h"
#include "base/enum_table.h"
#include "config/run_config.h"

/// Spelling of each type of the configuration: encode to a Value, decode from one. decode leaves `out` alone and
/// returns false if the value does not spell such a thing.
namespace fsdpbench::config {

/// A value as a profile spells it, whatever the file format.
using Value = std::variant<bool, std::int64_t, double, std::string>;

/// `table.key = value` as the user wrote it, and where.
struct Entry {
  std::string name;  ///< "mesh.ranks"
  Value value;
  std::string place;  ///< "profile.toml:12" or "--set mesh.ranks=8"
  std::string raw;    ///< --set only: the value's text, for keys that want a string
};

/// As TOML: true, 4, 0.5, "text".
std::string to_toml(const Value& value);

/// Those of other folders' enums, and of enums within the structs of run_config.h.
template <>
inline constexpr EnumNames<Simulate::Placement> kNames<Simulate::Placement>{"packed", "spread"};
template <>
inline constexpr EnumNames<Simulate::Collectives> kNames<Simulate::Collectives>{
    "ring", "tree", "hierarchical", "pat", "nvls", "nvls_tree", "direct", "auto"};
template <>
inline constexpr EnumNames<Simulate::Attention> kNames<Simulate::Attention>{"flash1", "flash2", "current"};
template <>
inline constexpr EnumNames<Simulate::Host> kNames<Simulate::Host>{"framework", "own"};
template <>
inline constexpr EnumNames<Simulate::Framework> kNames<Simulate::Framework>{"auto", "own", "pytorch", "transformers",
                                                                            "nanotron"};
template <>
inline constexpr EnumNames<Simulate::Loss> kNames<Simulate::Loss>{"auto",    "eager", "referenced", "referenced_fp32",
                                                                  "chunked", "fused"};
/// Only what a model computes in; i32 is no choice here.
template <>
inline constexpr std::array<std::string_view, 2> kNames<DType>{"fp32", "bf16"};

/// An enum whose spellings are known here.
template <class Enum>
concept NamedEnum = !std::is_same_v<decltype(kNames<Enum>), const std::nullptr_t>;

template <NamedEnum Enum>
std::string_view to_string(Enum value) {
  return kNames<Enum>[value];
}

template <NamedEnum Enum>
Value encode(Enum value) {
  return std::string(to_string(value));
}

template <NamedEnum Enum>
bool decode(const Value& value, Enum& out) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return false;
  const auto& all = kNames<Enum>;
  const auto found = std::find(all.begin(), all.end(), *text);
  if (found == all.end()) return false;
  out = static_cast<Enum>(found - all.begin());
  return true;
}

Value encode(bool value);
Value encode(int value);
Value encode(std::int64_t value);
Value encode(std::uint64_t value);
Value encode(double value);
Value encode(const std::string& value);
Value encode(const std::optional<double>& value);  ///< "none" if absent
Value encode(const Efficiency& value);             ///< a number, or "auto" or a framework
Value encode(const Prefetch& value);
Value encode(const AllGatherLimit& value);
Value encode(const ReshardAfterForward& value);
Value encode(const Wrap& value);
Value encode(const Trainable& value);

bool decode(const Value& value, bool& out);
bool decode(const Value& value, int& out);
bool decode(const Value& value, std::int64_t& out);
bool decode(const Value& value, std::uint64_t& out);
bool decode(const Value& value, double& out);
bool decode(const Value& value, std::string& out);
bool decode(const Value& value, std::optional<double>& out);
bool decode(const Value& value, Efficiency& out);
bool decode(const Value& value, Prefetch& out);
bool decode(const Value& value, AllGatherLimit& out);
bool decode(const Value& value, ReshardAfterForward& out);
bool decode(const Value& value, Wrap& out);
bool decode(const Value& value, Trainable& out);

}  // namespace fsdpbench::config
