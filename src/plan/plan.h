#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/enum_table.h"
#include "config/run_config.h"
#include "plan/model_shapes.h"
#include "plan/shard_layout.h"
#include "plan/units.h"

namespace fsdpbench::plan {

/// Sizes of the mesh's axes. rank = (replica * shard + index) * tensor + part: tensor groups are runs of consecutive
/// ranks (the fast links of a node). Without them shard groups are; replicate groups are the ranks with equal index and
/// part.
struct Mesh {
  int shard = 1;      ///< ranks that split one unit
  int replicate = 1;  ///< groups that hold equal shards
  int tensor = 1;     ///< ranks that split one layer
  int context = 1;    ///< ranks that split sequences, neighbours on the shard axis; divides it
  int expert = 1;     ///< ranks that split the experts of a block, neighbours on the shard axis; divides it

  int ranks() const { return shard * replicate * tensor; }
  /// Ranks that see different tokens.
  int data_ranks() const { return shard * replicate; }
};

/// An axis along which ranks form groups; each group is a communicator of its own.
enum class Group : std::uint8_t {
  none,
  shard,                  ///< ranks that split a unit
  shard_separate,         ///< the same ranks, a second communicator for reduce-scatter
  reshard,                ///< neighbours in a shard group that share a unit between forward and backward
  replicate,              ///< ranks that hold equal shards
  tensor,                 ///< ranks that split a layer
  context,                ///< neighbours of a shard group that split sequences
  expert,                 ///< neighbours of a shard group that split the experts of a block
  expert_shard,           ///< ranks of a shard group that have the same experts, and split their parameters
  expert_shard_separate,  ///< the same ranks, a second communicator for reduce-scatter
};
inline constexpr std::size_t kGroupCount = kEnumCount<Group>;
std::string_view to_string(Group group);

/// The ranks of one group: first, first + stride, first + 2 stride …
struct Members {
  int first = 0;
  int stride = 1;
  int count = 1;

  int operator[](int index) const { return first + index * stride; }
  /// All of them; takes as long as there are members.
  std::vector<int> ranks() const;
  bool operator==(const Members&) const = default;
};

/// Groups of ranks that communicate: the one map of them. It holds two numbers an axis and nothing by rank, so every
/// question but Members::ranks() takes the same time for any number of ranks. Ranks must be in [0, ranks()).
///
/// Along every axis a rank's index is rank / stride % size. Another axis is another entry here, and one in Mesh.
class Groups {
 public:
  Groups() = default;  ///< one rank
  /// `reshard`: ranks that share a unit between forward and backward; divides mesh.shard, 1 if there is no such axis.
  explicit Groups(const Mesh& mesh, int reshard = 1, bool separate_reduce_scatter = false);

  int ranks() const { return ranks_; }
  /// Whether collectives of a plan may run along this axis: more than one rank, and asked for.
  bool exists(Group group) const;
  int size(Group group) const { return axis(group).size; }
  /// Number of groups along this axis; numbered from 0.
  int count(Group group) const { return ranks_ / size(group); }
  int number(Group group, int rank) const;
  /// Place of the rank in its group: Members[index(rank)] is the rank.
  int index(Group group, int rank) const { return rank / axis(group).stride % axis(group).size; }
  Members members(Group group, int rank) const;
  bool together(Group group, int a, int b) const { return number(group, a) == number(group, b); }

 private:
  struct Axis {
    int stride = 1;
    int size = 1;
  };
  const Axis& axis(Group group) const { return axes_[group]; }

  int ranks_ = 1;
  bool separate_reduce_scatter_ = false;
  EnumTable<Group, Axis> axes_;
};

/// One unit and how it is split.
struct Unit {
  UnitMembers members;
  ShardLayout layout;
  /// Layout of gradients and what follows from them: `layout` without what is frozen, whose places come last there, so
  /// that this is the beginning of it. A flat unit trains as a whole, or has no gradients.
  ShardLayout gradient_layout;
  /// Split into fewer, larger parts between forward and backward (reshard_after_forward = n); empty otherwise.
  std::vector<ShardLayout> group_layout;  // zero or one

  Group group = Group::shard;  ///< whose ranks split it
  int experts = -1;            ///< the unit that has the experts of this one's blocks (mesh.expert), or -1

  bool stays_gathered = false;  ///< fsdp.persistence_threshold: gathered after each optimizer step, never freed

  const std::string& label() const { return members.label; }
  bool has_experts() const { return experts >= 0; }
  /// Has no modules: is gathered, freed and reduced with the unit that does.
  bool is_experts() const { return members.experts_of >= 0; }
  /// One shard, which is copied out of and freed all the same (FSDP2).
  bool copies_alone() const { return layout.shards == 1 && layout.copied; }
  bool has_sharded() const { return !layout.sharded.empty(); }
  bool has_replicated() const { return !layout.replicated.empty(); }
  bool has_parameters() const { return has_sharded() || has_replicated(); }
  bool has_gradients() const { return !gradient_layout.sharded.empty() || !gradient_layout.replicated.empty(); }
};

/// Ownership of all bytes. Unit 0 is the root.
struct Plan {
  ModelShapes shapes;  ///< of one tensor rank's part
  Mesh mesh;
  Groups groups;            ///< along the axes of the mesh
  std::vector<Unit> units;  ///< those that have modules first
  int with_modules = 0;     ///< how many of them
  std::vector<int> unit_of_module;
  DType param_dtype = DType::f32;
  DType gradient_dtype = DType::f32;  ///< of unsharded gradients, before they are reduced
  DType reduce_dtype = DType::f32;
  DType state_dtype = DType::f32;  ///< of masters, moments and reduced gradients

  static constexpr int kRoot = 0;
  // fsdp.expert_unit
  bool nests_experts = false;   ///< experts of a block have hooks of their own, within the block's
  bool orders_experts = false;  ///< … around their computation alone, and are in the order of what is prefetched
  bool reduces_experts_early = false;  ///< experts are reduced once they are computed, within the block's backward
  bool copies_alone = false;  ///< one shard, and parameters are copied out of it and freed all the same (FSDP2)

  /// Masters are used for computing as they are: nothing to gather, cast or free.
  bool resident() const { return mesh.shard == 1 && param_dtype == state_dtype && !copies_alone; }
  /// Whose ranks have the parts of a parameter that is split.
  Group group_of_parts(const ParameterShape& shape) const {
    return mesh.expert > 1 && shape.of_experts ? Group::expert : Group::tensor;
  }
  /// Units are made whole for a while, and freed.
  bool shares_units() const { return mesh.shard > 1 || copies_alone; }
};

/// Pure arithmetic; the configuration must be valid (config/validate.h), its mesh filled in.
Plan make_plan(const config::RunConfig& config);

}  // namespace fsdpbench::plan
