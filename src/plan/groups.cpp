#include "plan/groups.h"

#include "base/enum_table.h"

namespace fsdpbench::plan {

std::string_view to_string(Group group) {
  constexpr EnumNames<Group> kNames{"none",      "shard",         "shard_separate", "reshard",
                                    "replicate", "reduce_within", "reduce_across",  "tensor",
                                    "context",   "expert",        "expert_shard",   "expert_shard_separate"};
  return kNames[group];
}

std::vector<int> Members::ranks() const {
  std::vector<int> result;
  for (int i = 0; i < count; ++i) result.push_back((*this)[i]);
  return result;
}

Groups::Groups(const Mesh& mesh, int reshard, bool separate_reduce_scatter, int reduce_within)
    : ranks_(mesh.ranks()), separate_reduce_scatter_(separate_reduce_scatter) {
  const auto set = [this](Group group, Axis axis) { axes_[static_cast<std::size_t>(group)] = axis; };
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
  if (reduce_within == 0) return;
  set(Group::reduce_within, {tensor, reduce_within});
  set(Group::reduce_across, {tensor * reduce_within, mesh.shard / reduce_within});
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

}  // namespace fsdpbench::plan
