#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/dtype.h"
#include "base/enum_table.h"
#include "config/run_config.h"

/// How each type of the configuration is spelled: encode to a Value, decode from one. decode leaves `out` alone and
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

/// The spellings of an enum, in the order of its enumerators.
template <class Enum>
struct Names;
template <>
struct Names<ModelKind> {
  static constexpr EnumNames<ModelKind> kAll{"decoder", "mlp"};
};
template <>
struct Names<FeedForward> {
  static constexpr EnumNames<FeedForward> kAll{"gated", "plain"};
};
template <>
struct Names<Norm> {
  static constexpr EnumNames<Norm> kAll{"rms", "layer"};
};
template <>
struct Names<ContextMethod> {
  static constexpr EnumNames<ContextMethod> kAll{"all_gather", "ring"};
};
template <>
struct Names<ExpertOverlap> {
  static constexpr EnumNames<ExpertOverlap> kAll{"none", "combine", "both"};
};
template <>
struct Names<RouterScore> {
  static constexpr EnumNames<RouterScore> kAll{"softmax", "sigmoid"};
};
template <>
struct Names<Optimizer> {
  static constexpr EnumNames<Optimizer> kAll{"sgd", "adamw"};
};
template <>
struct Names<Strategy> {
  static constexpr EnumNames<Strategy> kAll{"no_shard", "shard_grad_op", "full_shard", "hybrid_shard",
                                            "hybrid_shard_grad_op"};
};
template <>
struct Names<Layout> {
  static constexpr EnumNames<Layout> kAll{"flat", "per_param"};
};
template <>
struct Names<AccumulateMode> {
  static constexpr EnumNames<AccumulateMode> kAll{"reduce_each", "no_sync", "reduce_scatter_only"};
};
template <>
struct Names<GradientScaling> {
  static constexpr EnumNames<GradientScaling> kAll{"average", "sum", "pre_post_divide"};
};
template <>
struct Names<ExpertRows> {
  static constexpr EnumNames<ExpertRows> kAll{"each_expert", "each_rank", "one_rank"};
};
template <>
struct Names<Fp8Recipe> {
  static constexpr EnumNames<Fp8Recipe> kAll{"delayed", "tensorwise", "rowwise", "mx"};
};
template <>
struct Names<CheckpointKeeps> {
  static constexpr EnumNames<CheckpointKeeps> kAll{
      "nothing", "attention", "every_second_product", "products", "all_but_feed_forward", "all_but_attention"};
};
template <>
struct Names<ReduceBy> {
  static constexpr EnumNames<ReduceBy> kAll{"reduce_scatter", "all_reduce"};
};
template <>
struct Names<ReduceLane> {
  static constexpr EnumNames<ReduceLane> kAll{"reduce_scatter", "all_gather", "compute"};
};
template <>
struct Names<CpuOffload> {
  static constexpr EnumNames<CpuOffload> kAll{"none", "optimizer", "all"};
};
template <>
struct Names<ExpertUnit> {
  static constexpr EnumNames<ExpertUnit> kAll{"group", "bucket", "module", "ordered_module"};
};
template <>
struct Names<FreeLane> {
  static constexpr EnumNames<FreeLane> kAll{"compute", "all_gather"};
};
template <>
struct Names<BackendKind> {
  static constexpr EnumNames<BackendKind> kAll{"cpu", "cuda", "virtual"};
};
template <>
struct Names<Binding> {
  static constexpr EnumNames<Binding> kAll{"none", "numa", "cores"};
};
template <>
struct Names<Simulate::Placement> {
  static constexpr EnumNames<Simulate::Placement> kAll{"packed", "spread"};
};
template <>
struct Names<Simulate::Collectives> {
  static constexpr EnumNames<Simulate::Collectives> kAll{"ring", "tree",      "hierarchical", "pat",
                                                         "nvls", "nvls_tree", "direct",       "auto"};
};
template <>
struct Names<Simulate::Attention> {
  static constexpr EnumNames<Simulate::Attention> kAll{"flash1", "flash2", "current"};
};
template <>
struct Names<Timer> {
  static constexpr EnumNames<Timer> kAll{"auto", "cupti", "events"};
};
template <>
struct Names<DeviceMemory> {
  static constexpr EnumNames<DeviceMemory> kAll{"fixed", "pool"};
};
template <>
struct Names<NcclRegister> {
  static constexpr EnumNames<NcclRegister> kAll{"none", "local", "window"};
};
template <>
struct Names<CtaPolicy> {
  static constexpr EnumNames<CtaPolicy> kAll{"default", "efficiency", "zero"};
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
  return Names<Enum>::kAll[value];
}

template <NamedEnum Enum>
Value encode(Enum value) {
  return std::string(to_string(value));
}

template <NamedEnum Enum>
bool decode(const Value& value, Enum& out) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return false;
  const auto& all = Names<Enum>::kAll;
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
Value encode(const Quantization& value);  ///< "none", "int8:2048", "fp8:128"
Value encode(const ExpertLoad& value);    ///< a number, "zipf:1.0", "rows:120,80"

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
bool decode(const Value& value, Quantization& out);
bool decode(const Value& value, ExpertLoad& out);

}  // namespace fsdpbench::config
