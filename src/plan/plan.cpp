#include "plan/plan.h"

#include <algorithm>
#include <utility>

#include "base/enum_table.h"

namespace fsdpbench::plan {

std::string_view to_string(Group group) {
  constexpr EnumNames<Group> kNames{"none",   "shard",   "shard_separate", "reshard",      "replicate",
                                    "tensor", "context", "expert",         "expert_shard", "expert_shard_separate"};
  return kNames[group];
}

std::vector<int> Members::ranks() const {
  std::vector<int> result;
  for (int i = 0; i < count; ++i) result.push_back((*this)[i]);
  return result;
}

Groups::Groups(const Mesh& mesh, int reshard, bool separate_reduce_scatter)
    : ranks_(mesh.ranks()), separate_reduce_scatter_(separate_reduce_scatter) {
  const auto set = [this](Group group, Axis axis) { axes_[group] = axis; };
  const int tensor = mesh.tensor;
  set(Group::tensor, {1, tensor});
  set(Group::shard, {tensor, mesh.shard});
  set(Group::shard_separate, {tensor, mesh.shard});
  set(Group::reshard, {tensor, reshard});
  set(Group::replicate, {tensor * mesh.shard, mesh.replicate});
  set(Group::context, {tensor, mesh.context});
  set(Group::expert, {tensor, mesh.expert});
  // Without a split of experts there is none to shard apart from the rest.
  for (const Group group : {Group::expert_shard, Group::expert_shard_separate}) {
    if (mesh.expert > 1) set(group, {tensor * mesh.expert, mesh.shard / mesh.expert});
  }
}

bool Groups::exists(Group group) const {
  const bool separate = group == Group::shard_separate || group == Group::expert_shard_separate;
  return size(group) > 1 && (!separate || separate_reduce_scatter_);
}

int Groups::number(Group group, int rank) const {
  const auto [stride, size] = axis(group);
  return rank / (stride * size) * stride + rank % stride;
}

Members Groups::members(Group group, int rank) const {
  const auto [stride, size] = axis(group);
  return {rank - index(group, rank) * stride, stride, size};
}
namespace {

/// The layout of the same unsharded buffer over `groups` ranks, where groups divides layout.shards: every chunk is
/// the concatenation of shards/groups old chunks.
ShardLayout regroup(ShardLayout layout, int groups) {
  const int factor = layout.shards / groups;
  layout.shards = groups;
  layout.shard_numel *= factor;
  for (ParameterPlacement& p : layout.sharded) {
    p.chunk_rows *= factor;
    p.shard_offset *= factor;
  }
  return layout;
}

}  // namespace

Plan make_plan(const config::RunConfig& config) {
  Plan plan;
  plan.mesh = {static_cast<int>(config.mesh.shard), static_cast<int>(config.mesh.replicate),
               static_cast<int>(config.mesh.tensor), static_cast<int>(config.mesh.context),
               static_cast<int>(config.mesh.expert)};
  plan.shapes = model_shapes(config.model, plan.mesh.tensor, plan.mesh.expert);
  const bool apart = plan.mesh.expert > 1;
  plan.copies_alone = plan.mesh.shard == 1 && config.fsdp.layout == config::Layout::per_param &&
                      config.fsdp.strategy != config::Strategy::no_shard;
  plan.param_dtype = config.fsdp.param_dtype;
  plan.gradient_dtype = config.fsdp.gradient_dtype();
  plan.reduce_dtype = config.fsdp.reduce_dtype;
  plan.state_dtype = config.fsdp.state_dtype;
  plan.unit_of_module.resize(plan.shapes.modules.size());
  const config::ReshardAfterForward& reshard = config.fsdp.reshard_after_forward;
  const bool fewer =
      reshard.mode == config::ReshardAfterForward::Mode::group && reshard.group > 1 && reshard.group < plan.mesh.shard;
  plan.groups = Groups(plan.mesh, fewer ? reshard.group : 1, config.fsdp.separate_reduce_scatter_comm);

  using config::ExpertUnit;
  const ExpertUnit experts = config.fsdp.expert_unit;
  plan.orders_experts = apart && experts == ExpertUnit::ordered_module;
  plan.nests_experts = plan.orders_experts || (apart && experts == ExpertUnit::module);
  plan.reduces_experts_early = apart && experts == ExpertUnit::bucket;
  for (UnitMembers& members : wrap_units(plan.shapes, config.fsdp.wrap, config.fsdp.head_unit, apart)) {
    for (int m : members.modules) plan.unit_of_module[m] = static_cast<int>(plan.units.size());
    Unit unit;
    if (const int of = members.experts_of; of >= 0) {
      unit.group = Group::expert_shard;
      const int shards = plan.groups.size(Group::expert_shard);
      // torchtitan splits along dimension 1 where there are more ranks than experts, which would be padding otherwise.
      const int dimension = plan.mesh.shard > config.model.experts ? 1 : 0;
      unit.layout =
          make_shard_layout(plan.shapes, members.parameters, config.fsdp.layout, shards, 0, shards == 1, dimension);
      plan.units[of].experts = static_cast<int>(plan.units.size());
    } else {
      unit.layout = make_shard_layout(plan.shapes, members.parameters, config.fsdp.layout, plan.mesh.shard,
                                      config.fsdp.shard_threshold, plan.copies_alone);
      ++plan.with_modules;
    }
    unit.gradient_layout = unit.layout;
    const auto frozen = [&](int p) { return plan.shapes.parameters[p].frozen; };
    if (std::ranges::any_of(members.parameters, frozen)) {
      std::vector<int> trained = members.parameters;
      std::erase_if(trained, frozen);
      unit.gradient_layout = make_shard_layout(plan.shapes, trained, config.fsdp.layout, plan.mesh.shard,
                                               config.fsdp.shard_threshold, plan.copies_alone);
    }
    if (fewer) unit.group_layout.push_back(regroup(unit.layout, plan.groups.size(Group::reshard)));
    unit.stays_gathered =
        plan.mesh.shard > 1 && unit.has_sharded() && unit.layout.parameter_numel() < config.fsdp.persistence_threshold;
    unit.members = std::move(members);
    plan.units.push_back(std::move(unit));
  }
  return plan;
}

}  // namespace fsdpbench::plan
