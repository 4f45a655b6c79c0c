#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/dtype.h"
#include "config/run_config.h"

/// How each type of the configuration is spelled: encode to a Value, decode from one. decode leaves `out` alone and
/// returns false if the value does not spell such a thing.
namespace fsdpbench::config {

/// A value as a profile spells it, whatever the file format.
using Value = std::variant<bool, std::int64_t, double, std::string>;

/// As TOML: true, 4, 0.5, "text".
std::string to_toml(const Value& value);

/// The spellings of an enum, in the order of its enumerators.
template <class Enum>
struct Names;
template <>
struct Names<ModelKind> {
  static constexpr std::array<std::string_view, 2> kAll{"decoder", "mlp"};
};
template <>
struct Names<FeedForward> {
  static constexpr std::array<std::string_view, 2> kAll{"gated", "plain"};
};
template <>
struct Names<Norm> {
  static constexpr std::array<std::string_view, 2> kAll{"rms", "layer"};
};
template <>
struct Names<Optimizer> {
  static constexpr std::array<std::string_view, 2> kAll{"sgd", "adamw"};
};
template <>
struct Names<Strategy> {
  static constexpr std::array<std::string_view, 5> kAll{"no_shard", "shard_grad_op", "full_shard", "hybrid_shard",
                                                        "hybrid_shard_grad_op"};
};
template <>
struct Names<Layout> {
  static constexpr std::array<std::string_view, 2> kAll{"flat", "per_param"};
};
template <>
struct Names<AccumulateMode> {
  static constexpr std::array<std::string_view, 3> kAll{"reduce_each", "no_sync", "reduce_scatter_only"};
};
template <>
struct Names<GradientScaling> {
  static constexpr std::array<std::string_view, 3> kAll{"average", "sum", "pre_post_divide"};
};
template <>
struct Names<ReduceBy> {
  static constexpr std::array<std::string_view, 2> kAll{"reduce_scatter", "all_reduce"};
};
template <>
struct Names<ReduceLane> {
  static constexpr std::array<std::string_view, 3> kAll{"reduce_scatter", "all_gather", "compute"};
};
template <>
struct Names<CpuOffload> {
  static constexpr std::array<std::string_view, 3> kAll{"none", "optimizer", "all"};
};
template <>
struct Names<FreeLane> {
  static constexpr std::array<std::string_view, 2> kAll{"compute", "all_gather"};
};
template <>
struct Names<BackendKind> {
  static constexpr std::array<std::string_view, 3> kAll{"cpu", "cuda", "virtual"};
};
template <>
struct Names<Binding> {
  static constexpr std::array<std::string_view, 3> kAll{"none", "numa", "cores"};
};
template <>
struct Names<Simulate::Placement> {
  static constexpr std::array<std::string_view, 2> kAll{"packed", "spread"};
};
template <>
struct Names<Simulate::Collectives> {
  static constexpr std::array<std::string_view, 8> kAll{"ring", "tree",      "hierarchical", "pat",
                                                        "nvls", "nvls_tree", "direct",       "auto"};
};
template <>
struct Names<Simulate::Attention> {
  static constexpr std::array<std::string_view, 3> kAll{"flash1", "flash2", "current"};
};
template <>
struct Names<Timer> {
  static constexpr std::array<std::string_view, 3> kAll{"auto", "cupti", "events"};
};
template <>
struct Names<ProductChoice> {
  static constexpr std::array<std::string_view, 3> kAll{"auto", "first", "fastest"};
};
template <>
struct Names<Graphs> {
  static constexpr std::array<std::string_view, 2> kAll{"none", "step"};
};
template <>
struct Names<DeviceMemory> {
  static constexpr std::array<std::string_view, 2> kAll{"fixed", "pool"};
};
template <>
struct Names<NcclRegister> {
  static constexpr std::array<std::string_view, 3> kAll{"none", "local", "window"};
};
template <>
struct Names<CtaPolicy> {
  static constexpr std::array<std::string_view, 3> kAll{"default", "efficiency", "zero"};
};
/// Only what a model computes in; i32 is no choice here.
template <>
struct Names<DType> {
  static constexpr std::array<std::string_view, 2> kAll{"fp32", "bf16"};
};

/// An enum whose spellings are known here.
template <class Enum>
concept NamedEnum = requires {
  Names<Enum>::kAll;
};

template <NamedEnum Enum>
std::string_view to_string(Enum value) {
  return Names<Enum>::kAll.at(static_cast<std::size_t>(value));
}

template <NamedEnum Enum>
Value encode(Enum value) {
  return std::string(to_string(value));
}

template <NamedEnum Enum>
bool decode(const Value& value, Enum& out) {
  const auto* text = std::get_if<std::string>(&value);
  for (std::size_t i = 0; text != nullptr && i < Names<Enum>::kAll.size(); ++i) {
    if (Names<Enum>::kAll[i] == *text) {
      out = static_cast<Enum>(i);
      return true;
    }
  }
  return false;
}

Value encode(bool value);
Value encode(int value);
Value encode(std::int64_t value);
Value encode(std::uint64_t value);
Value encode(double value);
Value encode(const std::string& value);
Value encode(const std::optional<double>& value);  ///< "none" if absent
Value encode(const Prefetch& value);
Value encode(const AllGatherLimit& value);
Value encode(const ReshardAfterForward& value);
Value encode(const Wrap& value);
Value encode(const Quantization& value);  ///< "none", "int8:2048", "fp8:128"

bool decode(const Value& value, bool& out);
bool decode(const Value& value, int& out);
bool decode(const Value& value, std::int64_t& out);
bool decode(const Value& value, std::uint64_t& out);
bool decode(const Value& value, double& out);
bool decode(const Value& value, std::string& out);
bool decode(const Value& value, std::optional<double>& out);
bool decode(const Value& value, Prefetch& out);
bool decode(const Value& value, AllGatherLimit& out);
bool decode(const Value& value, ReshardAfterForward& out);
bool decode(const Value& value, Wrap& out);
bool decode(const Value& value, Quantization& out);

}  // namespace fsdpbench::config
