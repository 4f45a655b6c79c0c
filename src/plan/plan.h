#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"
#include "config/run_config.h"
#include "plan/groups.h"
#include "plan/model_shapes.h"
#include "plan/shard_layout.h"
#include "plan/units.h"

namespace fsdpbench::plan {

/// One unit and how it is split.
struct Unit {
  UnitMembers members;
  ShardLayout layout;
  /// Of gradients, and of all that follows from them: `layout` without what is frozen, whose places come last there, so
  /// that this is the beginning of it. A flat unit trains as a whole, or has no gradients.
  ShardLayout gradient_layout;
  /// Split into fewer, larger parts between forward and backward (reshard_after_forward = n); empty otherwise.
  std::vector<ShardLayout> group_layout;  // zero or one

  Group group = Group::shard;  ///< whose ranks split it
  int experts = -1;            ///< the unit that has the experts of this one's blocks (mesh.expert), or -1

  bool stays_gathered = false;  ///< fsdp.persistence_threshold: gathered after each optimizer step, never freed

  const std::string& label() const { return members.label; }
  /// Has no modules: is gathered, freed and reduced with the unit that does.
  bool is_experts() const { return members.experts_of >= 0; }
  /// One shard, which is copied out of and freed all the same (FSDP2).
  bool copies_alone() const { return layout.shards == 1 && layout.copied; }
  bool has_sharded() const { return !layout.sharded.empty(); }
  bool has_replicated() const { return !layout.replicated.empty(); }
  bool has_parameters() const { return has_sharded() || has_replicated(); }
  bool has_gradients() const { return !gradient_layout.sharded.empty() || !gradient_layout.replicated.empty(); }
};

/// Who owns which bytes. Unit 0 is the root.
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

  static constexpr int kRoot = 0;
  // fsdp.expert_unit
  bool nests_experts = false;   ///< experts of a block have hooks of their own, within the block's
  bool orders_experts = false;  ///< … around their computation alone, and are in the order of what is prefetched
  bool reduces_experts_early = false;  ///< experts are reduced once they are computed, within the block's backward
  bool copies_alone = false;  ///< one shard, and parameters are copied out of it and freed all the same (FSDP2)

  /// Masters are used for computing as they are: nothing to gather, cast or free.
  bool resident() const { return mesh.shard == 1 && param_dtype == DType::f32 && !copies_alone; }
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
