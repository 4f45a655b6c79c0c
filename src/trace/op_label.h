#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/lane.h"

namespace fsdpbench::trace {

/// What an op's time counts as; the same classes as in metrics/.
enum class OpCategory : std::uint8_t {
  computation,
  communication,
  copy,
  host,  ///< blocks the host
  mark,  ///< nothing to run: frees memory or marks a place
};
constexpr std::string_view to_string(OpCategory category) {
  constexpr std::array<std::string_view, 5> kNames{"computation", "communication", "copy", "host", "mark"};
  return kNames[static_cast<std::size_t>(category)];
}

enum class OpPhase : std::uint8_t { forward, backward, optimizer };
constexpr std::string_view to_string(OpPhase phase) {
  constexpr std::array<std::string_view, 3> kNames{"forward", "backward", "optimizer"};
  return kNames[static_cast<std::size_t>(phase)];
}

enum class CollectiveKind : std::uint8_t { all_gather, reduce_scatter, all_reduce };

struct CollectiveLabel {
  CollectiveKind kind = CollectiveKind::all_gather;
  std::size_t group = 0;   ///< index into RankFacts::groups
  std::int64_t count = 0;  ///< elements a rank contributes (all-gather), keeps (reduce-scatter), holds (all-reduce)
  DType dtype = DType::f32;
};

/// How one op is shown: what a writer cannot know from a record.
struct OpLabel {
  std::string name;  ///< "all_gather 3*"
  OpCategory category = OpCategory::computation;
  OpPhase phase = OpPhase::forward;
  std::string unit;
  Lane lane = Lane::compute;
  std::int64_t bytes = 0;    ///< that a collective's rank contributes, or a copy writes; 0: not shown
  bool parameters = false;   ///< a gather of parameters, for the counter of gathers in flight
  std::optional<CollectiveLabel> collective;

  bool on_lane() const { return category != OpCategory::host && category != OpCategory::mark; }
};

/// Describes an op of a step. The reference must stay valid as long as the writer: make labels once, not per record.
using LabelOf = std::function<const OpLabel&(std::int32_t step, std::int32_t op)>;

}  // namespace fsdpbench::trace
